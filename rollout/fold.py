"""Folds the evidence log into one test per line for A, and the same for B to compare with.

A request counts once on each line, at the first entry that settles it: a hard fault or a line
crossing when it happens, health when the milestone is reached or the request ends. Operator
traffic never counts, nor do requests of A from before this rollout's first route epoch, or
residency of a cold pool. During the warm-up A is judged on faults alone. Residency is one request's
over all its modalities, known at its end. Levels are compared class by class of sessions: A's
health counts where B is at the same one, and a worse one that stays is a breach (DESIGN 8).
"""

from collections.abc import Iterable

import msgspec

from monitors.contract import (
    Epoch,
    Evidence,
    FaultFound,
    LineCrossed,
    MilestoneReached,
    RequestFinished,
    ResidencySampled,
    ResidentChanged,
    Wire,
)
from monitors.labels import Grade, Origin, ResidentState
from rollout.arm import Arm, ArmState, Turn
from rollout.attribution import Attribution, AttributionState
from rollout.lines import LatencyLine
from rollout.plan import RolloutPlan
from rollout.sequential import RESTARTS, Numbers, Verdict
from rollout.standing import NeededLevel, Standing, StandingState

_OPEN_REQUESTS = 10_000  # more than a canary has in flight; endings lost in a gap fill it up
_MOST_SHARE = 0.5  # of the traffic on A, up to which B's level tells what A should need


class OpenRequest(Wire, frozen=True):
    """What a request in flight has counted on so far, and its attention mass."""

    counted: frozenset[str] = frozenset()
    hit_mass: float = 0.0
    lookup_mass: float = 0.0


class FoldState(Wire, frozen=True):
    """Everything the fold knows, to be journalled between two batches."""

    warm_from: Epoch
    canary: ArmState
    stable: ArmState
    attributions: dict[str, AttributionState]
    standing: StandingState
    open: dict[str, OpenRequest]  # by `_on`
    finished: int
    next_restart: float | None


class Judgement(Wire, frozen=True):
    """The fold's word on A: BREACH by any line, or by a level that it needs and B does not.

    `quarantine`: A is under quarantine if it goes now, because it is to blame or because nothing
    shows that B shares the cause.
    """

    verdict: Verdict
    breaches: tuple[Numbers, ...]
    quarantine: bool
    requests: int  # finished on A since this rollout began
    levels: tuple[NeededLevel, ...] = ()


NOTHING_KNOWN = Judgement(verdict=Verdict.INCONCLUSIVE, breaches=(), quarantine=False, requests=0)


class EvidenceFold:
    """One rollout's evidence. A's requests count from route epoch `warm_from` on."""

    def __init__(self, plan: RolloutPlan, warm_from: Epoch) -> None:
        self._plan = plan
        self.warm_from = warm_from
        self._judged_from: Epoch | None = None
        self._canary, self._stable = Arm(plan.lines), Arm(plan.lines)
        self._attributions = {line.name: Attribution() for line in plan.lines}
        self._standing = Standing(plan.level_dwell_s)
        self._open: dict[str, OpenRequest] = {}
        self._finished = 0
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
        self._canary.forget_health()
        self._standing.forget_waits()

    def new_incarnation(self) -> None:
        """The gateway restarted: requests that were open there never end."""
        self._open.clear()

    def judgement(self) -> Judgement:
        """BREACH by anything; PASS past the warm-up when faults and all lines seen pass."""
        breaches, levels = self._canary.breaches(), self._standing.needed
        return Judgement(
            verdict=Verdict.BREACH if breaches or levels else self._health(),
            breaches=breaches,
            quarantine=bool(levels) or any(self.blames_canary(each.line) for each in breaches),
            requests=self._finished,
            levels=levels,
        )

    def numbers(self) -> tuple[Numbers, ...]:
        """Every line's figures on A."""
        return self._canary.numbers()

    def baseline(self) -> tuple[Numbers, ...]:
        """The same on B, over the same time."""
        return self._stable.numbers()

    def save(self) -> FoldState:
        return FoldState(
            warm_from=self.warm_from,
            canary=self._canary.save(),
            stable=self._stable.save(),
            attributions={name: each.save() for name, each in self._attributions.items()},
            standing=self._standing.save(),
            open=dict(self._open),
            finished=self._finished,
            next_restart=self._next_restart,
        )

    @classmethod
    def restore(cls, plan: RolloutPlan, state: FoldState) -> "EvidenceFold":
        """The fold as it was saved. Raises `ValueError` for a state of another plan's lines."""
        fold = cls(plan, state.warm_from)
        fold._canary = Arm.restore(plan.lines, state.canary)
        fold._stable = Arm.restore(plan.lines, state.stable)
        fold._attributions = {
            line.name: Attribution.restore(state.attributions[line.name]) for line in plan.lines
        }
        fold._standing = Standing(plan.level_dwell_s, state.standing)
        fold._open = dict(state.open)
        fold._finished = state.finished
        fold._next_restart = state.next_restart
        return fold

    # ------------------------------------------------------------ one entry
    def _take(self, entry: Evidence) -> bool:
        arm = self._arm_of(entry)
        self._see_level(entry, arm)
        if arm is None:
            return False
        match entry.body:
            case FaultFound() as found:
                self._fault(arm, entry, found)
            case LineCrossed() | MilestoneReached() as body:
                self._latency(arm, entry, body)
            case RequestFinished() as body:
                self._finish(arm, entry, body)
            case ResidencySampled() as body:
                self._residency(entry, body)
            case ResidentChanged() as body:
                return entry.resident == self._plan.canary and body.state is ResidentState.DEAD
        self._pass_time(entry.wall)
        return False

    def _arm_of(self, entry: Evidence) -> Arm | None:
        """Whose evidence this entry is; None when it is nobody's."""
        if entry.operator:
            return None
        if entry.resident == self._plan.stable:
            return self._stable
        of_this_rollout = entry.version == self._plan.version and (
            entry.route_epoch >= self.warm_from
        )
        is_canary = entry.resident == self._plan.canary
        return self._canary if is_canary and of_this_rollout else None

    def _see_level(self, entry: Evidence, arm: Arm | None) -> None:
        """Levels are the resident's own, whoever asked: B's are seen from every entry of it."""
        if entry.resident == self._plan.stable:
            self._standing.see_stable(entry)
        elif arm is self._canary:
            share = self._attributions[self._plan.faults.name].canary_share
            shared = share is None or share <= _MOST_SHARE
            self._standing.see_canary(entry, comparable=shared and self._is_judged(entry))

    def _fault(self, arm: Arm, entry: Evidence, found: FaultFound) -> None:
        if found.grade is Grade.HARD and found.origin is not Origin.INPUT:
            self._count(arm, self._plan.faults.name, entry, 1.0)

    def _latency(self, arm: Arm, entry: Evidence, body: LineCrossed | MilestoneReached) -> None:
        """A milestone within a line is health on it; a crossing, or a late milestone, is not."""
        if not self._is_judged(entry):
            return
        for latency in self._plan.latency:
            if body.milestone is latency.milestone:
                settled = _settled(body, latency)
                if settled is not None:
                    self._count(arm, latency.line.name, entry, settled)

    def _finish(self, arm: Arm, entry: Evidence, body: RequestFinished) -> None:
        """A refused request never reached a resident, and one replayed counts where it went; a
        cancelled one is a client's habit."""
        if body.tells:
            self._count(arm, self._plan.faults.name, entry, float(body.faulted))
            self._finished += arm is self._canary
        ended = self._open.pop(_on(entry), OpenRequest())
        if ended.lookup_mass > 0.0:
            missed = min(1.0, max(0.0, 1.0 - ended.hit_mass / ended.lookup_mass))
            self._observe(arm, self._plan.residency.name, entry, missed)

    def _residency(self, entry: Evidence, body: ResidencySampled) -> None:
        if body.warm and self._is_judged(entry):
            request = self._open.get(_on(entry), OpenRequest())
            self._keep_open(
                entry,
                msgspec.structs.replace(
                    request,
                    hit_mass=request.hit_mass + body.hit_mass,
                    lookup_mass=request.lookup_mass + body.lookup_mass,
                ),
            )

    def _is_judged(self, entry: Evidence) -> bool:
        return self._judged_from is not None and entry.route_epoch >= self._judged_from

    def _count(self, arm: Arm, line: str, entry: Evidence, y: float) -> None:
        """Once a request and line, whatever else is said of the request later."""
        request = self._open.get(_on(entry), OpenRequest())
        if line not in request.counted:
            counted = request.counted | {line}
            self._keep_open(entry, msgspec.structs.replace(request, counted=counted))
            self._observe(arm, line, entry, y)

    def _keep_open(self, entry: Evidence, request: OpenRequest) -> None:
        self._open[_on(entry)] = request
        if len(self._open) > _OPEN_REQUESTS:
            del self._open[next(iter(self._open))]

    def _observe(self, arm: Arm, line: str, entry: Evidence, y: float) -> None:
        """Health shown at another level than B's is the ladder's merit, not A's; so it may be of a
        class of sessions that B was not seen to have."""
        alone = not entry.session or entry.session == entry.request_id
        turn = Turn(
            line=line,
            y=y,
            request=entry.request_id,
            session=None if alone else entry.session,
            at=entry.wall,
            counts_as_health=entry.level == self._standing.stable_level(entry.session_class),
        )
        if arm.take(turn):
            self._attributions[line].take(
                canary=arm is self._canary,
                bad=arm.test(line).is_bad(y),
                route_epoch=entry.route_epoch,
            )

    def _pass_time(self, now: float) -> None:
        """The log's own time: sessions end, and one restart comes each twentieth of the bake,
        after an observation."""
        for arm in (self._canary, self._stable):
            arm.pass_time(now)
        stride = self._plan.bake_s / RESTARTS
        if self._next_restart is None:
            self._next_restart = now + stride
        elif now >= self._next_restart:
            self._next_restart = now + stride
            for arm in (self._canary, self._stable):
                arm.restart()

    # ------------------------------------------------------------ the verdict
    def _health(self) -> Verdict:
        """During the warm-up nothing but faults is seen, so that nothing is shown."""
        if self._judged_from is None:
            return Verdict.INCONCLUSIVE
        needed = [
            self._canary.test(line.name)
            for line in self._plan.lines
            if line.name == self._plan.faults.name
            or self._canary.test(line.name).observations
            or self._stable.test(line.name).observations
        ]
        healthy = all(test.verdict is Verdict.PASS for test in needed)
        return Verdict.PASS if healthy else Verdict.INCONCLUSIVE

    def blames_canary(self, line: str) -> bool:
        """Whether a breach of `line` is A's, as far as is known: it is not where B is past the
        line too, and A is no worse on it than a cause that both share explains."""
        shared = self._stable.test(line).verdict is Verdict.BREACH
        return not shared or self._attributions[line].blames_canary


def _on(entry: Evidence) -> str:
    """A request on one resident: what is replayed or copied runs on two, and counts on each."""
    return f"{entry.resident}/{entry.request_id}"  # no name has a slash


def _settled(body: LineCrossed | MilestoneReached, latency: LatencyLine) -> float | None:
    """1 past the line, 0 within it; None when this entry does not settle it yet."""
    if isinstance(body, LineCrossed):
        return 1.0 if body.line_s >= latency.seconds else None
    return float(body.seconds > latency.seconds)
