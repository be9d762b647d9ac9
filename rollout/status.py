"""What a rollout shows to people and pages: one message."""

from collections import deque

from monitors.contract import Count, Epoch, Evidence, Percent, RequestFinished, Wire
from monitors.labels import Phase
from rollout.detectable import Detectable
from rollout.plan import RolloutPlan
from rollout.rollback import Progress
from rollout.sequential import Numbers, Verdict

_TRAFFIC_WINDOW_S = 60.0


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


class Traffic:
    """Requests per second over the last minute of the evidence log's own time."""

    def __init__(self) -> None:
        self._ends: deque[float] = deque(maxlen=100_000)

    def take(self, entry: Evidence) -> None:
        if isinstance(entry.body, RequestFinished) and not (entry.operator or entry.mirror):
            self._ends.append(entry.wall)
            while entry.wall - self._ends[0] > _TRAFFIC_WINDOW_S:
                self._ends.popleft()

    def per_second(self) -> float | None:
        """None until requests have been seen over some time."""
        if len(self._ends) < 2:
            return None
        span = self._ends[-1] - self._ends[0]
        return (len(self._ends) - 1) / span if span > 0.0 else None
