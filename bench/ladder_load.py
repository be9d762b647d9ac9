"""The load that the ladder's bench replays, and the servers that bear it.

All that is assumed: requests come as a Poisson process whose rate swings; a request's work is gamma
distributed (shape 4), its mean that of the media rung: 1, 0.55 and 0.4 of the full one; servers
take requests first come, first served, and a first output leaves when its request is done. The rate
is such that full fidelity crosses the line for the upper part of a swing only, of one swing 360p as
well. One server is what the ladder's forecast takes a resident for; so that it is not only tried on
its own assumption, two swings are served otherwise: by four servers of a quarter of the speed, and
with 150 ms that no load and no rung changes. One is of so few requests that its troughs are near
the least of which anything is said. Engines batch and media comes in slices: the work ratios are
examples, not measurements.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from heapq import heapreplace
from operator import itemgetter

import numpy as np

from monitors.contract import MediaRung
from monitors.labels import Milestone
from monitors.latency_table import LatencyTable
from monitors.redlines import RedLines
from monitors.tables import Tables, lines_shown, windows

VERSION = "v1"
LINES = RedLines()
WORK_S = 0.02  # of a request at full fidelity, on average
WORK_AT = {MediaRung.FULL: 1.0, MediaRung.P360_8K: 0.55, MediaRung.P160_8K: 0.4}
SHAPE = 4.0  # of the work's distribution
Rate = Callable[[float, int], float]
"""Of a time, seconds, and a seed: requests a second."""


@dataclass(frozen=True)
class Swing:
    """How the rate goes, requests a second at each second; and who serves it."""

    name: str
    rate: Rate
    servers: int = 1
    fixed_s: float = 0.0  # of each latency, whatever the load and the rung
    work_s: float = WORK_S


def sine(period_s: float, low: float, high: float) -> Rate:
    middle, half = (high + low) / 2, (high - low) / 2
    return lambda at, _: middle - half * math.cos(2 * math.pi * at / period_s)


def square(period_s: float, low: float, high: float) -> Rate:
    return lambda at, _: high if at % period_s >= period_s / 2 else low


def noise(low: float, high: float) -> Rate:
    """Another rate every 20 s, of each seed its own."""

    @cache
    def rate_of(span: int, seed: int) -> float:
        return float(np.random.default_rng((seed, span)).uniform(low, high))

    return lambda at, seed: rate_of(int(at // 20), seed)


def once(began_s: float, lasts_s: float, low: float, high: float) -> Rate:
    return lambda at, _: high if began_s <= at < began_s + lasts_s else low


LOW, HIGH = 30.0, 49.0
HARD = Swing("sine of 10 minutes, past 360p", sine(600, 45.0, 86.0))
SPARSE = Swing("sine of 10 minutes, few requests", sine(600, 2.0, 5.5), work_s=0.1)
ONCE = Swing("one overload of 5 minutes", once(300, 300, 15.0, 70.0))
SWINGS = (
    Swing("sine of 2 minutes", sine(120, LOW, HIGH)),
    Swing("sine of 10 minutes", sine(600, LOW, HIGH)),
    Swing("sine of 30 minutes", sine(1800, LOW, HIGH)),
    Swing("sine of 60 minutes", sine(3600, LOW, HIGH)),
    Swing("step every 5 minutes", square(600, LOW, HIGH)),
    Swing("step every 20 minutes", square(2400, LOW, HIGH)),
    Swing("noise", noise(LOW, HIGH)),
    Swing("overload of 5 minutes", square(600, LOW, 70.0)),
    ONCE,
    Swing("sine of 10 minutes, four servers", sine(600, LOW, HIGH), servers=4),
    Swing("sine of 10 minutes, 150 ms fixed", sine(600, LOW, HIGH), fixed_s=0.15),
    HARD,
    SPARSE,
)


class Server:
    """First come, first served; what leaves it goes into the table at its time."""

    def __init__(self, swing: Swing, seed: int) -> None:
        self._swing = swing
        self._seed = seed
        self._chance = np.random.default_rng(seed)
        self.now = 0.0
        self.table = LatencyTable(LINES, clock=lambda: self.now)
        self.asked = self.late = 0
        self._free_at = [0.0] * swing.servers  # a heap
        self._given_s = 0.0  # work of all that has come
        # When, and its latency: None is overdue.
        self._events: list[tuple[float, float | None]] = []
        self._busy: deque[tuple[float, float]] = deque([(0.0, 0.0)])

    def second(self, rung: MediaRung) -> None:
        """What comes in the next second, at the rung of its coming, and what leaves in it."""
        many = int(self._chance.poisson(self._swing.rate(self.now, self._seed)))
        arrivals = np.sort(self._chance.uniform(self.now, self.now + 1.0, many))
        work_s = self._swing.work_s * WORK_AT[rung] * self._swing.servers
        works = self._chance.gamma(SHAPE, work_s / SHAPE, many)
        for at, work in zip(arrivals.tolist(), works.tolist(), strict=True):
            self._take(at, work)
        self._tell(self.now + 1.0)

    def busy_share(self) -> float:
        """Of the last latency window, how much the servers worked."""
        left_s = sum(max(0.0, free_at - self.now) for free_at in self._free_at)
        done = (self._given_s - left_s) / self._swing.servers
        self._busy.append((self.now, done))
        while self._busy[1][0] <= self.now - LINES.latency.window_s:
            self._busy.popleft()
        at, before = self._busy[0]
        return (done - before) / (self.now - at)

    def tables(self) -> Tables:
        return Tables(
            wall=self.now,
            windows=windows(LINES),
            lines=lines_shown(LINES),
            cache=(),
            cache_summary=(),
            latency=self.table.rows(self.now),
            faults=(),
        )

    def _take(self, at: float, work: float) -> None:
        done_at = max(self._free_at[0], at) + work
        heapreplace(self._free_at, done_at)
        self._given_s += work
        latency = done_at + self._swing.fixed_s - at
        self.asked += 1
        self._events.append((at + latency, latency))
        if latency > LINES.latency.degrade_s:
            self.late += 1
            self._events.append((at + LINES.latency.degrade_s, None))

    def _tell(self, until: float) -> None:
        self._events.sort(key=itemgetter(0))
        told = 0
        while told < len(self._events) and self._events[told][0] <= until:
            self.now, latency = self._events[told]
            told += 1
            if latency is None:
                self.table.overdue(VERSION, Milestone.FIRST_TOKEN)
            else:
                self.table.observe(VERSION, Milestone.FIRST_TOKEN, latency)
        del self._events[:told]
        self.now = until
