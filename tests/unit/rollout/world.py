"""A control plane's rollout against a simulated data plane, on one clock, killed at will."""

from collections.abc import Callable
from typing import TypeVar

from monitors.contract import FaultFound, LineCrossed, MilestoneReached, RequestFinished, Wire
from monitors.journal import Entry, Journal, JournalUnwritable
from monitors.labels import Detector, Fault, Grade, Milestone, Origin, Outcome, Phase
from monitors.redlines import (
    CacheLines,
    FaultLines,
    LatencyLines,
    PromotionStep,
    RedLines,
    RolloutLines,
)
from rollout.controller import RolloutController
from rollout.proposal import Wishes
from rollout.status import RolloutStatus
from tests.support.sim_dataplane import Clock, SimDataPlane

T = TypeVar("T")

LINES = RedLines(
    cache=CacheLines(hit_rate_floor=0.9),
    latency=LatencyLines(first_packet_exceedance=0.2, degrade_exceedance=0.2),
    faults=FaultLines(rate=0.1),
    rollout=RolloutLines(
        bake_s=60.0,
        warmup_requests=2,
        canary_weight=5,
        pass_alpha=0.2,
        steps=tuple(
            PromotionStep(weight=weight, least_s=20.0, least_requests=5) for weight in (25, 50)
        ),
    ),
)
"""Loose lines, so that a handful of requests is evidence."""
QUICK = LINES.model_copy(
    update={
        "rollout": LINES.rollout.model_copy(
            update={
                "bake_s": 10.0,
                "steps": tuple(
                    PromotionStep(weight=weight, least_s=5.0, least_requests=1)
                    for weight in (25, 50)
                ),
            }
        )
    }
)
"""The same with a short bake and short steps."""


class Killed(BaseException):
    """`kill -9`: nothing after it happens, and nobody may catch it as an error."""


class FragileJournal:
    """The real journal, which can be unwritable, or be where the process dies: at the append or
    the memory of a number."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.writable = True
        self.written = 0
        self.kill_before: int | None = None  # the number of the one that never happens
        self.kill_after: int | None = None  # ... of the one that is the last thing that happens

    def append(self, kind: str, actor: str, body: Wire, leader_epoch: int) -> Entry:
        return self._write(lambda: self.journal.append(kind, actor, body, leader_epoch))

    def last(self, kind: str) -> Entry | None:
        return self.journal.last(kind)

    def remember(self, name: str, body: Wire, leader_epoch: int) -> None:
        self._write(lambda: self.journal.remember(name, body, leader_epoch))

    def remembered(self, name: str, body_type: type[T]) -> T | None:
        return self.journal.remembered(name, body_type)

    def _write(self, write: Callable[[], T]) -> T:
        if not self.writable:
            raise JournalUnwritable("the disk is full: free some space")
        self.written += 1
        if self.written == self.kill_before:
            raise Killed
        written = write()
        if self.written == self.kill_after:
            raise Killed
        return written


class World:
    """`crash` replaces the controller by a new leader's, which knows only the journal."""

    def __init__(
        self,
        journal: Journal,
        lines: RedLines = LINES,
        witness: Callable[[RolloutStatus], None] = lambda _: None,
    ) -> None:
        self._witness = witness
        self.clock = Clock()
        self.plane = SimDataPlane(self.clock)
        self.journal = FragileJournal(journal)
        self.lines = lines
        self.changes: list[RolloutStatus] = []
        self.leader_epoch = 0
        self.requests = 0
        self.canary_requests = self.stable_requests = 0  # that each serves well in each step
        self.plane.busy_share = 0.3
        self.controller = self._lead()

    def _lead(self) -> RolloutController:
        self.leader_epoch += 1
        return RolloutController(
            journal=self.journal,
            plane=self.plane,
            lines=self.lines,
            leader_epoch=self.leader_epoch,
            clock=self.clock,
            on_change=self._changed,
        )

    def _changed(self, status: RolloutStatus) -> None:
        self.changes.append(status)
        self._witness(status)

    def crash(self) -> None:
        self.journal.kill_before = self.journal.kill_after = None
        self.controller = self._lead()

    @property
    def status(self) -> RolloutStatus:
        return self.controller.status()

    async def step(self, seconds: float = 1.0) -> None:
        """Time passes; evidence is read, the lease renewed, a tick made."""
        self.clock.advance(seconds)
        self.good(self.canary_requests, "a")
        self.good(self.stable_requests, "b")
        await self.controller.poll(0.0)
        await self.controller.renew()
        await self.controller.tick()

    async def warm_up(self, weight: int | None = None) -> None:
        """A rollout whose warm-up has begun."""
        await self.controller.tick()
        plan, _ = await self.controller.propose(Wishes(weight=weight))
        await self.controller.start(plan, "ann")
        await self.controller.poll(0.0)  # brings the rehearsed breach

    async def start(self, weight: int | None = None) -> None:
        """A rollout that is past its warm-up."""
        await self.warm_up(weight)
        self.good(3)
        await self.step()

    async def bake(self, canary_requests: int = 0) -> None:
        """The rest of the bake, second by second."""
        for _ in range(int(self.lines.rollout.bake_s) + 1):
            self.good(canary_requests)
            await self.step()

    async def promote(self, until: Phase = Phase.BAKE) -> None:
        """A healthy rollout from its start until A serves everybody, or not so far."""
        self.stable_requests = 2
        await self.start()
        for _ in range(200):
            if self.status.phase is until:
                return
            self.good(2)
            await self.step()
        raise AssertionError(f"still in {self.status.phase}: {self.status.reasons}")

    def good(self, count: int, resident: str = "a") -> None:
        """So many requests that keep every line."""
        for _ in range(count):
            name = self._next()
            self.plane.residents[resident].cached += 1
            for milestone in (Milestone.FIRST_TOKEN, Milestone.FIRST_AUDIO_PACKET):
                self._add(MilestoneReached(milestone=milestone, seconds=0.1), name, resident)
            self._add(RequestFinished(outcome=Outcome.OK, faulted=False), name, resident)

    def late(self, count: int, resident: str = "a") -> None:
        """So many requests that end well, past every latency line."""
        for _ in range(count):
            name = self._next()
            late = MilestoneReached(milestone=Milestone.FIRST_AUDIO_PACKET, seconds=0.6)
            self._add(late, name, resident)
            self._add(RequestFinished(outcome=Outcome.OK, faulted=False), name, resident)

    def faulty(self, count: int, resident: str = "a") -> None:
        """So many requests whose speech is cut."""
        for _ in range(count):
            name = self._next()
            found = FaultFound(
                fault=Fault.SPEECH_TRUNCATED,
                grade=Grade.HARD,
                origin=Origin.OUTPUT,
                detector=Detector.SPEECH,
                rule="protocol",
                detail="no final event",
            )
            self._add(found, name, resident)
            self._add(RequestFinished(outcome=Outcome.OK, faulted=True), name, resident)

    def hung(self, count: int, resident: str = "a") -> None:
        """So many requests that are past every line and have not answered."""
        for _ in range(count):
            name = self._next()
            for seconds in (0.25, 0.4):
                crossed = LineCrossed(milestone=Milestone.FIRST_AUDIO_PACKET, line_s=seconds)
                self._add(crossed, name, resident)

    def _next(self) -> str:
        self.requests += 1
        return f"r{self.requests}"

    def _add(
        self,
        body: MilestoneReached | LineCrossed | FaultFound | RequestFinished,
        name: str,
        resident: str,
    ) -> None:
        self.plane.add(body, request=name, session=f"session of {name}", resident=resident)
