"""The three action rules, evaluated here while Prometheus is absent or its Watchdog is silent."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from alerts.firing import Firing
from alerts.names import AlertName
from alerts.policy import make
from alerts.rule import Rule
from alerts.wording import describe
from monitors.cache_table import CacheSummary
from monitors.fault_table import FaultRow
from monitors.labels import Milestone
from monitors.latency_table import LatencyRow
from monitors.metric import Label
from monitors.redlines import AlertLines, CacheLines, FaultLines, LatencyLines, RedLines
from monitors.tables import Tables


def prometheus_is_silent(heartbeat_age_s: float | None, lines: AlertLines) -> bool:
    """Whether to evaluate here: no Watchdog has come, or none for too long."""
    return heartbeat_age_s is None or heartbeat_age_s > lines.heartbeat_silence_s


# ---------------------------------------------------------------- is the line crossed?
def cache_is_crossed(row: CacheSummary, lines: CacheLines) -> bool:
    """S4.1: missing the cache and holding the memory, both at once. Unknown is not crossed."""
    return (
        row.hit_rate is not None
        and row.hit_rate < lines.hit_rate_floor
        and row.gpu_mem_gb is not None
        and row.gpu_mem_gb > lines.gpu_mem_gb
    )


def latency_is_crossed(row: LatencyRow, lines: LatencyLines) -> bool:
    """S4.2: the share of the window's requests that passed the degrade line."""
    return (
        row.over_share is not None
        and row.over_share > lines.degrade_exceedance
        and row.requests >= lines.min_count
    )


def faults_are_crossed(row: FaultRow, lines: FaultLines) -> bool:
    """S4.3: the share of the ring. Whether it is news the caller must know."""
    return row.rate is not None and row.rate > lines.rate and row.requests >= lines.min_count


# ---------------------------------------------------------------- inactive, pending, firing
class Phase(StrEnum):
    """The states of a Prometheus alert; an alert that is not known is inactive."""

    PENDING = "pending"
    FIRING = "firing"


@dataclass(frozen=True)
class Standing:
    """An alert whose line has been crossed without a break since `since` (monotonic seconds)."""

    phase: Phase
    since: float
    starts_at: float  # wall seconds


def advance(
    standing: Standing | None, crossed: bool, for_s: float, now: float, wall: float
) -> Standing | None:
    """The next state; None is inactive."""
    if not crossed:
        return None
    since, starts_at = (now, wall) if standing is None else (standing.since, standing.starts_at)
    return Standing(Phase.FIRING if now - since >= for_s else Phase.PENDING, since, starts_at)


# ---------------------------------------------------------------- the evaluator
Key = tuple[AlertName, str, Milestone | None]  # alert, version, milestone


class Evaluator:
    """Reads the tables once a tick. `now` is monotonic seconds, `wall` calendar seconds."""

    def __init__(self, lines: RedLines) -> None:
        self._lines = lines
        self._rules = {rule.name: rule for rule in make(lines).rules}
        self._standings: dict[Key, Standing] = {}
        self._finished: dict[str, int] | None = None  # at the last look; None: there was none
        self._finished_at: dict[str, float] = {}

    def tick(self, tables: Tables | None, now: float, wall: float) -> tuple[Firing, ...] | None:
        """What fires. None where the tables cannot be read: unknown, and every `for` restarts."""
        if tables is None:
            self._standings, self._finished = {}, None
            return None
        standings: dict[Key, Standing] = {}
        for key, crossed in self._crossings(tables, now):
            for_s = self._rules[key[0]].for_s
            standing = advance(self._standings.get(key), crossed, for_s, now, wall)
            if standing is not None:
                standings[key] = standing
        self._standings = standings
        return tuple(
            _firing(self._rules[key[0]], key, standing, self._lines)
            for key, standing in standings.items()
            if standing.phase is Phase.FIRING
        )

    def _crossings(self, tables: Tables, now: float) -> Iterator[tuple[Key, bool]]:
        for row in tables.cache_summary:
            crossed = cache_is_crossed(row, self._lines.cache)
            yield (AlertName.CACHE_BELOW_FLOOR, row.version, None), crossed
        for row in tables.latency:
            crossed = latency_is_crossed(row, self._lines.latency)
            yield (AlertName.LATENCY_DEGRADE, row.version, row.milestone), crossed
        totals = [row for row in tables.faults if row.fault is None]
        self._note_traffic(totals, now)
        for row in totals:
            crossed = faults_are_crossed(row, self._lines.faults)
            is_news = self._has_traffic(row.version, now)
            yield (AlertName.FAULT_RATE, row.version, None), crossed and is_news

    def _note_traffic(self, totals: Iterable[FaultRow], now: float) -> None:
        """What finished since the last look. At the first one nobody can tell when it did."""
        finished = {row.version: row.finished for row in totals}
        if self._finished is not None:
            for version, count in finished.items():
                if count != self._finished.get(version, 0):  # fewer: the data plane was restarted
                    self._finished_at[version] = now
        self._finished = finished

    def _has_traffic(self, version: str, now: float) -> bool:
        """The ring stands still without traffic: then what it holds is no news."""
        finished_at = self._finished_at.get(version)
        return finished_at is not None and now - finished_at < self._lines.faults.recent_s


def _firing(rule: Rule, key: Key, standing: Standing, lines: RedLines) -> Firing:
    """Labelled as Prometheus would, so that both name the same firing."""
    _, version, milestone = key
    labels = {
        "alertname": rule.name,
        "severity": rule.severity.value,
        "action": rule.action.value,
        "table": rule.table.value,
        Label.VERSION.value: version,
    }
    if milestone is not None:
        labels[Label.MILESTONE.value] = milestone.value
    return Firing(
        alert=rule.name,
        action=rule.action,
        version=version,
        labels=labels,
        starts_at=standing.starts_at,
        summary=describe(rule, lines),
    )
