"""A ladder keeper's world: its clock, its journal, and what it can see."""

import threading
from pathlib import Path

from alerts.ladder import Move
from alerts.names import AlertName
from alerts.policy import make
from alerts.receiver import AlertBook
from monitors.contract import LadderOrder, Level, MediaRung, Observed, Refusal
from monitors.journal import Journal, JournalUnwritable
from monitors.labels import Milestone
from monitors.latency_table import LatencyRow
from monitors.redlines import LatencyLines, RedLines
from monitors.tables import Tables, lines_shown, windows
from redline.control.alert_watch import AlertWatch
from redline.control.ladder_keeper import LadderKeeper
from redline.control.rounds import Rounds
from rollout.dataplane import Refused
from tests.support.sim_dataplane import Clock, SimDataPlane
from tests.support.webhook import webhook

LINES = RedLines(latency=LatencyLines(min_count=5))
DWELL_S, LEASE_S = LINES.ladder.dwell_s, LINES.ladder.lease_s
FULL, DEGRADED = Level(), Level(media=MediaRung.P360_8K)


class DataPlane(SimDataPlane):
    """Remembers the ladder's orders; refuses those for the residents in `refuses`."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, LINES)
        self.levels: list[LadderOrder] = []
        self.refuses: set[str] = set()

    async def set_level(self, order: LadderOrder) -> Observed:
        if order.resident in self.refuses:
            raise Refused(507, Refusal(error="no space for the fence"))
        self.levels.append(order)
        return await super().set_level(order)


class Disk(Journal):
    """A journal that can be made unwritable, and slow."""

    full = False
    gate: threading.Event | None = None  # an append waits for it

    def append(self, *args, **kwargs):
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.full:
            raise JournalUnwritable("the disk is full: free some space")
        return super().append(*args, **kwargs)

    def remember(self, *args, **kwargs):
        if self.full:
            raise JournalUnwritable("the disk is full: free some space")
        super().remember(*args, **kwargs)


class World:
    """A control loop, its clock, and what it can see: alerts, tables, a data plane."""

    def __init__(self, folder: Path, *, prometheus: bool = True) -> None:
        self.clock = Clock()
        self.plane = DataPlane(self.clock)
        self.path = folder / "j.db"
        self.set_by_s = 0.0  # so far from what it showed at first was the wall clock set
        self.journal = Disk(self.path, wall=self.wall)
        self.book = AlertBook(LINES.alerts)
        self.tables: Tables | None = hung(0)
        self.moves: list[Move] = []
        self.prometheus = prometheus
        self.epoch = 0
        self.lead()

    def lead(self) -> None:
        """A new leader, which knows only the journal."""
        self.epoch += 1
        self.watch = AlertWatch(
            self.journal, self.book, make(LINES), self.epoch,
            prometheus=self.prometheus, clock=self.clock, wall=self.wall,
        )  # fmt: skip
        self.keeper = LadderKeeper(
            self.journal, self.plane, LINES, self.epoch,
            on_move=self.moves.append, clock=self.clock, wall=self.wall,
        )  # fmt: skip
        self.rounds = Rounds(self.plane, self._read_tables, self.watch, self.keeper, lambda _: None)

    def wall(self) -> float:
        return self.clock() + self.set_by_s

    async def _read_tables(self) -> Tables | None:
        return self.tables

    def hear(self, *alerts: str, version: str = "v1", status: str = "firing") -> None:
        """A webhook: these alerts, and the Watchdog."""
        for name in (AlertName.WATCHDOG, *alerts):
            self.book.receive(webhook(name, version, status), self.clock())

    async def seconds(self, count: float, *alerts: str, version: str = "v1") -> None:
        """So many ticks, a second apart, all the while these alerts fire."""
        end = self.clock() + count
        while self.clock() < end:
            self.hear(*alerts, version=version)
            await self.rounds.once()
            self.clock.advance(1.0)

    def level(self, name: str) -> Level:
        return self.plane.residents[name].level


def hung(over: int) -> Tables:
    """Tables in which so many of v1's requests hang past the line."""
    row = LatencyRow(
        version="v1", milestone=Milestone.FIRST_TOKEN, count=0, over=over, requests=over,
        p50_s=None, p95_s=None, p99_s=None, over_share=1.0, slow_share=1.0,
    )  # fmt: skip
    return Tables(
        wall=0.0, windows=windows(LINES), lines=lines_shown(LINES), cache=(), cache_summary=(),
        latency=(row,), faults=(),
    )  # fmt: skip
