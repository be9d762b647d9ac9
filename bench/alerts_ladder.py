"""The ladder under a load whose p99 swings around the line: how often it moves, and what is late.

The load is that of `bench.ladder_load`. Everything else is the project's own: the latency table on
an injected clock, the policy's rules with their minimum counts, `decide`, a tick a second. Moves
are of all parts; those other than media, which this load hardly asks for, change nothing of it.

Beside it, on the same arrivals: a naive rule (a rung down while the alert fires, back when it is
resolved), one with a dead band and a dwell, but no forecast, and a latch, which never comes back:
it moves least and is late least, and nobody has full fidelity again.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import mean, stdev

from alerts.decide import decide
from alerts.evaluator import Evaluator
from alerts.firing import Firing
from alerts.forecast import History, kept_s, load_of
from alerts.ladder import rebuild
from alerts.policy import make
from bench.board import Figure, options, show
from bench.ladder_load import HARD, LINES, ONCE, SPARSE, SWINGS, VERSION, Server, Swing
from monitors.contract import MediaRung
from monitors.labels import Action
from monitors.latency_table import LatencyRow
from monitors.tables import Tables

HOUR_S = 3600
POLICY = make(LINES)
MOST_TRANSITIONS, MOST_LATE = 2.0, 0.01
_RECOVERED = 0.8  # of the line: the dead band of the rule without a forecast


# ---------------------------------------------------------------- the rules that are compared
Firings = tuple[Firing, ...]


class WithForecast:
    """The project's own ladder."""

    def __init__(self) -> None:
        self.moves = 0
        self._ladder = rebuild(VERSION, (), 0.0, LINES.ladder)
        self._history = History()

    def rung(self, firing: Firings, tables: Tables, busy_share: float) -> MediaRung:
        """One tick."""
        load = load_of(VERSION, tables, LINES.latency.min_count, busy_share=busy_share)
        self._history = self._history.noted(tables.wall, load, kept_s(LINES.ladder))
        decision = decide(self._ladder, firing, self._history, tables.wall, LINES)
        self._ladder = decision.ladder
        self.moves += len(decision.moves)
        return self._ladder.level.media


class Peer(ABC):
    """A rule that moves media alone, by the alert and the p99."""

    def __init__(self) -> None:
        self.moves = 0
        self._rung = MediaRung.FULL
        self._since = 0.0  # it moved, or was not recovered

    def rung(self, firing: Firings, tables: Tables, busy_share: float) -> MediaRung:
        """One tick."""
        load = load_of(VERSION, tables, LINES.latency.min_count, busy_share=busy_share)
        fires = any(alert.action is Action.DEGRADE_MEDIA for alert in firing)
        wanted = min(max(self.wanted(load.p99_s, tables.wall, fires=fires), 0), max(MediaRung))
        if wanted != self._rung:
            self._rung, self._since = MediaRung(wanted), tables.wall
            self.moves += 1
        return self._rung

    @abstractmethod
    def wanted(self, p99_s: float | None, now: float, *, fires: bool) -> int:
        """The rung to be on."""

    def _rested(self, now: float) -> bool:
        return now - self._since >= LINES.ladder.dwell_s


class Naive(Peer):
    """A rung down when the alert comes, full fidelity when it is gone."""

    def wanted(self, p99_s: float | None, now: float, *, fires: bool) -> int:
        del p99_s, now
        return MediaRung.P360_8K if fires else MediaRung.FULL


class Latch(Peer):
    """A rung down at the alert, another where it still fires after a dwell; and never back."""

    def wanted(self, p99_s: float | None, now: float, *, fires: bool) -> int:
        del p99_s
        return self._rung + (fires and (self._rung is MediaRung.FULL or self._rested(now)))


class DeadBand(Latch):
    """As the latch, and a rung back once p99 was under a share of the line for a dwell."""

    def wanted(self, p99_s: float | None, now: float, *, fires: bool) -> int:
        """The rung to be on."""
        worse = super().wanted(p99_s, now, fires=fires)
        if worse > self._rung:
            return worse
        if p99_s is not None and p99_s >= _RECOVERED * LINES.latency.degrade_s:
            self._since = now if self._rung else self._since
            return self._rung
        return self._rung - self._rested(now)


Rule = WithForecast | Peer
RULES: dict[str, type[WithForecast] | type[Peer]] = {
    "the ladder": WithForecast,
    "naive": Naive,
    "dead band": DeadBand,
    "latch": Latch,
}
OURS, *PEERS = RULES


# ---------------------------------------------------------------- hours
@dataclass(frozen=True)
class Hour:
    transitions: int  # of all parts
    above: float  # share of the time in which table 2 was past the line
    late: float  # share of the requests
    full: float  # share of the time at full fidelity


def replay(swing: Swing, rule: Rule, seed: int, hours: int, hour_s: int = HOUR_S) -> list[Hour]:
    """The swing's arrivals, and what the rule made of them, hour by hour."""
    server, evaluator, rung = Server(swing, seed), Evaluator(POLICY), MediaRung.FULL
    found: list[Hour] = []
    for _ in range(hours):
        moves, asked, late = rule.moves, server.asked, server.late
        above = full = 0
        for _ in range(hour_s):
            server.second(rung)
            tables = server.tables()
            firing = evaluator.tick(tables, None, server.now, server.now).firing
            rung = rule.rung(firing, tables, server.busy_share())
            above += any(_is_above(row) for row in tables.latency)
            full += rung is MediaRung.FULL
        found.append(
            Hour(
                transitions=rule.moves - moves,
                above=above / hour_s,
                late=(server.late - late) / max(server.asked - asked, 1),
                full=full / hour_s,
            )
        )
    return found


def _is_above(row: LatencyRow) -> bool:
    return row.over_share is not None and row.over_share > LINES.latency.degrade_exceedance


# ---------------------------------------------------------------- the figures
@dataclass(frozen=True)
class Size:
    """How much is replayed."""

    swings: tuple[Swing, ...]
    seeds: int
    hours: int


FULL = Size(SWINGS, seeds=3, hours=6)
QUICK = Size((ONCE, HARD, SPARSE), seeds=2, hours=3)
_T = {2: 12.706, 3: 4.303}  # Student's, for 95 % of the mean of so many


@dataclass(frozen=True)
class Measure:
    """One thing that is read off an hour, its unit, and what is asked of the ladder's mean."""

    name: str
    unit: str
    read: Callable[[Hour], float]
    target: float | None = None
    sign: float = 1.0  # -1: the lowest is the worst


MEASURES = (
    Measure("transitions", "per hour", lambda hour: hour.transitions, MOST_TRANSITIONS),
    Measure("time above the line", "%", lambda hour: 100.0 * hour.above, 100.0 * MOST_LATE),
    Measure("requests past the line", "%", lambda hour: 100.0 * hour.late),
    Measure("time at full fidelity", "%", lambda hour: 100.0 * hour.full, sign=-1.0),
)
Found = dict[tuple[str, str], list[list[Hour]]]
"""By rule and swing: of each seed its hours."""


def figures(quick: bool) -> list[Figure]:
    """Means over the hours: of all swings together, of the worst one, and of two by themselves; and
    the worst hour of all. An interval is over seeds."""
    size = QUICK if quick else FULL
    found: Found = {
        (name, swing.name): [replay(swing, rule(), seed, size.hours) for seed in range(size.seeds)]
        for name, rule in RULES.items()
        for swing in size.swings
    }
    ours = [figure for measure in MEASURES for figure in _ours(measure, found, size)]
    peers = [
        _figure(f"{measure.name}, {rule}", _all(measure, rule, found, size), measure.unit)
        for rule in PEERS
        for measure in MEASURES
    ]
    return ours + peers


def _ours(measure: Measure, found: Found, size: Size) -> Iterator[Figure]:
    name, asked = f"{measure.name}, {OURS}", measure.target

    def told(what: str, read: Callable[[str], list[float]]) -> Figure:
        peer = "; ".join(f"{other} {mean(read(other)):.3g}" for other in PEERS)
        return _figure(f"{name}, {what}", read(OURS), measure.unit, asked, peer)

    yield told("all swings", lambda rule: _all(measure, rule, found, size))
    by_swing = {swing.name: _of(measure, found[OURS, swing.name]) for swing in size.swings}
    worst = max(by_swing, key=lambda name: measure.sign * mean(by_swing[name]))
    for what, swing in ((f"worst ({worst})", worst), *((s.name, s.name) for s in (SPARSE, ONCE))):
        yield told(what, lambda rule, swing=swing: _of(measure, found[rule, swing]))
    hours = [
        (measure.read(hour), swing.name, number)
        for swing in size.swings
        for seed in found[OURS, swing.name]
        for number, hour in enumerate(seed, start=1)
    ]
    value, swing_name, number = max(hours, key=lambda each: measure.sign * each[0])
    yield Figure(f"{name}, worst hour ({swing_name}, hour {number})", value, measure.unit, None, "")


def _all(measure: Measure, rule: str, found: Found, size: Size) -> list[float]:
    """The mean over swings and hours, of each seed."""
    by_swing = [_of(measure, found[rule, swing.name]) for swing in size.swings]
    return [mean(values) for values in zip(*by_swing, strict=True)]


def _of(measure: Measure, seeds: list[list[Hour]]) -> list[float]:
    """The mean over the hours, of each seed."""
    return [mean(map(measure.read, hours)) for hours in seeds]


def _figure(
    bar: str, values: list[float], unit: str, target: float | None = None, peer: str = ""
) -> Figure:
    half = _T[len(values)] * stdev(values) / math.sqrt(len(values))
    middle = mean(values)
    return Figure(bar, middle, unit, target, peer, low=middle - half, high=middle + half)


def main() -> None:
    """The section alone."""
    asked = options("The ladder under a load whose p99 swings around the line.")
    show(figures(asked.quick), as_json=asked.json)


if __name__ == "__main__":
    main()
