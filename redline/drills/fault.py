"""The drill of a rollback: A's speech is cut off, and A is taken out with proof (S4.3)."""

import time
from collections.abc import Iterator
from typing import Any

from monitors.contract import DrillKind, FaultFound, Observed, ResidentStatus
from monitors.fault_table import FaultRow, counts
from monitors.labels import Fault, Keep, Phase
from monitors.requests import RequestRecord
from redline.client import ClientError, RefusedError, ask
from redline.control.api import StartAnswer, StartOrder, VerbOrder
from redline.drills import engine, signs
from redline.drills.signs import GATEWAY, JOURNAL, Sign
from redline.drills.stage import Awaited, CannotRun, Stage
from redline.drills.timeline import BREACH, Mark, Step
from redline.drills.traffic import Kind
from redline.drills.watch import Sight
from redline.request_story import fetch_wrong
from rollout.phases import clearing
from rollout.plan import Cause
from rollout.rollback import KIND as ROLLBACK
from rollout.rollback import Stage as Proof
from rollout.rollback import Step as Rollback
from rollout.state import identity_of
from rollout.status import RolloutStatus
from rollout.store import STATE_KIND

ACTOR = "drill"
WEIGHT = 50  # percent: A is judged within seconds
CALLED = "called"
_SPOKEN = Kind(workers=2, max_tokens=6, speech=True, clip=True)
_ON_TRIAL = (Phase.PREPARE, Phase.WARMUP, Phase.CANARY)
_PREPARED_S = 60.0
_ROLLOUT = "the drill's rollout"
_QUESTION = (
    f"No version is on trial. Start a rollout that sends {WEIGHT} % of new sessions to A, whose "
    "speech will stop early?"
)


def fault(stage: Stage, *, unasked: bool, clean_up: bool) -> None:
    """Truncated speech: called by the evidence, cut over, drained, flushed, probed, quarantined."""
    _on_trial(stage, unasked=unasked)
    canary = _canary(stage)
    before = stage.observed()
    stage.begin(f"speech of {canary.version} stops early")
    traffic = _SPOKEN if stage.own_traffic else None
    with (
        stage.traffic.going_on(traffic),
        stage.injected(DrillKind.TRUNCATE, canary.name, None),
    ):
        stage.expect(*_answered(stage, canary))
    stage.damage.forget(_ROLLOUT)
    _unharmed(stage, before)
    _afterwards(stage, canary, clean_up=clean_up)


def _on_trial(stage: Stage, *, unasked: bool) -> None:
    """See that a version is on trial. A rollout that is begun here does not outlive a drill that
    ends early: nobody would watch it."""
    rollout = stage.control().rollout
    if rollout is None:
        raise CannotRun("this control plane stands by: ask the one that leads")
    if rollout.phase in _ON_TRIAL:
        return
    if not (unasked or stage.teller.confirm(_QUESTION)):
        raise CannotRun("no version is on trial: start a rollout, or let the drill do so")
    stage.damage.breaks(_ROLLOUT, lambda: _take_back(stage))
    _start(stage)


def _take_back(stage: Stage) -> str | None:
    url = f"{stage.stack.control_url}/api/rollout/rollback"
    order = VerbOrder(actor=ACTOR, argument="its drill ended early")
    try:
        ask(stage.stack, "POST", url, RolloutStatus, order, timeout_s=_PREPARED_S)
    except ClientError as err:
        left = f"{_ROLLOUT} is not rolled back ({err}); see `redline rollout status`"
        stage.tell(left)
        return left
    stage.tell(f"{_ROLLOUT} is rolled back")
    return None


def _canary(stage: Stage) -> ResidentStatus:
    """A with its weight."""
    stage.await_first(_serving, _PREPARED_S, "waits until A has its weight")
    observed = stage.observed()
    return next(one for one in observed.residents if one.name == observed.canary)


def _start(stage: Stage) -> None:
    order = StartOrder(actor=ACTOR, weight=WEIGHT)
    url = f"{stage.stack.control_url}/api/rollout/start"
    try:
        plan = ask(stage.stack, "POST", url, StartAnswer, order).plan
    except RefusedError as err:
        stage.damage.forget(_ROLLOUT)
        raise CannotRun(str(err)) from err
    except ClientError as err:
        raise CannotRun(str(err)) from err
    stage.tell(f"a rollout is started: {plan.version} gets {plan.weight} % of new sessions")


def _serving(sight: Sight) -> Mark | None:
    observed = sight.observed
    if observed is None or observed.canary_weight == 0:
        return None
    return Mark(sight.wall, f"A at {observed.canary_weight} %", signs.DATA_PLANE)


# ---------------------------------------------------------------- what rollback.md says
def _answered(stage: Stage, canary: ResidentStatus) -> tuple[Awaited, ...]:
    bounds, version = stage.bounds, canary.version
    breach = Step(BREACH, f"an answer of {version} is at fault", bounds.called_s())
    called = Step(CALLED, "the evidence calls the breach", bounds.called_s(), BREACH)
    rest = (
        (Rollback.CUT_OVER, "all new sessions go to B", bounds.cut_over_s(), CALLED),
        (Rollback.DRAIN, "nothing of A is in flight", bounds.drained_s(), Rollback.CUT_OVER),
        (Rollback.FLUSH, "A's pool is emptied, with a receipt", bounds.flushed_s(), Rollback.DRAIN),
        (Rollback.VERIFY, "a probe misses: nothing survives", bounds.flushed_s(), Rollback.FLUSH),
        (Rollback.QUARANTINE, "A may not start again", bounds.flushed_s(), Rollback.VERIFY),
        (Rollback.DONE, "only now: rolled back", bounds.flushed_s(), Rollback.QUARANTINE),
    )
    return (
        (breach, _at_fault(stage, version)),
        (called, _called(canary)),
        *((Step(step, what, s, since), _proved(step, canary)) for step, what, s, since in rest),
    )


def _at_fault(stage: Stage, version: str) -> Sign:
    """The first fault, at the moment the gateway found it, once the table shows one."""
    began = time.time()

    def sign(sight: Sight) -> Mark | None:
        rows = () if sight.tables is None else sight.tables.faults
        if not any(_truncated(row, version) for row in rows):
            return None
        records = fetch_wrong(stage.stack, Keep.FAULT)
        found = (one for record in records for one in _faults(record, version) if one.at > began)
        return min(found, key=lambda mark: mark.at, default=None)

    return sign


def _truncated(row: FaultRow, version: str) -> bool:
    return (row.version, row.fault) == (version, Fault.SPEECH_TRUNCATED) and row.faulted > 0


def _faults(record: RequestRecord, version: str) -> Iterator[Mark]:
    """What the drill does to A, and nothing else that may be wrong with it."""
    for leg in record.legs:
        for noted in leg.noted:
            found = noted.body
            if leg.version != version or not isinstance(found, FaultFound) or not counts(found):
                continue
            if found.fault is Fault.SPEECH_TRUNCATED:
                told = f"{found.fault}: {found.detail}"
                yield Mark(record.received + noted.at_s, told, GATEWAY)


def _called(canary: ResidentStatus) -> Sign:
    """The state that carries the order of this rollback."""

    def sign(sight: Sight) -> Mark | None:
        for line in sight.journal:
            body: Any = line.body
            if line.kind == STATE_KIND and _is_for(body["state"].get("order"), canary):
                return Mark(line.wall, line.story or line.kind, JOURNAL)
        return None

    return sign


def _proved(step: Rollback, canary: ResidentStatus) -> Sign:
    def sign(sight: Sight) -> Mark | None:
        for line in sight.journal:
            body: Any = line.body
            if line.kind != ROLLBACK or not _is_for(body["progress"]["order"], canary):
                continue
            if (body["step"], body["stage"]) == (step, Proof.PROVED):
                return Mark(line.wall, line.story or line.kind, JOURNAL)
        return None

    return sign


def _is_for(order: dict[str, Any] | None, canary: ResidentStatus) -> bool:
    """Whether it takes this canary out, and for its faults."""
    if order is None:
        return False
    wanted = canary.name, identity_of(canary), Cause.FAULTS
    return (order["canary"], order["identity"], order["cause"]) == wanted


# ---------------------------------------------------------------- afterwards
def _unharmed(stage: Stage, before: Observed) -> None:
    """B serves all, as the same process with the same pool."""
    was = next(one for one in before.residents if one.name == before.stable)
    now = engine.same_process(stage, was)
    stage.never(now.weight != 100, f"{was.version} should serve all, and has {now.weight} %")


def _afterwards(stage: Stage, canary: ResidentStatus, *, clean_up: bool) -> None:
    digest = canary.weights_digest or "DIGEST"
    if not clean_up:
        stage.tell(f"{canary.version} stays under quarantine, until")
        stage.tell(f"  {clearing(digest)}")
        return
    url = f"{stage.stack.control_url}/api/rollout/clear-quarantine"
    ask(stage.stack, "POST", url, RolloutStatus, VerbOrder(actor=ACTOR, argument=digest))
    stage.tell(f"{canary.version} is no longer under quarantine")
