"""Drills of what evaluates: Prometheus or Alertmanager is silent, breaches are still answered."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from alerts.firing import Source
from alerts.parts import Part
from redline.drills import engine, signs
from redline.drills.signs import Sign
from redline.drills.stage import CannotRun, Stage
from redline.drills.timeline import Mark, Step
from redline.drills.watch import Sight
from redline.processes import NotOurs, let_go_on, send

PROMETHEUS, ALERTMANAGER = "Prometheus", "Alertmanager"
EMBEDDED, AWAKE, BACK = "embedded", "awake", "back"


# ---------------------------------------------------------------- Prometheus, Alertmanager
def silent(stage: Stage, process: str) -> None:
    """No Watchdog comes: the control plane evaluates itself, and a breach is still answered."""
    control = stage.control()
    if control.rule_source != Source.PROMETHEUS:
        raise CannotRun(
            f"the rules are evaluated by {control.rule_source} already, not Prometheus; its "
            "first Watchdog comes a minute after `redline up`: try again once `redline status` "
            "names it"
        )
    breach = engine.slow(stage)
    stable, mark = engine.at_full(stage, breach), stage.process(process)
    stage.begin(f"{process} is stopped (process {mark.pid})")
    with held_still(stage, process):
        taken_over = Step(EMBEDDED, "the control plane evaluates itself", stage.bounds.embedded_s())
        stage.expect((taken_over, signs.evaluates(Source.EMBEDDED)))
        with engine.broken(stage, breach, stable.name):
            (begun, sign), *rest = engine.answered(stage, breach, stable.version)
            stage.expect((replace(begun, since=EMBEDDED), sign), *rest)
    back = Step(
        BACK, "the control plane goes by Prometheus again", stage.bounds.heard_again_s(), AWAKE
    )
    with stage.traffic.going_on(engine.light(stage)):
        stage.expect((back, after(stage, AWAKE, signs.evaluates(Source.PROMETHEUS))))
    if stage.recovery:
        engine.recover(stage, breach, stable, since=BACK)
    engine.same_process(stage, stable)
    moved_once(stage, breach.part, stable.version)


@contextmanager
def held_still(stage: Stage, name: str) -> Generator[None]:
    """One of the stack's processes, stopped until the block ends. Raises `CannotRun`."""
    process = stage.process(name)
    try:
        with stage.damage.broken(name, lambda: let_go_on(process)):
            send(process, signal.SIGSTOP)
            yield
    except NotOurs as err:
        raise CannotRun(f"{name}: {err}; is `redline up` restarting it? Try again") from err
    stage.act(AWAKE, f"{name} goes on")


def after(stage: Stage, key: str, sign: Sign) -> Sign:
    """What was seen later than that step came."""

    def later(sight: Sight) -> Mark | None:
        mark, since = sign(sight), stage.timeline.at(key)
        late = mark is not None and since is not None and mark.at > since
        return mark if late else None

    return later


def moved_once(stage: Stage, part: Part, version: str) -> None:
    """One answer to one breach, whoever told of it."""
    lower = [rung for _, rung in signs.moves(stage.watch.sight(), part, version) if rung > 0]
    stage.never(
        len(lower) > 1, f"the ladder moved {part} of {version} down more than once: {lower}"
    )
