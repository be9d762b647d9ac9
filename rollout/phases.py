"""The rollout's state machine: pure. What was seen goes in, the next move comes out (DESIGN 8)."""

import shlex

import msgspec

from monitors.contract import Epoch
from monitors.labels import Phase
from monitors.preparing import Loading, LoadStage
from rollout import promotion
from rollout.plan import ALL, Cause, ModelToLoad, RolloutPlan, cause_of
from rollout.rollback import Progress, RollbackOrder
from rollout.sequential import Numbers, Verdict
from rollout.state import (
    AS_CANARY,
    OR_BACK_TO_0,
    Decision,
    RolloutState,
    Signals,
    better_known,
    hold,
    stay,
)

_MODEL_REFUSED = "the new model is refused"
PATIENCE_S = 5.0  # with an A that serves all and is not ready: both may just be starting
_JUDGED = frozenset({Phase.CANARY, Phase.PROMOTING, Phase.BAKE})  # on every line


def decide(state: RolloutState, signals: Signals, phase_s: float) -> Decision:
    """The next move, `phase_s` seconds after the last one. A breach goes before everything."""
    plan = state.plan
    if plan is None or not (state.serves or state.phase is Phase.PREPARE):
        return stay(state, *state.reasons)
    if state.serves and signals.judgement.verdict is Verdict.BREACH:
        return _roll_back(plan, signals)
    retreat = _retreat(state, plan, signals, phase_s)
    if retreat is not None:
        return retreat
    if state.frozen:
        return stay(state, "frozen: only moves toward the stable version are made")
    return _advance(state, plan, signals, phase_s)


def apply(
    state: RolloutState,
    decision: Decision,
    *,
    next_epoch: Epoch,
    identity: str | None,
    actor: str,
    requests: int = 0,
) -> RolloutState:
    """The state after a decision; `next_epoch` is spent when the route changes with it.

    `requests`: that A has finished so far.
    """
    here = (decision.phase, decision.weight) == (state.phase, state.weight)
    moved = msgspec.structs.replace(
        state,
        phase=decision.phase,
        weight=decision.weight,
        promoted=decision.phase in (Phase.BAKE, Phase.STABLE)
        or (decision.phase is Phase.PROMOTING and decision.weight == ALL),
        requests_before=state.requests_before if here else requests,
        by_hand=False,
        alarm=decision.alarm or state.alarm,
        held_from=_held_from(state, decision),
        identity=better_known(state.identity, identity),
        reasons=decision.reasons,
    )
    if decision.phase is Phase.ROLLING_BACK:
        return msgspec.structs.replace(moved, order=_order(moved, decision, next_epoch, actor))
    ends_warmup = decision.phase in _JUDGED and state.judged_from is None
    if moved.route is None or (moved.route == state.route and not ends_warmup):
        return moved
    return msgspec.structs.replace(
        moved,
        route_epoch=next_epoch,
        warm_from=next_epoch if moved.warm_from is None else moved.warm_from,
        judged_from=next_epoch if ends_warmup else moved.judged_from,
    )


def settled(state: RolloutState, progress: Progress) -> RolloutState:
    """The state after a rollback is done: A under quarantine, or held where the cause is shared."""
    order = progress.order
    barred = {order.identity} if order.quarantine and order.identity else set[str]()
    return RolloutState(
        phase=Phase.QUARANTINED if barred else Phase.HOLD,
        frozen=state.frozen,
        route_epoch=progress.route_epoch or state.route_epoch,
        identity=order.identity,
        quarantined=tuple(sorted(barred.union(state.quarantined))),
        reasons=order.reasons,
    )


def _order(state: RolloutState, decision: Decision, epoch: Epoch, actor: str) -> RollbackOrder:
    if state.plan is None or decision.cause is None:
        raise ValueError("a rollback needs a rollout and a cause")
    return RollbackOrder(
        stable=state.plan.stable,
        canary=state.plan.canary,
        identity=state.identity,
        cause=decision.cause,
        quarantine=decision.quarantine,
        actor=actor,
        reasons=decision.reasons,
        route_epoch=epoch,
        drain_s=state.plan.drain_s,
    )


def _held_from(state: RolloutState, decision: Decision) -> Phase | None:
    if decision.phase is not Phase.HOLD:
        return None
    return state.held_from if state.phase is Phase.HOLD else state.phase


def _roll_back(plan: RolloutPlan, signals: Signals) -> Decision:
    """Faults, where they are among the causes, decide what becomes of the streams in flight. That B
    cannot serve stops nothing: a version past its line is not kept for want of another."""
    judgement = signals.judgement
    found = (*judgement.breaches, *judgement.levels)
    causes = [cause_of(each.line) for each in found]
    nobody = signals.way_back is False
    return Decision(
        phase=Phase.ROLLING_BACK,
        weight=0,
        reasons=(
            *(in_words(numbers) for numbers in judgement.breaches),
            *(level.in_words() for level in judgement.levels),
            *((f"{plan.stable!r} is not ready: nobody is served until it is",) * nobody),
        ),
        cause=Cause.FAULTS if Cause.FAULTS in causes else causes[0],
        quarantine=judgement.quarantine,
    )


def in_words(numbers: Numbers) -> str:
    """One line's figures as a sentence for the journal and the page."""
    return (
        f"{numbers.line}: {numbers.events:g} of {numbers.n} requests where the line is "
        f"{numbers.limit:.2%}; E {numbers.e:.3g}, breach at {numbers.threshold:.3g}"
    )


def _retreat(
    state: RolloutState, plan: RolloutPlan, signals: Signals, phase_s: float
) -> Decision | None:
    """Away from A without a verdict on it: nobody can see, or nobody came to decide."""
    if state.promoted:
        return _give_back(state, plan, signals)
    if state.phase not in AS_CANARY or not state.weight:
        return None
    if not signals.fresh:
        return hold(0, "the evidence log does not answer: A cannot be judged")
    if signals.canary_died or signals.canary_ready is False:
        return hold(0, f"{plan.canary!r} is not ready or its engine died")
    if signals.stable_ready is False:
        return hold(0, f"{plan.stable!r} is not ready: A may not serve without a way back")
    if state.phase is Phase.HOLD and phase_s >= plan.bake_s:
        return hold(0, "held for a whole bake: back to the stable version")
    return None


def _give_back(state: RolloutState, plan: RolloutPlan, signals: Signals) -> Decision | None:
    """Everybody to B again, which is ready, where A serves all and cannot."""
    gone = signals.canary_died or signals.canary_away_s >= PATIENCE_S
    if state.phase is Phase.HOLD or not (gone and signals.stable_ready):
        return None
    return hold(0, f"{plan.canary!r} is not ready or its engine died: {plan.stable!r} serves all")


def _advance(state: RolloutState, plan: RolloutPlan, signals: Signals, phase_s: float) -> Decision:
    match state.phase:
        case Phase.PREPARE:
            return _prepare(state, plan, signals)
        case Phase.WARMUP:
            warm = signals.judgement.requests >= plan.warmup_requests or phase_s >= plan.warmup_s
            if warm and signals.routed:
                return Decision(phase=Phase.CANARY, weight=plan.weight, reasons=("A is warm",))
            return stay(state, "A warms up; only faults are judged")
        case Phase.CANARY if phase_s >= plan.bake_s:
            return _end_of_bake(plan, signals)
        case Phase.CANARY:
            return stay(state, "A is judged on every line")
        case Phase.PROMOTING:
            return promotion.go_on(state, plan, signals, phase_s)
        case Phase.BAKE:
            return _bake(state, plan, signals, phase_s)
        case _:
            return stay(state, *state.reasons)


def refused(why: str) -> Decision:
    """The end of a rollout whose model the data plane will not load."""
    return Decision(phase=Phase.IDLE, weight=0, reasons=(f"{_MODEL_REFUSED}: {why}",))


def refuses_model(reasons: tuple[str, ...]) -> bool:
    """Whether a rollout ended for these reasons as `refused` does, and was not called off."""
    return any(reason.startswith(_MODEL_REFUSED) for reason in reasons)


def _load(state: RolloutState, model: ModelToLoad, loading: Loading | None) -> Decision | None:
    """What follows from how far A's new model is; None: it is in."""
    stage = None if loading is None else loading.stage
    if loading is None or stage is None:
        return stay(state, f"A is to load {model.checkpoint}")
    if stage is LoadStage.REFUSED:
        return refused(loading.detail)
    if stage is LoadStage.LOADED:
        return None
    read = "" if loading.read is None else f", {loading.read:.0%} read"
    return stay(state, f"A loads {model.checkpoint}: {stage}{read}")


def _prepare(state: RolloutState, plan: RolloutPlan, signals: Signals) -> Decision:
    loads = None if plan.model is None else _load(state, plan.model, signals.loading)
    if loads is not None:
        return loads
    waiting = [
        name
        for name, ready in (
            (plan.canary, signals.canary_ready),
            (plan.stable, signals.stable_ready),
        )
        if not ready
    ]
    if waiting:
        return stay(state, f"waits until {' and '.join(waiting)} can serve")
    if signals.identity in state.quarantined:
        return Decision(phase=Phase.QUARANTINED, weight=0, reasons=(quarantine_words(signals),))
    if signals.alarm is None and signals.alarm_lack is None:
        return stay(state, "a breach is rehearsed, to prove the alarm path")
    if signals.alarm is None:
        lack = f"the alarm path is not proved: {signals.alarm_lack}"
        return msgspec.structs.replace(stay(state, lack), noted=True)
    if promotion.unproved(plan.weight, signals.capacity):
        return stay(state, f"A does not get {plan.weight} % yet: {signals.capacity.words}")
    return Decision(
        phase=Phase.WARMUP,
        weight=plan.weight,
        reasons=("both residents are ready", signals.alarm.words),
        alarm=signals.alarm,
    )


def wants_alarm(state: RolloutState, signals: Signals) -> bool:
    """Whether nothing but a rehearsed breach is missing before A may have traffic."""
    prepares = state.phase is Phase.PREPARE and not state.frozen
    barred = signals.identity in state.quarantined
    return prepares and signals.both_ready and not barred and signals.alarm is None


def _bake(state: RolloutState, plan: RolloutPlan, signals: Signals, phase_s: float) -> Decision:
    """A serves all. An hour without a request proves nothing, nor does one without a way back."""
    if signals.stable_ready is False:
        no_way_back = f"{plan.stable!r} is not ready: there is no way back, mend it or start it"
        return msgspec.structs.replace(stay(state, no_way_back), noted=True)
    if phase_s < plan.bake_s:
        return stay(state, f"A serves everybody; {plan.stable!r} is the way back")
    well = signals.judgement.verdict is Verdict.PASS and promotion.served(state, signals)
    if well and signals.fresh and signals.both_ready:
        return Decision(phase=Phase.STABLE, weight=0, reasons=("A kept its lines",))
    return stay(state, "the bake waits for evidence that A is well with everybody")


def clearing(identity: str) -> str:
    """The command that lifts a quarantine; an identity that is no digest has a space in it."""
    return f"redline rollout clear-quarantine {shlex.quote(identity)}"


def quarantine_words(signals: Signals) -> str:
    return f"{signals.identity} is under quarantine; clear it by hand if it may serve again"


def _end_of_bake(plan: RolloutPlan, signals: Signals) -> Decision:
    """Promotion needs evidence of health; the absence of an alarm is none."""
    judgement = signals.judgement
    if judgement.verdict is Verdict.PASS:
        return promotion.onward(plan, plan.weight, signals.capacity, "every line passed")
    return hold(
        plan.weight,
        f"the bake ended after {judgement.requests} requests on A without enough evidence of "
        f"health; {OR_BACK_TO_0}",
    )
