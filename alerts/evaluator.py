"""The three action rules, evaluated here while Prometheus is absent or its Watchdog is silent."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from alerts.firing import Firing
from alerts.policy import Alert, AlertName, policy
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


def latency_is_crossed(requests: int, overdue: int, lines: LatencyLines) -> bool:
    """S4.2: the share of `requests` in the window that passed the degrade line."""
    return requests >= lines.min_count and overdue > lines.degrade_exceedance * requests


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
        self._alerts = {alert.name: alert for alert in policy(lines)}
        self._standings: dict[Key, Standing] = {}
        self._counts: dict[tuple[str, Milestone], _Counts] = {}
        self._moved_at: dict[str, float] = {}

    def tick(self, tables: Tables | None, now: float, wall: float) -> tuple[Firing, ...] | None:
        """What fires. None where the tables cannot be read: unknown, and every `for` restarts."""
        if tables is None:
            self._standings, self._counts = {}, {}
            return None
        standings: dict[Key, Standing] = {}
        for key, crossed in self._crossings(tables, now):
            for_s = self._alerts[key[0]].for_s
            standing = advance(self._standings.get(key), crossed, for_s, now, wall)
            if standing is not None:
                standings[key] = standing
        self._standings = standings
        return tuple(
            _firing(self._alerts[key[0]], key, standing)
            for key, standing in standings.items()
            if standing.phase is Phase.FIRING
        )

    def _crossings(self, tables: Tables, now: float) -> Iterator[tuple[Key, bool]]:
        for row in tables.cache_summary:
            crossed = cache_is_crossed(row, self._lines.cache)
            yield (AlertName.CACHE_BELOW_FLOOR, row.version, None), crossed
        for row in tables.latency:
            requests, overdue = self._recent(row, now)
            crossed = latency_is_crossed(requests, overdue, self._lines.latency)
            yield (AlertName.LATENCY_DEGRADE, row.version, row.milestone), crossed
        for row in tables.faults:
            if row.fault is None:
                crossed = faults_are_crossed(row, self._lines.faults)
                is_news = self._has_traffic(row.version, now)
                yield (AlertName.FAULT_RATE, row.version, None), crossed and is_news

    def _recent(self, row: LatencyRow, now: float) -> tuple[int, int]:
        """(requests, overdue ones) of the window."""
        counts = self._counts.get((row.version, row.milestone))
        if counts is None or counts.restarted(row):
            counts = self._counts[row.version, row.milestone] = _Counts()
        if counts.append(row, now, self._lines.latency.window_s):
            self._moved_at[row.version] = now
        return counts.gained()

    def _has_traffic(self, version: str, now: float) -> bool:
        """The ring stands still without traffic: then what it holds is no news."""
        moved_at = self._moved_at.get(version)
        return moved_at is not None and now - moved_at < self._lines.faults.recent_s


class _Counts:
    """One latency row's counters over the window."""

    def __init__(self) -> None:
        self._history: deque[tuple[float, int, int]] = deque()  # (seen at, count, over)

    def restarted(self, row: LatencyRow) -> bool:
        """Whether the data plane counts from 0 again."""
        _, count, over = self._history[-1]
        return row.count < count or row.over < over

    def append(self, row: LatencyRow, now: float, window_s: float) -> bool:
        """Take the newest counts; whether they moved."""
        moved = bool(self._history) and self._history[-1][1:] != (row.count, row.over)
        self._history.append((now, row.count, row.over))
        while len(self._history) > 1 and self._history[1][0] <= now - window_s:
            self._history.popleft()
        return moved

    def gained(self) -> tuple[int, int]:
        """A late request is in both counters, a hung one in `over` alone: the share of those
        overdue is exact while none hangs and never too low."""
        (_, count, over), (_, newest_count, newest_over) = self._history[0], self._history[-1]
        overdue = newest_over - over
        return max(newest_count - count, overdue), overdue


def _firing(alert: Alert, key: Key, standing: Standing) -> Firing:
    """Labelled as Prometheus would, so that both name the same firing."""
    _, version, milestone = key
    labels = {
        "alertname": alert.name.value,
        "severity": alert.severity.value,
        "action": alert.action.value,
        "table": str(alert.table),
        Label.VERSION.value: version,
    }
    if milestone is not None:
        labels[Label.MILESTONE.value] = milestone.value
    return Firing(
        alert=alert.name,
        action=alert.action,
        version=version,
        labels=labels,
        starts_at=standing.starts_at,
        summary=alert.when,
    )
