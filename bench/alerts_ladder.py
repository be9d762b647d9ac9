"""The ladder under a load whose p99 swings around the line: how often it moves, and what is late.

The load model, and all that is assumed: requests come as a Poisson process whose rate swings; a
request's work is gamma distributed (shape 4), its mean that of the media rung: 1, 0.55 and 0.4 of
the full one; servers take requests first come, first served, and a first output leaves when its
request is done. The rate is such that full fidelity crosses the line for the upper part of a swing
only. One server is what the ladder's forecast takes a resident for; so that it is not only tried
on its own assumption, two swings are served otherwise: by four servers of a quarter of the speed,
and with 150 ms that no load and no rung changes. Everything else is the project's own: the latency
table on an injected clock, the policy's rules with their minimum counts, `decide`, a tick a second.
Engines batch and media comes in slices: the work ratios are examples, not measurements.

Beside it, on the same arrivals: a naive rule (a rung down while the alert fires, back when it is
resolved) and one with a dead band and a dwell, but no forecast.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapreplace
from operator import itemgetter
from statistics import mean, stdev

import numpy as np

from alerts.decide import decide
from alerts.evaluator import Evaluator
from alerts.firing import Firing
from alerts.forecast import History, kept_s, load_of
from alerts.ladder import rebuild
from alerts.policy import make
from bench.board import Figure, options, show
from monitors.contract import MediaRung
from monitors.labels import Action, Milestone
from monitors.latency_table import LatencyRow, LatencyTable
from monitors.redlines import RedLines
from monitors.tables import Tables, lines_shown, windows

HOUR_S = 3600
VERSION = "v1"
LINES = RedLines()
POLICY = make(LINES)
WORK_S = 0.02  # of a request at full fidelity, on average
WORK_AT = {MediaRung.FULL: 1.0, MediaRung.P360_8K: 0.55, MediaRung.P160_8K: 0.4}
SHAPE = 4.0  # of the work's distribution
MOST_TRANSITIONS, MOST_LATE = 2.0, 0.01
_RECOVERED = 0.8  # of the line: the dead band of the rule without a forecast


@dataclass(frozen=True)
class Swing:
    """How the rate goes, requests a second at each second; and who serves it."""

    name: str
    rate: Callable[[float, np.random.Generator], float]
    servers: int = 1
    fixed_s: float = 0.0  # of each latency, whatever the load and the rung


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


def once(began_s: float, lasts_s: float, low: float, high: float) -> Callable[..., float]:
    return lambda at, _: high if began_s <= at < began_s + lasts_s else low


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
    Swing("one overload of 5 minutes", once(300, 300, 15.0, 70.0)),
    Swing("sine of 10 minutes, four servers", sine(600, LOW, HIGH), servers=4),
    Swing("sine of 10 minutes, 150 ms fixed", sine(600, LOW, HIGH), fixed_s=0.15),
)


# ---------------------------------------------------------------- the world
class Server:
    """First come, first served; what leaves it goes into the table at its time."""

    def __init__(self, swing: Swing, seed: int) -> None:
        self._swing = swing
        self._chance = np.random.default_rng(seed)
        self.now = 0.0
        self.table = LatencyTable(LINES, clock=lambda: self.now)
        self.asked = self.late = 0
        self._free_at = [0.0] * swing.servers  # a heap
        self._given_s = 0.0  # work of all that has come
        self._events: list[
            tuple[float, float | None]
        ] = []  # when, and its latency: None is overdue
        self._busy: deque[tuple[float, float]] = deque([(0.0, 0.0)])

    def second(self, rung: MediaRung) -> None:
        """What comes in the next second, at the rung of its coming, and what leaves in it."""
        many = int(self._chance.poisson(self._swing.rate(self.now, self._chance)))
        arrivals = np.sort(self._chance.uniform(self.now, self.now + 1.0, many))
        work_s = WORK_S * WORK_AT[rung] * self._swing.servers
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


# ---------------------------------------------------------------- the rules that are compared
Firings = tuple[Firing, ...]


class WithForecast:
    """The project's own ladder."""

    def __init__(self) -> None:
        self._ladder = rebuild(VERSION, (), 0.0, LINES.ladder)
        self._history = History()

    def rung(self, firing: Firings, tables: Tables, busy_share: float) -> MediaRung:
        """One tick."""
        load = load_of(VERSION, tables, LINES.latency.min_count, busy_share=busy_share)
        self._history = self._history.noted(tables.wall, load, kept_s(LINES.ladder))
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
        p99_s = load_of(VERSION, tables, LINES.latency.min_count, busy_share=busy_share).p99_s
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
    server, rung = Server(swing, seed), MediaRung.FULL
    evaluator = Evaluator(POLICY)
    moves = above = degraded = 0
    for _ in range(seconds):
        server.second(rung)
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


# ---------------------------------------------------------------- the figures
SEEDS, QUICK_SEEDS = 8, 2


def figures(quick: bool) -> list[Figure]:
    """Over all swings together, and of the worst one; the interval is over seeds."""
    seeds = range(QUICK_SEEDS if quick else SEEDS)
    hours = {
        (name, swing.name): [replay(swing, rule(), seed) for seed in seeds]
        for name, rule in RULES.items()
        for swing in SWINGS
    }
    told: list[Figure] = []
    for rule in RULES:
        is_ours = not rule
        peer = _beside(hours) if is_ours else ""
        for what, read, target in (
            ("transitions", lambda hour: hour.transitions, MOST_TRANSITIONS),
            ("time above the line", lambda hour: 100.0 * hour.above, 100.0 * MOST_LATE),
            ("requests past the line", lambda hour: 100.0 * hour.late, None),
            ("time below full fidelity", lambda hour: 100.0 * hour.degraded, None),
        ):
            unit = "per hour" if what == "transitions" else "%"
            by_swing = {
                swing.name: [read(hour) for hour in hours[rule, swing.name]] for swing in SWINGS
            }
            of_seeds = [mean(values[seed] for values in by_swing.values()) for seed in seeds]
            worst = max(by_swing, key=lambda name: mean(by_swing[name]))
            name = f"{what}, {rule or 'the ladder'}"
            asked = target if is_ours else None
            told.append(_figure(f"{name}, all swings", of_seeds, unit, asked, peer))
            told.append(_figure(f"{name}, worst ({worst})", by_swing[worst], unit, asked, ""))
    return told


def _beside(hours: dict[tuple[str, str], list[Hour]]) -> str:
    """What the other rules reach on the same arrivals."""
    words: list[str] = []
    for rule in filter(None, RULES):
        of_rule = [hour for (name, _), of in hours.items() if name == rule for hour in of]
        moves, above = mean(h.transitions for h in of_rule), mean(h.above for h in of_rule)
        words.append(f"{rule}: {moves:.0f}/h, {above:.0%} above")
    return "; ".join(words)


def _figure(bar: str, values: list[float], unit: str, target: float | None, peer: str) -> Figure:
    half = 1.96 * stdev(values) / math.sqrt(len(values))
    middle = mean(values)
    return Figure(bar, middle, unit, target, peer, low=middle - half, high=middle + half)


def main() -> None:
    """The section alone."""
    asked = options("The ladder under a load whose p99 swings around the line.")
    show(figures(asked.quick), as_json=asked.json)


if __name__ == "__main__":
    main()
