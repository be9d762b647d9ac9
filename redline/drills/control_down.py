"""The drill of the control plane: killed or held while a level is ordered, and nothing is lost."""

import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from alerts.parts import Part
from monitors.contract import ResidentStatus
from redline.drills import engine, signs
from redline.drills.machinery import AWAKE, after, held_still, moved_once
from redline.drills.signs import Sign
from redline.drills.stage import Awaited, CannotRun, Guard, Stage
from redline.drills.timeline import Mark, Step
from redline.drills.traffic import Kind
from redline.drills.watch import Sight
from redline.processes import NotOurs, send

CONTROL_PLANE = "control plane"
DOWN, SERVED, LEASE, LED, KEPT = "down", "served", "lease", "led", "kept"
_ONE = Kind(workers=1, pause_s=threading.TIMEOUT_MAX)  # and no second one
_LOOK_S = 2.0  # at what must not change under a new leader: a few of its ticks
_SPARE_S = _LOOK_S + 3.0  # of the dwell, for all but the hold


def control_down(stage: Stage, hold_s: float | None) -> None:
    """`hold_s` None: killed, and started again by `redline up`. Else stopped for so long."""
    breach = engine.slow(stage)
    stable, led_by = engine.at_full(stage, breach), stage.control().leader_epoch
    if led_by is None:
        raise CannotRun("this control plane stands by: ask the one that leads")
    stage.process(CONTROL_PLANE)  # before anything is broken
    _require_short(hold_s, stage.lines.ladder.dwell_s)
    stage.begin(f"every step of {stable.version} takes {breach.amount:g} s longer")
    with engine.broken(stage, breach, stable.name):
        stage.expect(*engine.answered(stage, breach, stable.version))
    failed_before = len(stage.traffic.failures)
    with (
        stage.traffic.going_on(engine.light(stage)),
        stage.guarded(_holds(stage, breach.part, stable)),
    ):
        _killed(stage, led_by) if hold_s is None else _held(stage, hold_s, led_by)
        stage.pause(_LOOK_S, "looks whether the new leader keeps the level")
        kept = Step(KEPT, "the level is still held, by its orders", _LOOK_S + 2.0, LED)
        stage.expect((kept, signs.held(breach.part, stable.version)))
    _none_failed(stage, failed_before)
    if stage.recovery:
        engine.recover(stage, breach, stable, since=LED)
    engine.same_process(stage, stable)
    moved_once(stage, breach.part, stable.version)


def _require_short(hold_s: float | None, dwell_s: float) -> None:
    """Raises `CannotRun` where the level may rightly be given back before it is looked at."""
    if hold_s is not None and hold_s > dwell_s - _SPARE_S:
        raise CannotRun(
            f"--hold {hold_s:g} is too long to tell: once it is quiet for {dwell_s:g} s the level "
            f"is given back; choose at most {dwell_s - _SPARE_S:g}"
        )


def _killed(stage: Stage, led_by: int) -> None:
    stage.damage.breaks(CONTROL_PLANE, lambda: f"`redline up` starts the {CONTROL_PLANE} again")
    try:
        send(stage.process(CONTROL_PLANE), signal.SIGKILL)
    except NotOurs as err:
        raise CannotRun(f"{CONTROL_PLANE}: {err}") from err
    stage.act(DOWN, f"the {CONTROL_PLANE} is killed")
    led = Step(LED, "it is back, and leads under a new epoch", stage.bounds.led_again_s(), DOWN)
    with _asking(stage):
        served, sign = _served(stage)
        stage.expect((served, _while_away(sign)), (led, signs.leads(newer_than=led_by)))
    stage.damage.forget(CONTROL_PLANE)


def _held(stage: Stage, hold_s: float, led_by: int) -> None:
    """Stopped: to the data plane it is gone, and its leases run out."""
    lease_s = stage.lines.rollout.canary_lease_s
    with held_still(stage, CONTROL_PLANE):
        stage.act(DOWN, f"the {CONTROL_PLANE} is stopped for {hold_s:g} s")
        began = time.time()
        awaited = [_served(stage)]
        if stage.observed().canary_weight and hold_s > lease_s:
            ended = Step(LEASE, "the canary's weight is 0", lease_s + stage.bounds.effect_s(), DOWN)
            awaited.append((ended, _no_canary))
        with _asking(stage):
            stage.expect(*awaited)
        stage.pause(hold_s - (time.time() - began), f"holds the {CONTROL_PLANE}")
    led = Step(LED, "it leads", stage.bounds.led_again_s(), AWAKE)
    stage.expect((led, after(stage, AWAKE, signs.leads(newer_than=led_by - 1))))


def _no_canary(sight: Sight) -> Mark | None:
    if sight.observed is None or sight.observed.canary_weight:
        return None
    return Mark(sight.wall, "the canary's weight is 0: its lease has run out", signs.DATA_PLANE)


def _holds(stage: Stage, part: Part, stable: ResidentStatus) -> Guard:
    """B serves whoever leads; the level stays as long as its lease was given for."""
    sure_until = time.time() + 2.0 / 3.0 * stage.lines.ladder.lease_s  # it is renewed at a third

    def guard(sight: Sight) -> str | None:
        found = signs.resident(sight, stable.version)
        if found is None:
            return None
        if found.weight == 0:
            return f"{stable.version} was left without traffic: its share has no lease"
        if sight.wall < sure_until and not signs.rung(found.level, part):
            return f"{stable.version} forgot its {part} while nobody led"
        return None

    return guard


@contextmanager
def _asking(stage: Stage) -> Generator[None]:
    """One request at least while nobody decides, of a drill that sends no others."""
    with stage.traffic.going_on(None if stage.own_traffic else _ONE):
        yield


def _served(stage: Stage) -> Awaited:
    """Sent and answered while nobody decides: where all hang, none of them fails."""
    step = Step(SERVED, "a request is answered meanwhile", stage.bounds.served_s(), DOWN)

    def sign(_: Sight) -> Mark | None:
        newest, down = stage.traffic.newest, stage.timeline.at(DOWN)
        if newest is None or down is None or newest.sent < down:
            return None
        return Mark(newest.answered, "a request is answered", "this drill")

    return step, sign


def _while_away(sign: Sign) -> Sign:
    """What is seen before the next control plane answers."""
    return lambda sight: sign(sight) if sight.control is None else None


def _none_failed(stage: Stage, failed_before: int) -> None:
    failures = [why for _, why in stage.traffic.failures[failed_before:]]
    stage.never(
        bool(failures),
        f"{len(failures)} requests failed while the {CONTROL_PLANE} was away: {failures[:1]}",
    )
