"""Folds the evidence log into one test per line for A, and the same for B to compare with.

A request counts once on each line, at the first entry that settles it: a hard fault or a line
crossing when it happens, health when the milestone is reached or the request ends. Operator
traffic never counts, nor do requests of A from before this rollout's first route epoch, or
residency of a cold pool. During the warm-up A is judged on faults alone. Residency is one request's
over all its modalities, known at its end. Levels are compared class by class of sessions.
"""

from collections.abc import Iterable

import msgspec

from monitors.contract import (
    Epoch,
    Evidence,
    FaultFound,
    Level,
    LineCrossed,
    MilestoneReached,
    RequestFinished,
    ResidencySampled,
    ResidentChanged,
    SessionClass,
    Wire,
)
from monitors.labels import Grade, Origin, Outcome, ResidentState
from rollout.lines import LatencyLine
from rollout.plan import RolloutPlan
from rollout.sequential import RESTARTS, LineTest, Numbers, Saved, Verdict

_OPEN_REQUESTS = 10_000  # more than a canary has in flight; endings lost in a gap fill it up
_BASELINE = 20  # requests on B before its rate says anything
_INTERACTIVE = SessionClass.INTERACTIVE
_SAME_CAUSE = 2.0  # A is to blame when it is this many times worse than B


class OpenRequest(Wire, frozen=True):
    """What a request in flight has counted on so far, and its attention mass."""

    counted: frozenset[str] = frozenset()
    hit_mass: float = 0.0
    lookup_mass: float = 0.0


class FoldState(Wire, frozen=True):
    """Everything the fold knows, to be journalled between two batches. `stable_level`: of B's
    interactive sessions; `stable_apart`: of each other class that was seen there."""

    warm_from: Epoch
    canary: dict[str, Saved]
    stable: dict[str, Saved]
    open: dict[str, OpenRequest]
    finished: int
    stable_level: Level
    next_restart: float | None
    stable_apart: dict[SessionClass, Level] = msgspec.field(
        default_factory=dict[SessionClass, Level]
    )


class Judgement(Wire, frozen=True):
    """The fold's word on A. `quarantine`: A alone is to blame for the breach (DESIGN 8)."""

    verdict: Verdict
    breaches: tuple[Numbers, ...]
    quarantine: bool
    requests: int  # finished on A since this rollout began


NOTHING_KNOWN = Judgement(verdict=Verdict.INCONCLUSIVE, breaches=(), quarantine=False, requests=0)


class EvidenceFold:
    """One rollout's evidence. A's requests count from route epoch `warm_from` on."""

    def __init__(self, plan: RolloutPlan, warm_from: Epoch) -> None:
        self._plan = plan
        self.warm_from = warm_from
        self._judged_from: Epoch | None = None
        self._canary = {line.name: LineTest(line) for line in plan.lines}
        self._stable = {line.name: LineTest(line) for line in plan.lines}
        self._open: dict[str, OpenRequest] = {}
        self._finished = 0
        self._stable_levels = {_INTERACTIVE: Level()}
        self._next_restart: float | None = None

    def judge_from(self, route_epoch: Epoch) -> None:
        """The warm-up is over: what carries this route epoch or a later one meets every line."""
        self._judged_from = route_epoch

    def take(self, entries: Iterable[Evidence]) -> bool:
        """Fold new entries, each given once and in order; whether A's engine died among them."""
        died = False
        for entry in entries:
            died |= self._take(entry)
        return died

    def missed_some(self) -> None:
        """Entries were lost: what A did meanwhile is unknown, so its health is to be shown anew."""
        for test in self._canary.values():
            test.forget_health()

    def new_incarnation(self) -> None:
        """The gateway restarted: requests that were open there never end."""
        self._open.clear()

    def judgement(self) -> Judgement:
        """BREACH by any line; PASS when faults and every line that was seen at all pass."""
        breaches = tuple(
            test.numbers() for test in self._canary.values() if test.verdict is Verdict.BREACH
        )
        return Judgement(
            verdict=Verdict.BREACH if breaches else self._health(),
            breaches=breaches,
            quarantine=any(self.blames_canary(numbers.line) for numbers in breaches),
            requests=self._finished,
        )

    def numbers(self) -> tuple[Numbers, ...]:
        """Every line's figures on A."""
        return tuple(test.numbers() for test in self._canary.values())

    def baseline(self) -> tuple[Numbers, ...]:
        """The same on B, over the same time."""
        return tuple(test.numbers() for test in self._stable.values())

    def save(self) -> FoldState:
        return FoldState(
            warm_from=self.warm_from,
            canary={name: test.save() for name, test in self._canary.items()},
            stable={name: test.save() for name, test in self._stable.items()},
            open=dict(self._open),
            finished=self._finished,
            stable_level=self._stable_levels[_INTERACTIVE],
            next_restart=self._next_restart,
            stable_apart={
                each: level for each, level in self._stable_levels.items() if each != _INTERACTIVE
            },
        )

    @classmethod
    def restore(cls, plan: RolloutPlan, state: FoldState) -> "EvidenceFold":
        """The fold as it was saved. Raises `ValueError` for a state of another plan's lines."""
        names = {line.name for line in plan.lines}
        if set(state.canary) != names or set(state.stable) != names:
            raise ValueError(f"saved lines {sorted(state.canary)} are not the plan's")
        fold = cls(plan, state.warm_from)
        for line in plan.lines:
            fold._canary[line.name] = LineTest.restore(line, state.canary[line.name])
            fold._stable[line.name] = LineTest.restore(line, state.stable[line.name])
        fold._open = dict(state.open)
        fold._finished = state.finished
        fold._stable_levels = {_INTERACTIVE: state.stable_level, **state.stable_apart}
        fold._next_restart = state.next_restart
        return fold

    # ------------------------------------------------------------ one entry
    def _take(self, entry: Evidence) -> bool:
        if entry.resident == self._plan.stable:
            self._stable_levels[entry.session_class] = entry.level
        tests = self._tests_of(entry)
        if tests is None:
            return False
        match entry.body:
            case FaultFound() as found:
                self._fault(tests, entry, found)
            case LineCrossed() | MilestoneReached() as body:
                self._latency(tests, entry, body)
            case RequestFinished() as body:
                self._finish(tests, entry, body)
            case ResidencySampled() as body:
                self._residency(entry, body)
            case ResidentChanged() as body:
                return entry.resident == self._plan.canary and body.state is ResidentState.DEAD
        self._keep_restarting(entry)
        return False

    def _tests_of(self, entry: Evidence) -> dict[str, LineTest] | None:
        """The tests that may hear of this entry; None when it is nobody's evidence."""
        if entry.operator:
            return None
        if entry.resident == self._plan.stable:
            return self._stable
        of_this_rollout = entry.version == self._plan.version and (
            entry.route_epoch >= self.warm_from
        )
        is_canary = entry.resident == self._plan.canary
        return self._canary if is_canary and of_this_rollout else None

    def _fault(self, tests: dict[str, LineTest], entry: Evidence, found: FaultFound) -> None:
        if found.grade is Grade.HARD and found.origin is not Origin.INPUT:
            self._count(tests, self._plan.faults.name, entry, 1.0)

    def _latency(
        self, tests: dict[str, LineTest], entry: Evidence, body: LineCrossed | MilestoneReached
    ) -> None:
        """A milestone within a line is health on it; a crossing, or a late milestone, is not."""
        if not self._is_judged(entry):
            return
        for latency in self._plan.latency:
            if body.milestone is latency.milestone:
                settled = _settled(body, latency)
                if settled is not None:
                    self._count(tests, latency.line.name, entry, settled)

    def _finish(self, tests: dict[str, LineTest], entry: Evidence, body: RequestFinished) -> None:
        """A refused request never reached a resident; a cancelled one is a client's habit."""
        if body.outcome is not Outcome.REFUSED:
            self._count(tests, self._plan.faults.name, entry, float(body.faulted))
            self._finished += 1 if tests is self._canary else 0
        ended = self._open.pop(entry.request_id, OpenRequest())
        if ended.lookup_mass > 0.0:
            missed = min(1.0, max(0.0, 1.0 - ended.hit_mass / ended.lookup_mass))
            self._observe(tests, self._plan.residency.name, entry, missed)

    def _residency(self, entry: Evidence, body: ResidencySampled) -> None:
        if body.warm and self._is_judged(entry):
            request = self._open.get(entry.request_id, OpenRequest())
            self._keep_open(
                entry.request_id,
                msgspec.structs.replace(
                    request,
                    hit_mass=request.hit_mass + body.hit_mass,
                    lookup_mass=request.lookup_mass + body.lookup_mass,
                ),
            )

    def _is_judged(self, entry: Evidence) -> bool:
        return self._judged_from is not None and entry.route_epoch >= self._judged_from

    def _count(self, tests: dict[str, LineTest], line: str, entry: Evidence, y: float) -> None:
        """Once a request and line, whatever else is said of the request later."""
        request = self._open.get(entry.request_id, OpenRequest())
        if line not in request.counted:
            counted = request.counted | {line}
            self._keep_open(entry.request_id, msgspec.structs.replace(request, counted=counted))
            self._observe(tests, line, entry, y)

    def _keep_open(self, request_id: str, request: OpenRequest) -> None:
        self._open[request_id] = request
        if len(self._open) > _OPEN_REQUESTS:
            del self._open[next(iter(self._open))]

    def _observe(self, tests: dict[str, LineTest], line: str, entry: Evidence, y: float) -> None:
        """Health shown at another level than B's is the ladder's merit, not A's; so it may be of a
        class of sessions that B was not seen to have."""
        same_level = entry.level == self._stable_levels.get(entry.session_class)
        tests[line].observe(y, entry.session, counts_as_health=same_level)

    def _keep_restarting(self, entry: Evidence) -> None:
        """One restart each twentieth of the bake, by the log's own time, after an observation."""
        stride = self._plan.bake_s / RESTARTS
        if self._next_restart is None:
            self._next_restart = entry.wall + stride
        elif entry.wall >= self._next_restart:
            self._next_restart = entry.wall + stride
            for test in (*self._canary.values(), *self._stable.values()):
                test.restart()

    # ------------------------------------------------------------ the verdict
    def _health(self) -> Verdict:
        needed = [
            test
            for name, test in self._canary.items()
            if name == self._plan.faults.name
            or test.observations
            or self._stable[name].observations
        ]
        healthy = all(test.verdict is Verdict.PASS for test in needed)
        return Verdict.PASS if healthy else Verdict.INCONCLUSIVE

    def blames_canary(self, line: str) -> bool:
        """Whether the breach of `line` is A's own.

        It is not when B, over enough requests of the same time, is past the same line and A is
        not much worse than B: then something that both share is to blame.
        """
        canary, stable = self._canary[line], self._stable[line]
        if canary.mean is None or stable.mean is None or stable.observations < _BASELINE:
            return True
        return stable.mean <= stable.line.limit or canary.mean > _SAME_CAUSE * stable.mean


def _settled(body: LineCrossed | MilestoneReached, latency: LatencyLine) -> float | None:
    """1 past the line, 0 within it; None when this entry does not settle it yet."""
    if isinstance(body, LineCrossed):
        return 1.0 if body.line_s >= latency.seconds else None
    return float(body.seconds > latency.seconds)
