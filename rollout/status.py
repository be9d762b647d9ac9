"""What a rollout shows to people and pages: one message."""

from monitors.contract import Count, Epoch, Percent, Wire
from monitors.labels import Phase
from monitors.preparing import Loading, LoadStage
from rollout.capacity import Capacity
from rollout.detectable import Detectable
from rollout.plan import RolloutPlan, share_seen
from rollout.rehearsal import AlarmProof
from rollout.rollback import Progress
from rollout.sequential import Numbers, Verdict


class RolloutStatus(Wire, frozen=True):
    """`None` is unknown or not there, never zero. Pages: `rollback_incomplete`, `unjournalled`."""

    phase: Phase
    phase_s: float
    frozen: bool
    reasons: tuple[str, ...]
    plan: RolloutPlan | None
    weight: Percent  # wanted for A while it is the canary
    promoted: bool
    route_epoch: Epoch
    verdict: Verdict | None
    canary: tuple[Numbers, ...]  # the evidence on A, by line
    stable: tuple[Numbers, ...]  # on B over the same time
    requests_per_s: float | None  # all traffic
    detectable: Detectable | None
    evidence_age_s: float | None  # since the log last answered
    rollback: Progress | None  # the last one, with receipt and probe
    rollback_incomplete: bool
    quarantined: tuple[str, ...]
    unjournalled: Count  # entries that wait for a journal that cannot be written
    deposed: bool  # another control plane leads
    capacity: Capacity | None = None  # of B, for all of the traffic
    loading: Loading | None = None  # of the plan's model, while A prepares
    serves: bool = False  # A has traffic that a rollback would take away
    alarm: AlarmProof | None = None  # that the alarm path was proved before A had traffic
    covered: Phase | None = None  # the phase that a freeze hides
    way_back: bool | None = None  # B can serve again, where A serves all and a rollback may come

    @property
    def share(self) -> int:
        """The percentage of new sessions on A that people see."""
        return share_seen(self.weight, promoted=self.promoted)

    @property
    def loads(self) -> bool:
        """Whether A has yet to get the plan's model."""
        has_it = self.loading is not None and self.loading.stage is LoadStage.LOADED
        waits = self.plan is not None and self.plan.model is not None and not has_it
        return self.phase is Phase.PREPARE and waits
