"""The rollout's state machine: pure. What was seen goes in, the next move comes out (DESIGN 8)."""

import msgspec

from monitors.contract import Epoch, Name, Observed, Percent, ResidentStatus, Route, Wire
from monitors.labels import Phase, ResidentState
from rollout.audience import ANYBODY, Audience
from rollout.fold import Judgement
from rollout.plan import Cause, RolloutPlan, cause_of
from rollout.rollback import Progress, RollbackOrder
from rollout.sequential import Numbers, Verdict

_FORWARD = frozenset({Phase.WARMUP, Phase.CANARY, Phase.PROMOTING, Phase.BAKE, Phase.STABLE})
_AS_CANARY = frozenset({Phase.WARMUP, Phase.CANARY, Phase.PROMOTING, Phase.HOLD})
_UNDER_WAY = _AS_CANARY | {Phase.PREPARE, Phase.BAKE}


class RolloutState(Wire, frozen=True):
    """Where the rollout is. All of it is journalled before it is acted on."""

    phase: Phase = Phase.IDLE
    plan: RolloutPlan | None = None
    weight: Percent = 0  # A's share while it is the canary
    promoted: bool = False  # the roles are swapped: A is the route's stable one
    held_from: Phase | None = None  # in HOLD: where `resume` goes; None: nowhere
    frozen: bool = False
    route_epoch: Epoch = 0  # of the newest route ordered here
    warm_from: Epoch | None = None  # the first route epoch under which A served
    judged_from: Epoch | None = None  # the first one after its warm-up
    identity: str | None = None  # A's weights digest, else its version
    order: RollbackOrder | None = None  # in ROLLING_BACK: the intent, in the journal first
    quarantined: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def shown(self) -> Phase:
        """The phase that people see: a freeze covers all but a rollback."""
        rolling_back = self.phase is Phase.ROLLING_BACK
        return Phase.FROZEN if self.frozen and not rolling_back else self.phase

    @property
    def under_way(self) -> bool:
        """Whether a rollout has begun and has not come to rest."""
        held_for_good = self.phase is Phase.HOLD and not self.weight
        return self.phase in _UNDER_WAY and not held_for_good

    @property
    def serves(self) -> bool:
        """Whether A may have traffic, so that a breach must take it out."""
        return self.phase in _AS_CANARY or self.phase is Phase.BAKE

    @property
    def route(self) -> "WantedRoute | None":
        """Who should serve; None while that is not this rollout's business."""
        if self.plan is None or not self.serves:
            return None
        a, b = self.plan.canary, self.plan.stable
        if self.promoted:
            return WantedRoute(stable=a, canary=b, weight=0)
        audience = self.plan.audience if self.weight else ANYBODY
        return WantedRoute(stable=b, canary=a, weight=self.weight, audience=audience)


class WantedRoute(Wire, frozen=True):
    """`audience`: of the canary while it has a weight; no list and no copy outlives that."""

    stable: Name
    canary: Name
    weight: Percent
    audience: Audience = ANYBODY

    def ordered(self, leader_epoch: Epoch, route_epoch: Epoch, lease_s: float) -> Route:
        """The order that makes it so."""
        return Route(
            leader_epoch=leader_epoch,
            route_epoch=route_epoch,
            stable=self.stable,
            canary=self.canary,
            canary_weight=self.weight,
            lease_s=lease_s,
            clients=self.audience.clients,
            mirror_weight=self.audience.mirror_weight,
        )


class Signals(Wire, frozen=True):
    """What the controller sees now."""

    judgement: Judgement
    fresh: bool  # the evidence log answered lately
    canary_ready: bool | None  # None: not seen yet
    stable_ready: bool | None
    canary_died: bool  # since the last decision
    routed: bool  # the data plane acknowledged the wanted route
    identity: str | None


def signals(
    state: RolloutState,
    observed: Observed | None,
    *,
    judgement: Judgement,
    fresh: bool,
    canary_died: bool,
) -> Signals:
    """What the data plane's last answer means for this rollout."""
    ready: dict[str, bool] = {}
    identity: str | None = None
    plan = state.plan
    if plan is not None and observed is not None:
        for resident in observed.residents:
            right = resident.name != plan.canary or resident.version == plan.version
            ready[resident.name] = right and resident.state is ResidentState.READY
            identity = identity_of(resident) if resident.name == plan.canary else identity
    return Signals(
        judgement=judgement,
        fresh=fresh,
        canary_ready=None if plan is None else ready.get(plan.canary),
        stable_ready=None if plan is None else ready.get(plan.stable),
        canary_died=canary_died,
        routed=is_routed(state, observed),
        identity=identity,
    )


def identity_of(resident: ResidentStatus) -> str:
    """What a quarantine is about: the weights, or the version of an engine that hides them."""
    return resident.weights_digest or f"version {resident.version}"


def is_routed(state: RolloutState, observed: Observed | None) -> bool:
    """Whether the data plane's last word is the route that this state wants, if it wants one."""
    wanted = state.route
    if wanted is None or observed is None:
        return wanted is None
    held = (observed.route_epoch, observed.stable, observed.canary_weight)
    return held == (state.route_epoch, wanted.stable, wanted.weight)


class Decision(Wire, frozen=True):
    """The next phase and A's weight, and why. The same ones: stay."""

    phase: Phase
    weight: Percent
    reasons: tuple[str, ...]
    cause: Cause | None = None  # of a rollback
    quarantine: bool = False

    @property
    def forward(self) -> bool:
        """Whether it gives A more; all other moves are toward B, and nothing may block them."""
        return self.phase in _FORWARD


def decide(state: RolloutState, signals: Signals, phase_s: float) -> Decision:
    """The next move, `phase_s` seconds after the last one. A breach goes before everything."""
    plan = state.plan
    if plan is None or not (state.serves or state.phase is Phase.PREPARE):
        return _stay(state, *state.reasons)
    if state.serves and signals.judgement.verdict is Verdict.BREACH:
        return _roll_back(signals.judgement)
    retreat = _retreat(state, plan, signals, phase_s)
    if retreat is not None:
        return retreat
    if state.frozen:
        return _stay(state, "frozen: only moves toward the stable version are made")
    return _advance(state, plan, signals, phase_s)


def apply(
    state: RolloutState,
    decision: Decision,
    *,
    next_epoch: Epoch,
    identity: str | None,
    actor: str,
) -> RolloutState:
    """The state after a decision; `next_epoch` is spent when the route changes with it."""
    moved = msgspec.structs.replace(
        state,
        phase=decision.phase,
        weight=decision.weight,
        promoted=decision.phase in (Phase.PROMOTING, Phase.BAKE, Phase.STABLE),
        held_from=_held_from(state, decision),
        identity=identity or state.identity,
        reasons=decision.reasons,
    )
    if decision.phase is Phase.ROLLING_BACK:
        return msgspec.structs.replace(moved, order=_order(moved, decision, next_epoch, actor))
    ends_warmup = decision.phase is Phase.CANARY and state.judged_from is None
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
        phase=Phase.QUARANTINED if order.quarantine else Phase.HOLD,
        frozen=state.frozen,
        route_epoch=progress.route_epoch or state.route_epoch,
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


def _stay(state: RolloutState, *reasons: str) -> Decision:
    return Decision(phase=state.phase, weight=state.weight, reasons=reasons)


def _hold(weight: int, reason: str) -> Decision:
    return Decision(phase=Phase.HOLD, weight=weight, reasons=(reason,))


def _roll_back(judgement: Judgement) -> Decision:
    """Faults, where they are among the causes, decide what becomes of the streams in flight."""
    found = (*judgement.breaches, *judgement.levels)
    causes = [cause_of(each.line) for each in found]
    return Decision(
        phase=Phase.ROLLING_BACK,
        weight=0,
        reasons=(
            *(in_words(numbers) for numbers in judgement.breaches),
            *(level.in_words() for level in judgement.levels),
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
    if state.phase not in _AS_CANARY or not state.weight or state.promoted:
        return None
    if not signals.fresh:
        return _hold(0, "the evidence log does not answer: A cannot be judged")
    if signals.canary_died or signals.canary_ready is False:
        return _hold(0, f"{plan.canary!r} is not ready or its engine died")
    if signals.stable_ready is False:
        return _hold(0, f"{plan.stable!r} is not ready: A may not serve without a way back")
    if state.phase is Phase.HOLD and phase_s >= plan.bake_s:
        return _hold(0, "held for a whole bake: back to the stable version")
    return None


def _advance(state: RolloutState, plan: RolloutPlan, signals: Signals, phase_s: float) -> Decision:
    match state.phase:
        case Phase.PREPARE:
            return _prepare(state, plan, signals)
        case Phase.WARMUP:
            warm = signals.judgement.requests >= plan.warmup_requests or phase_s >= plan.warmup_s
            if warm and signals.routed:
                return Decision(phase=Phase.CANARY, weight=plan.weight, reasons=("A is warm",))
            return _stay(state, "A warms up; only faults are judged")
        case Phase.CANARY if phase_s >= plan.bake_s:
            return _end_of_bake(plan, signals.judgement)
        case Phase.CANARY:
            return _stay(state, "A is judged on every line")
        case Phase.PROMOTING if signals.routed:
            return Decision(phase=Phase.BAKE, weight=0, reasons=("A serves everybody",))
        case Phase.BAKE if phase_s >= plan.bake_s and signals.fresh:
            return Decision(phase=Phase.STABLE, weight=0, reasons=("A kept its lines",))
        case _:
            return _stay(state, *state.reasons)


def _prepare(state: RolloutState, plan: RolloutPlan, signals: Signals) -> Decision:
    waiting = [
        name
        for name, ready in (
            (plan.canary, signals.canary_ready),
            (plan.stable, signals.stable_ready),
        )
        if not ready
    ]
    if waiting:
        return _stay(state, f"waits until {' and '.join(waiting)} can serve")
    if signals.identity in state.quarantined:
        return Decision(phase=Phase.QUARANTINED, weight=0, reasons=(quarantine_words(signals),))
    return Decision(phase=Phase.WARMUP, weight=plan.weight, reasons=("both residents are ready",))


def quarantine_words(signals: Signals) -> str:
    return f"{signals.identity} is under quarantine; clear it by hand if it may serve again"


def _end_of_bake(plan: RolloutPlan, judgement: Judgement) -> Decision:
    """Promotion needs evidence of health; the absence of an alarm is none."""
    if judgement.verdict is Verdict.PASS:
        return Decision(phase=Phase.PROMOTING, weight=0, reasons=("every line passed",))
    return _hold(
        plan.weight,
        f"the bake ended after {judgement.requests} requests on A without enough evidence of "
        "health; promote when it has come, or A goes back to 0 after another bake",
    )
