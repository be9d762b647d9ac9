"""How A's share grows once its bake has passed: step by step, each of them judged (DESIGN 8)."""

from monitors.client_key import EVERYBODY
from monitors.labels import Phase
from rollout.capacity import UNPROVED, Capacity
from rollout.plan import ALL, RolloutPlan
from rollout.sequential import Verdict
from rollout.state import OR_BACK_TO_0, Decision, RolloutState, Signals, hold, stay


def onward(plan: RolloutPlan, weight: int, capacity: Capacity, why: str) -> Decision:
    """To the share after `weight`; held where B cannot be shown to be able to take it all back, and
    where clients would get A that it was kept from."""
    after = plan.after(weight)
    if after == ALL and plan.audience.clients != EVERYBODY:
        return hold(
            weight,
            f"A stays at {weight} %: its lists keep some clients from it, and the next step is for "
            f"all; promote it by hand if they may have it. {OR_BACK_TO_0}",
        )
    if unproved(after, capacity):
        return hold(weight, f"A stays at {weight} %: {capacity.words}; {OR_BACK_TO_0}")
    return Decision(phase=Phase.PROMOTING, weight=after, reasons=(why,))


def unproved(weight: int, capacity: Capacity) -> bool:
    """Whether A may not have this share, for want of a B that can take everything."""
    return weight > UNPROVED and not capacity.proved


def go_on(state: RolloutState, plan: RolloutPlan, signals: Signals, phase_s: float) -> Decision:
    """The next move of a promotion, `phase_s` seconds after the last one."""
    if state.weight == ALL:
        if signals.routed:
            return Decision(phase=Phase.BAKE, weight=0, reasons=("A serves everybody",))
        return stay(state, "A is given everybody")
    step = plan.step_of(state.weight)
    least_s = plan.bake_s if step is None else step.least_s
    if phase_s < least_s or not signals.routed:
        return stay(state, f"A stands {state.weight} %; every line judges it")
    may_wait = phase_s < max(least_s, plan.bake_s)
    if _has_stood(state, plan, signals):
        if may_wait and plan.after(state.weight) > UNPROVED and signals.capacity.needed is None:
            return stay(state, f"A stays at {state.weight} %: {signals.capacity.words}")
        if plan.after(state.weight) == ALL and not signals.both_ready:
            return stay(state, f"A stays at {state.weight} % until both are seen to be ready")
        why = f"A kept every line at {state.weight} %"
        return onward(plan, state.weight, signals.capacity, why)
    if may_wait:
        return stay(state, f"at {state.weight} % there is not enough evidence of health yet")
    return hold(
        state.weight,
        f"{served(state, signals)} requests on A at {state.weight} % were not enough evidence of "
        f"health; {OR_BACK_TO_0}",
    )


def served(state: RolloutState, signals: Signals) -> int:
    """Requests that A finished since it came to its present share."""
    return max(0, signals.judgement.requests - state.requests_before)


def _has_stood(state: RolloutState, plan: RolloutPlan, signals: Signals) -> bool:
    """Whether A showed at this very share that it is well, not only at smaller ones."""
    step = plan.step_of(state.weight)
    least = 1 if step is None else step.least_requests
    return signals.judgement.verdict is Verdict.PASS and served(state, signals) >= least
