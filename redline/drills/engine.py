"""Drills of the ladder: an engine is made slow, or short of memory, and fidelity is lowered."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from alerts.firing import Source
from alerts.names import AlertName
from alerts.parts import Part
from alerts.rule import Rule
from monitors.contract import DrillKind, KvRung, ResidentStatus
from monitors.rungs import shown
from redline.drills import signs
from redline.drills.bounds import Bounds
from redline.drills.stage import Awaited, CannotRun, Stage
from redline.drills.timeline import BREACH, Step
from redline.drills.traffic import Kind, Probe

PENDING, FIRING, WEBHOOK, ACTION, EFFECT = "pending", "firing", "webhook", "action", "effect"
TOLD, SMALLER = "told", "smaller"
MENDED, QUIET, EASED, RECOVERY, FULL = "mended", "quiet", "eased", "recovery", "full"

_SMALLER = 0.75  # of the bytes it had: int8 is half, and its scales and newest pages are not
_SLOWER = 1.1  # than the line: every first output is past it
_MOST_SLOW_S = 10.0  # a step; more an engine refuses
_FEW = 20  # requests of a window that two workers fill


@dataclass(frozen=True)
class Breach:
    """What a drill of the ladder breaks, and which answer it expects."""

    alert: AlertName
    part: Part
    kind: DrillKind
    amount: float | None  # None: the injection's own
    traffic: Kind


def slow(stage: Stage) -> Breach:
    """S4.2: every engine step alone takes longer than the degrade line."""
    latency = stage.lines.latency
    amount = _SLOWER * latency.degrade_s
    if amount > _MOST_SLOW_S:
        raise CannotRun(f"an engine can be made {_MOST_SLOW_S:g} s slow, not {amount:g} s")
    workers = 4 if latency.min_count < _FEW else 8
    return Breach(
        AlertName.LATENCY_DEGRADE, Part.MEDIA, DrillKind.SLOW, amount, Kind(workers=workers)
    )


def pressure(_: Stage) -> Breach:
    """S4.1: most of the pool is pinned, so that clips miss what they attend to."""
    traffic = Kind(workers=2, max_tokens=6, speech=True, clip=True)
    return Breach(AlertName.CACHE_BELOW_FLOOR, Part.KV, DrillKind.PRESSURE, None, traffic)


def light(stage: Stage) -> Kind | None:
    """Traffic that shows whether it is quiet again."""
    return Kind(workers=1, pause_s=0.5) if stage.own_traffic else None


def at_full(stage: Stage, breach: Breach) -> ResidentStatus:
    """The stable resident, where nothing stands in the way of a drill on it."""
    stable, control = stage.stable(), stage.control()
    if signs.rung(stable.level, breach.part):
        raise CannotRun(
            f"{stable.version} is at {shown(stable.level)} already: see `redline status`, and wait "
            "until it is back"
        )
    if any(one.alert == breach.alert for one in control.firing or ()):
        raise CannotRun(f"{breach.alert} fires already: its runbook comes before any drill")
    return stable


@contextmanager
def broken(stage: Stage, breach: Breach, name: str) -> Generator[None]:
    """The injection, under traffic that shows it."""
    with stage.traffic.going_on(breach.traffic if stage.own_traffic else None):
        with stage.injected(breach.kind, name, breach.amount):
            yield
        stage.act(MENDED, "the injection is ended")


# ---------------------------------------------------------------- what the runbook says
def answered(stage: Stage, breach: Breach, version: str) -> tuple[Awaited, ...]:
    """From the breach to the level, by whoever evaluates the rules now; the breach comes first."""
    bounds, rule = stage.bounds, stage.rule(breach.alert)
    seen = Step(BREACH, f"{breach.alert} holds in the tables", bounds.breach_s())
    by_prometheus = stage.control().rule_source == Source.PROMETHEUS
    known = WEBHOOK if by_prometheus else FIRING
    acted: tuple[Awaited, ...] = (
        (
            Step(ACTION, f"the ladder lowers {breach.part} of {version}", bounds.action_s(), known),
            signs.lowered(breach.part, version),
        ),
        (
            Step(EFFECT, f"the data plane holds {version} there", bounds.effect_s(), ACTION),
            signs.held(breach.part, version),
        ),
    )
    alerted = (
        _by_prometheus(stage, rule, version) if by_prometheus else _here(bounds, rule, version)
    )
    return (seen, signs.breach(rule, version)), *alerted, *acted


def _by_prometheus(stage: Stage, rule: Rule, version: str) -> Iterator[Awaited]:
    """Of Prometheus and Alertmanager only what is known to listen somewhere is asked."""
    bounds, name, stack = stage.bounds, rule.name, stage.stack
    fires_s = bounds.firing_s(rule.for_s)
    if stack.prometheus_url is not None:
        sees = Step(PENDING, f"Prometheus sees {name}", bounds.pending_s(), BREACH)
        yield sees, signs.pending(name, version)
    if stack.alertmanager_url is not None:
        fires = Step(FIRING, f"{name} fires at Alertmanager", fires_s, BREACH)
        yield fires, signs.firing(name, version)
    # Not after `firing`: where Prometheus was silent a while ago the control plane's own
    # evaluation has a say still, and may be first.
    told = Step(WEBHOOK, "the control plane is told", fires_s + bounds.webhook_s(), BREACH)
    yield told, signs.heard(name, version)


def _here(bounds: Bounds, rule: Rule, version: str) -> Iterator[Awaited]:
    what = f"{rule.name} fires, by the control plane's own rules"
    fires = Step(FIRING, what, bounds.firing_s(rule.for_s), BREACH)
    yield fires, signs.heard(rule.name, version)


def recover(stage: Stage, breach: Breach, was: ResidentStatus, since: str = MENDED) -> None:
    """Wait until all is as it was, and say how long that takes. `since`: the step from which on
    quiet can be seen."""
    version, bounds = was.version, stage.bounds
    with stage.traffic.going_on(light(stage)):
        dwell_s = stage.dwell_left_s(breach.part, version)
        stage.tell(f"recovery takes the dwell: {dwell_s:.0f} s of quiet")
        quiet = Step(QUIET, f"{breach.alert} is resolved", bounds.quiet_s(), since)
        back = f"the ladder goes back after {dwell_s:.0f} s"
        eased = Step(EASED, back, bounds.eased_s(dwell_s), QUIET)
        stage.expect(
            (quiet, signs.resolved(breach.alert, version)),
            (eased, signs.eased(breach.part, version)),
        )
        within_s = bounds.effect_s() + _others_s(stage, was)
        whole = Step(RECOVERY, f"all of {version} is as it was", within_s, EASED)
        stage.expect((whole, signs.restored(was)))


def _others_s(stage: Stage, was: ResidentStatus) -> float:
    """For parts that the drill brought down beside its own: each rung takes a dwell of quiet."""
    rungs = {
        each.part: each.rung - signs.rung(was.level, each.part)
        for each in stage.ladder(was.version).parts
    }
    dwell_s = stage.lines.ladder.dwell_s
    return sum(
        down * stage.bounds.eased_s(max(dwell_s, stage.dwell_left_s(part, was.version)))
        for part, down in rungs.items()
        if down > 0
    )


def same_process(stage: Stage, was: ResidentStatus) -> ResidentStatus:
    """See that its engine lived through the drill: a fresh one is quick and empty, whatever the
    system answered. Returns how it is now."""
    now = next(one for one in stage.observed().residents if one.name == was.name)
    stage.never(
        (now.pid, now.pool_epoch) != (was.pid, was.pool_epoch),
        f"{was.version} should be the same process with its pool: pid {was.pid} -> {now.pid}, "
        f"pool epoch {was.pool_epoch} -> {now.pool_epoch}",
    )
    return now


# ---------------------------------------------------------------- the two drills
def latency(stage: Stage) -> None:
    """Slow steps: video at 360p and audio at 8 kHz, and back (S4.2)."""
    breach = slow(stage)
    stable = at_full(stage, breach)
    before = stage.traffic.probe()
    stage.begin(f"every step of {stable.version} takes {breach.amount:g} s longer")
    with broken(stage, breach, stable.name):
        stage.expect(*answered(stage, breach, stable.version))
    within_s = stage.bounds.proof_s()
    told = Step(
        TOLD, "a client is told its rung, and its clip takes fewer tokens", within_s, EFFECT
    )
    stage.prove(told, lambda probe: _fewer(probe, before))
    if stage.recovery:
        recover(stage, breach, stable)
        full = Step(FULL, "a clip takes all its tokens again", within_s, RECOVERY)
        stage.prove(full, lambda probe: _as_many(probe, before))
    same_process(stage, stable)


def _fewer(probe: Probe, before: Probe) -> str | None:
    if "media=" not in probe.level or probe.tokens is None or before.tokens is None:
        return None
    if probe.tokens >= before.tokens:
        return None
    return f"{probe.level}: {probe.tokens} prompt tokens, before {before.tokens}"


def _as_many(probe: Probe, before: Probe) -> str | None:
    if "media=" in probe.level or probe.tokens != before.tokens:
        return None
    return f"{probe.level}: {probe.tokens} prompt tokens"


def cache(stage: Stage) -> None:
    """A pool full of live pages: they turn to int8, and new ones are native later (S4.1)."""
    breach = pressure(stage)
    stable = at_full(stage, breach)
    stage.begin(f"most of the pool of {stable.version} is pinned")
    with broken(stage, breach, stable.name):
        begun, *rest = answered(stage, breach, stable.version)
        stage.expect(begun)
        held = signs.live_gb(stage.watch.sight(), stable.version)
        if held is None:
            raise CannotRun(f"{stable.version} does not say what its pool holds")
        stage.expect(*rest)
        smaller = Step(SMALLER, "the live pages take fewer bytes", stage.bounds.proof_s(), EFFECT)
        stage.expect((smaller, signs.pool_below(stable.version, _SMALLER * held)))
    if stage.recovery:
        recover(stage, breach, stable)
        full = Step(FULL, "pages are written native again", stage.bounds.proof_s(), RECOVERY)
        stage.prove(full, _native)
    same_process(stage, stable)


def _native(probe: Probe) -> str | None:
    written = probe.record.legs[-1].kv if probe.record.legs else None
    return "a request's pages are native" if written is KvRung.NATIVE else None
