"""Where a rollout is, what its controller sees, and what it decides: what `phases` is about."""

import msgspec

from monitors.contract import Count, Epoch, Name, Observed, Percent, ResidentStatus, Route, Wire
from monitors.labels import Phase, ResidentState
from monitors.preparing import Loading, LoadStage
from rollout.audience import ANYBODY, Audience
from rollout.capacity import Capacity
from rollout.fold import Judgement
from rollout.plan import Cause, RolloutPlan, share_seen
from rollout.rehearsal import AlarmProof
from rollout.rollback import RollbackOrder

_FORWARD = frozenset({Phase.WARMUP, Phase.CANARY, Phase.PROMOTING, Phase.BAKE, Phase.STABLE})
AS_CANARY = frozenset({Phase.WARMUP, Phase.CANARY, Phase.PROMOTING, Phase.HOLD})
OR_BACK_TO_0 = "A goes back to 0 after another bake, unless somebody promotes or resumes it"
_BY_VERSION = "version "  # begins an identity that is no digest
_UNDER_WAY = AS_CANARY | {Phase.PREPARE, Phase.BAKE}


class RolloutState(Wire, frozen=True):
    """Where the rollout is. All of it is journalled before it is acted on."""

    phase: Phase = Phase.IDLE
    plan: RolloutPlan | None = None
    weight: Percent = 0  # A's share while it is the canary
    promoted: bool = False  # the roles are swapped: A is the route's stable one, `weight` is moot
    held_from: Phase | None = None  # in HOLD: where `resume` goes; None: nowhere
    frozen: bool = False
    route_epoch: Epoch = 0  # of the newest route ordered here
    warm_from: Epoch | None = None  # the first route epoch under which A served
    judged_from: Epoch | None = None  # the first one after its warm-up
    identity: str | None = None  # A's weights digest, else its version
    requests_before: Count = 0  # that A had finished when it came to its present share
    alarm: AlarmProof | None = None  # that a breach on A would be called, before it had traffic
    by_hand: bool = False  # somebody else set the route, and it is left to them
    order: RollbackOrder | None = None  # in ROLLING_BACK: the intent, in the journal first
    quarantined: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def shown(self) -> Phase:
        """The phase that people see: a freeze covers all but a rollback."""
        rolling_back = self.phase is Phase.ROLLING_BACK
        return Phase.FROZEN if self.frozen and not rolling_back else self.phase

    @property
    def share(self) -> int:
        """The percentage of new sessions on A that people see."""
        return share_seen(self.weight, promoted=self.promoted)

    @property
    def under_way(self) -> bool:
        """Whether a rollout has begun and has not come to rest."""
        held_for_good = self.phase is Phase.HOLD and (self.by_hand or not self.weight)
        return self.phase in _UNDER_WAY and not held_for_good

    @property
    def serves(self) -> bool:
        """Whether A may have traffic, so that a breach must take it out."""
        return self.phase in AS_CANARY or self.phase is Phase.BAKE

    def overruled_by(self, stable: Name) -> bool:
        """Whether a hand has made A the stable one before it was given anybody, or another since it
        had made A that."""
        if self.plan is None:
            return False
        return self.given_nobody if stable == self.plan.canary else self.by_hand

    @property
    def has_traffic(self) -> bool:
        """Whether it has some now, by this rollout's word or by a hand that made it stable."""
        return self.serves and bool(self.weight or self.promoted)

    @property
    def given_nobody(self) -> bool:
        """Whether it prepares, or was held at that: there is nothing to take back from A."""
        held = self.phase is Phase.HOLD and self.held_from is Phase.PREPARE
        return self.phase is Phase.PREPARE or (held and not self.promoted)

    @property
    def route(self) -> "WantedRoute | None":
        """Who should serve; None while that is not this rollout's business."""
        if self.plan is None or not self.serves or self.by_hand:
            return None
        a, b = self.plan.canary, self.plan.stable
        if self.promoted:
            return WantedRoute(stable=a, canary=b, weight=0)
        audience = self.plan.audience if self.weight else ANYBODY
        return WantedRoute(stable=b, canary=a, weight=self.weight, audience=audience)


def left_to_a_hand(state: RolloutState, epoch: Epoch) -> RolloutState:
    """A serves everybody by somebody's word: from here on it is judged, on every line."""
    return msgspec.structs.replace(
        state,
        promoted=True,
        by_hand=True,
        route_epoch=epoch,
        warm_from=_earlier(state.warm_from, epoch),
        judged_from=_earlier(state.judged_from, epoch),
    )


def _earlier(one: Epoch | None, other: Epoch) -> Epoch:
    return other if one is None else min(one, other)


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
    capacity: Capacity  # of B, for all of the traffic
    alarm: AlarmProof | None
    alarm_lack: str | None  # how it failed; None: it has not, so far
    seen: bool = True  # the data plane was ever seen; its last word is what counts
    loading: Loading | None = None  # of the plan's model
    canary_away_s: float = 0.0  # for how long it has been seen not to be ready
    way_back: bool | None = None  # where A serves all, and may be taken out: whether B is ready

    @property
    def both_ready(self) -> bool:
        return bool(self.canary_ready and self.stable_ready)


def signals(
    state: RolloutState,
    observed: Observed | None,
    *,
    judgement: Judgement,
    capacity: Capacity,
    alarm: AlarmProof | None,
    alarm_lack: str | None,
    fresh: bool,
    canary_died: bool,
) -> Signals:
    """What the data plane's last answer means for this rollout."""
    ready: dict[str, bool] = {}
    identity: str | None = None
    loading: Loading | None = None
    plan = state.plan
    if plan is not None and observed is not None:
        for resident in observed.residents:
            right = True
            if resident.name == plan.canary:
                loading = _loading(plan, resident)
                right = resident.version == plan.version and (plan.model is None or _is_in(loading))
                identity = identity_of(resident) if right else None
            ready[resident.name] = right and resident.state is ResidentState.READY
    stable_ready = None if plan is None else ready.get(plan.stable)
    return Signals(
        judgement=judgement,
        fresh=fresh,
        canary_ready=None if plan is None else ready.get(plan.canary),
        stable_ready=stable_ready,
        canary_died=canary_died,
        routed=is_routed(state, observed),
        identity=identity,
        capacity=capacity,
        alarm=alarm,
        alarm_lack=alarm_lack,
        seen=observed is not None,
        loading=loading,
        way_back=stable_ready if state.serves and state.promoted else None,
    )


def _loading(plan: RolloutPlan, canary: ResidentStatus) -> Loading | None:
    """How far A's loading of the plan's own model is; None: the data plane knows nothing of it."""
    loading = canary.loading
    ordered = plan.model is not None and loading is not None and loading.load == plan.model.load
    return loading if ordered else None


def _is_in(loading: Loading | None) -> bool:
    return loading is not None and loading.stage is LoadStage.LOADED


def identity_of(resident: ResidentStatus) -> str | None:
    """What a quarantine is about: the weights, or the version of an engine that hides them; None
    where an engine has yet to tell."""
    if resident.weights_digest is None and resident.state is ResidentState.READY:
        return f"{_BY_VERSION}{resident.version}"
    return resident.weights_digest


def better_known(known: str | None, told: str | None) -> str | None:
    """What A is, from what was known and what is told now: a digest gives way to digests alone."""
    vague = told is None or told.startswith(_BY_VERSION)
    return known or told if vague else told


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
    alarm: AlarmProof | None = None  # what a start of traffic rests on
    noted: bool = False  # while it stays: its reasons are news for the journal

    @property
    def forward(self) -> bool:
        """Whether it gives A more; all other moves are toward B, and nothing may block them."""
        return self.phase in _FORWARD


def stay(state: RolloutState, *reasons: str) -> Decision:
    """Where it is."""
    return Decision(phase=state.phase, weight=state.weight, reasons=reasons)


def hold(weight: int, reason: str) -> Decision:
    """At this weight, until a person goes on or a whole bake has passed."""
    return Decision(phase=Phase.HOLD, weight=weight, reasons=(reason,))
