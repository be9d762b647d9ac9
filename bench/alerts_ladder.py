"""The ladder under a load whose p99 swings around the line: how often it moves, and what is late.

The load model, and all that is assumed: requests come as a Poisson process whose rate swings by a
`Swing`; one server takes them first come, first served; a request's work is gamma distributed
(shape 4), its mean that of the media rung: 1, 0.55 and 0.4 of the full one. A first output leaves
when its request is done. The rate is such that full fidelity crosses the line for the upper part
of a swing only. Everything else is the project's own: the latency table on an injected clock, the
evaluator's rule with its minimum count, `decide`, and a tick a second. Steady flow is simulated;
engines batch and media come in slices, so the work ratios are examples, not measurements.

Beside it, on the same arrivals: a naive rule (a rung down while the alert fires, back when it is
resolved) and one with a dead band and a dwell, but no forecast.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from alerts.decide import decide
from alerts.evaluator import Evaluator
from alerts.firing import Firing
from alerts.forecast import History, load_of
from alerts.interim import table_rules
from alerts.ladder import rebuild
from monitors.contract import MediaRung
from monitors.labels import Action, Milestone
from monitors.latency_table import LatencyRow, LatencyTable
from monitors.redlines import RedLines
from monitors.tables import Tables, lines_shown, windows

HOUR_S = 3600
VERSION = "v1"
LINES = RedLines()
WORK_S = 0.02  # of a request at full fidelity, on average
WORK_AT = {MediaRung.FULL: 1.0, MediaRung.P360_8K: 0.55, MediaRung.P160_8K: 0.4}
SHAPE = 4.0  # of the work's distribution
MOST_TRANSITIONS, MOST_LATE = 2.0, 0.01
_RECOVERED = 0.8  # of the line: the dead band of the rule without a forecast


@dataclass(frozen=True)
class Swing:
    """How the rate goes: requests a second at each second of an hour."""

    name: str
    rate: Callable[[float, np.random.Generator], float]


def sine(period_s: float, low: float, high: float) -> Callable[..., float]:
    middle, half = (high + low) / 2, (high - low) / 2
    return lambda at, _: middle - half * math.cos(2 * math.pi * at / period_s)


def square(period_s: float, low: float, high: float) -> Callable[..., float]:
    return lambda at, _: high if at % period_s >= period_s / 2 else low


def noise(low: float, high: float) -> Callable[..., float]:
    """Another rate every 20 s."""
    rates: dict[int, float] = {}

    def rate(at: float, chance: np.random.Generator) -> float:
        return rates.setdefault(int(at // 20), float(chance.uniform(low, high)))

    return rate


LOW, HIGH = 30.0, 49.0
SWINGS = (
    Swing("sine of 2 minutes", sine(120, LOW, HIGH)),
    Swing("sine of 10 minutes", sine(600, LOW, HIGH)),
    Swing("sine of 30 minutes", sine(1800, LOW, HIGH)),
    Swing("sine of 60 minutes", sine(3600, LOW, HIGH)),
    Swing("step every 5 minutes", square(600, LOW, HIGH)),
    Swing("step every 20 minutes", square(2400, LOW, HIGH)),
    Swing("noise", noise(LOW, HIGH)),
    Swing("overload of 5 minutes", square(600, LOW, 70.0)),
)


# ---------------------------------------------------------------- the world
class Server:
    """First come, first served; what leaves it goes into the table at its time."""

    def __init__(self, seed: int) -> None:
        self._chance = np.random.default_rng(seed)
        self.now = 0.0
        self.table = LatencyTable(LINES, clock=lambda: self.now)
        self.asked = self.late = 0
        self._free_at = 0.0
        self._given_s = 0.0  # work of all that has come
        self._events: list[
            tuple[float, float | None]
        ] = []  # when, and its latency: None is overdue
        self._busy: deque[tuple[float, float]] = deque([(0.0, 0.0)])

    def second(self, swing: Swing, rung: MediaRung) -> None:
        """What comes in the next second, at the rung of its coming, and what leaves in it."""
        many = int(self._chance.poisson(swing.rate(self.now, self._chance)))
        arrivals = np.sort(self._chance.uniform(self.now, self.now + 1.0, many))
        works = self._chance.gamma(SHAPE, WORK_S * WORK_AT[rung] / SHAPE, many)
        for at, work in zip(arrivals.tolist(), works.tolist(), strict=True):
            self._take(at, work)
        self._tell(self.now + 1.0)

    def busy_share(self) -> float:
        """Of the last latency window, how much the server worked."""
        done = self._given_s - max(0.0, self._free_at - self.now)
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
        self._free_at = max(self._free_at, at) + work
        self._given_s += work
        latency = self._free_at - at
        self.asked += 1
        self._events.append((self._free_at, latency))
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


# ---------------------------------------------------------------- the rules that are compared
Firings = tuple[Firing, ...]


class WithForecast:
    """The project's own ladder."""

    def __init__(self) -> None:
        self._ladder = rebuild(VERSION, (), 0.0, LINES.ladder)
        self._history = History()

    def rung(self, firing: Firings, tables: Tables, busy_share: float) -> MediaRung:
        """One tick."""
        load = load_of(VERSION, tables, busy_share)
        self._history = self._history.noted(tables.wall, load)
        decision = decide(self._ladder, firing, self._history, tables.wall, LINES)
        self._ladder = decision.ladder
        return self._ladder.level.media


class Naive:
    """A rung down when the alert comes, full fidelity when it is gone."""

    def rung(self, firing: Firings, tables: Tables, busy_share: float) -> MediaRung:
        del tables, busy_share
        return MediaRung.P360_8K if _fires(firing) else MediaRung.FULL


class DeadBand:
    """A rung down at the alert; a rung back once p99 was under a share of the line for a dwell."""

    def __init__(self) -> None:
        self._rung = MediaRung.FULL
        self._since = 0.0

    def rung(self, firing: Firings, tables: Tables, busy_share: float) -> MediaRung:
        """One tick."""
        p99_s = load_of(VERSION, tables, busy_share).p99_s
        recovered = p99_s is None or p99_s < _RECOVERED * LINES.latency.degrade_s
        rested = tables.wall - self._since >= LINES.ladder.dwell_s
        if _fires(firing) and (self._rung is MediaRung.FULL or rested):
            self._move(min(self._rung + 1, max(MediaRung)), tables.wall)
        elif not recovered:
            self._since = max(self._since, tables.wall) if self._rung else self._since
        elif self._rung and rested:
            self._move(self._rung - 1, tables.wall)
        return self._rung

    def _move(self, rung: int, now: float) -> None:
        if rung != self._rung:
            self._rung, self._since = MediaRung(rung), now


Rule = WithForecast | Naive | DeadBand
RULES: dict[str, type[Rule]] = {"": WithForecast, "naive": Naive, "dead band and dwell": DeadBand}


def _fires(firing: Firings) -> bool:
    return any(alert.action is Action.DEGRADE_MEDIA for alert in firing)


# ---------------------------------------------------------------- an hour
@dataclass(frozen=True)
class Hour:
    transitions: float  # an hour
    above: float  # share of the time in which table 2 was past the line
    late: float  # share of the requests
    degraded: float  # share of the time below full fidelity


def replay(swing: Swing, rule: Rule, seed: int, seconds: int = HOUR_S) -> Hour:
    """The swing's arrivals, and what the rule made of them."""
    server, rung = Server(seed), MediaRung.FULL
    evaluator = Evaluator(table_rules(LINES), (), LINES)
    moves = above = degraded = 0
    for _ in range(seconds):
        server.second(swing, rung)
        tables = server.tables()
        firing = evaluator.tick(tables, None, server.now, server.now).firing
        wanted = rule.rung(firing, tables, server.busy_share())
        moves += wanted is not rung
        above += any(_is_above(row) for row in tables.latency)
        degraded += bool(wanted)
        rung = wanted
    return Hour(
        transitions=moves * HOUR_S / seconds,
        above=above / seconds,
        late=server.late / max(server.asked, 1),
        degraded=degraded / seconds,
    )


def _is_above(row: LatencyRow) -> bool:
    return row.over_share is not None and row.over_share > LINES.latency.degrade_exceedance
