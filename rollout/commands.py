"""What an operator may ask of a rollout, as pure functions: a decision, a state, or a refusal."""

import msgspec

from monitors.contract import Observed, ResidentStatus
from monitors.labels import Phase
from rollout import promotion
from rollout.phases import clearing, quarantine_words
from rollout.plan import ALL, Cause, RolloutPlan
from rollout.sequential import Numbers, Verdict
from rollout.state import OR_BACK_TO_0, Decision, RolloutState, Signals, identity_of

_HOLDABLE = frozenset({Phase.PREPARE, Phase.WARMUP, Phase.CANARY, Phase.PROMOTING})
_PROMOTABLE = frozenset({Phase.CANARY, Phase.PROMOTING, Phase.HOLD})


class CommandRefused(RuntimeError):
    """A command that the rollout's state does not allow; the message says what would."""


class ModelNotLoaded(CommandRefused):
    """What is refused is the model that A should load; A is as it was."""


def start(state: RolloutState, plan: RolloutPlan, observed: Observed) -> RolloutState:
    """Begin `plan`. Raises `CommandRefused` where another is under way or the plan cannot be."""
    if state.frozen:
        raise CommandRefused("frozen: unfreeze first")
    if state.under_way or state.phase is Phase.ROLLING_BACK:
        raise CommandRefused(
            f"a rollout is in {state.phase}: promote it, roll it back or wait for its end"
        )
    if observed.stable != plan.stable:
        raise CommandRefused(f"{observed.stable!r} is stable now, not {plan.stable!r}: plan anew")
    canary = resident_of(observed, plan.canary)
    if plan.model is None and canary.version != plan.version:
        raise CommandRefused(f"{plan.canary!r} is {canary.version}, not {plan.version}: plan anew")
    identity = None if plan.model is not None else identity_of(canary)
    if identity in state.quarantined:
        raise CommandRefused(
            f"{identity} is under quarantine; `{clearing(identity)}` lets it serve again"
        )
    return RolloutState(
        phase=Phase.PREPARE,
        plan=plan,
        identity=identity,
        quarantined=state.quarantined,
        reasons=("waits until both residents can serve",),
    )


def resident_of(observed: Observed, name: str) -> ResidentStatus:
    """One resident's status. Raises `CommandRefused` for a name that the data plane lacks."""
    for resident in observed.residents:
        if resident.name == name:
            return resident
    there = ", ".join(resident.name for resident in observed.residents)
    raise CommandRefused(f"no resident is called {name!r}; there are: {there}")


def promote(state: RolloutState, signals: Signals, numbers: tuple[Numbers, ...]) -> Decision:
    """To the next share now. Time may be cut short, evidence and B's capacity may not."""
    if state.frozen:
        raise CommandRefused("frozen: unfreeze first")
    plan = state.plan
    if plan is None or state.phase not in _PROMOTABLE or not state.weight or state.promoted:
        raise CommandRefused(f"only a canary with traffic can be promoted; this is {state.phase}")
    if not (signals.fresh and signals.canary_ready):
        raise CommandRefused("the evidence log does not answer, or A is not ready")
    if state.judged_from is None:
        raise CommandRefused("A warms up, judged on faults alone: resume, and wait for the lines")
    if signals.judgement.verdict is not Verdict.PASS:
        raise CommandRefused(f"not enough evidence of health yet: {_lacking(numbers)}")
    weight = plan.after(state.weight)
    if weight == ALL and not signals.stable_ready:
        raise CommandRefused("B is not ready: A may not serve everybody without a way back")
    if promotion.unproved(weight, signals.capacity):
        raise CommandRefused(f"A may not have {weight} % yet: {signals.capacity.words}")
    return Decision(phase=Phase.PROMOTING, weight=weight, reasons=("promoted by hand",))


def _lacking(numbers: tuple[Numbers, ...]) -> str:
    """Which lines have yet to pass: those on which A shows something, if there are any."""
    lacking = [each for each in numbers if each.verdict is not Verdict.PASS]
    seen = [each for each in lacking if each.n] or lacking
    return "; ".join(
        f"{each.line}: {each.events:g} of {each.n} requests, E of health {each.pass_e:.2g} of "
        f"{each.pass_threshold:,.0f}"
        for each in seen
    )


def hold(state: RolloutState) -> Decision:
    """Stay at this weight; a breach still rolls back, and a whole bake's wait ends it."""
    if state.phase not in _HOLDABLE or state.promoted:
        raise CommandRefused(f"nothing to hold in {state.phase}")
    words = "held by hand" if not state.weight else f"held by hand; {OR_BACK_TO_0}"
    return Decision(phase=Phase.HOLD, weight=state.weight, reasons=(words,))


def resume(state: RolloutState, signals: Signals) -> Decision:
    """Go on where the hold began, with that step's time from its start and the evidence kept.

    A promotion whose canary went to 0 meanwhile begins again at the bake.
    """
    if state.frozen:
        raise CommandRefused("frozen: unfreeze first")
    plan = state.plan
    if state.phase is not Phase.HOLD or plan is None or state.held_from is None:
        raise CommandRefused(f"nothing to resume in {state.phase}: start anew")
    if signals.identity in state.quarantined:
        raise CommandRefused(quarantine_words(signals))
    if state.held_from is Phase.PREPARE and not state.promoted:
        return Decision(phase=Phase.PREPARE, weight=0, reasons=("resumed by hand",))
    if not (signals.fresh and signals.canary_ready and signals.stable_ready):
        raise CommandRefused("both residents and the evidence log must answer first")
    phase, weight = _resumed(state, plan)
    if weight > state.weight and promotion.unproved(weight, signals.capacity):
        raise CommandRefused(f"A may not have {weight} % yet: {signals.capacity.words}")
    return Decision(phase=phase, weight=weight, reasons=("resumed by hand",))


def _resumed(state: RolloutState, plan: RolloutPlan) -> tuple[Phase, int]:
    if state.promoted:
        return Phase.BAKE, 0
    if state.held_from is Phase.PROMOTING and state.weight:
        return Phase.PROMOTING, state.weight
    return (Phase.WARMUP if state.held_from is Phase.WARMUP else Phase.CANARY), plan.weight


def roll_back(
    state: RolloutState, cause: Cause, reason: str, *, quarantine: bool = True
) -> Decision:
    """Take A out, from any state in which it is A's turn, or call it off before. A person's reason
    needs no evidence: `quarantine` is what an alert's may lack, where B is past the same line."""
    if state.given_nobody:
        words = "called off before A had traffic; what it loads by now it goes on loading"
        return Decision(phase=Phase.IDLE, weight=0, reasons=(reason, words))
    if state.plan is None or not (state.serves or state.phase is Phase.STABLE):
        raise CommandRefused(f"no version is on its way in {state.phase}: nothing to roll back")
    return Decision(
        phase=Phase.ROLLING_BACK, weight=0, reasons=(reason,), cause=cause, quarantine=quarantine
    )


def clear_quarantine(state: RolloutState, identity: str) -> RolloutState:
    """Let a version serve again. Where it is the last one that went, its rollout is over."""
    if identity not in state.quarantined:
        known = ", ".join(state.quarantined) or "none"
        raise CommandRefused(f"{identity!r} is not under quarantine; there are: {known}")
    left = tuple(one for one in state.quarantined if one != identity)
    reasons = (f"the quarantine of {identity} was cleared by hand",)
    over = state.phase is Phase.QUARANTINED and identity == state.identity
    phase = Phase.IDLE if over else state.phase
    return msgspec.structs.replace(state, phase=phase, quarantined=left, reasons=reasons)
