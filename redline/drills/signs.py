"""How each step of a drill is recognised in what the parts of a stack tell."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from alerts.columns import Row, rows_of
from alerts.firing import NEWS, AlertNews, Source
from alerts.parts import Part
from alerts.rule import Rule
from monitors.cache_table import CacheSummary
from monitors.contract import Level, ResidentStatus
from monitors.fault_table import FaultRow
from monitors.latency_table import LatencyRow
from monitors.rungs import shown
from monitors.tables import Lines
from redline.control.api import JournalLine
from redline.control.ladder_events import MOVED
from redline.drills.timeline import Mark
from redline.drills.watch import AlertmanagerAlert, PrometheusAlert, Sight

Sign = Callable[[Sight], Mark | None]

TABLES, GATEWAY, DATA_PLANE, CONTROL = "/tables", "gateway", "data plane", "control plane"
JOURNAL, PROMETHEUS, ALERTMANAGER = "journal", "Prometheus", "Alertmanager"


# ---------------------------------------------------------------- what the tables show
def breach(rule: Rule, version: str) -> Sign:
    """The first tables in which the rule holds."""

    def sign(sight: Sight) -> Mark | None:
        rows = () if sight.tables is None else rows_of(sight.tables, rule.table)
        for row in rows:
            if sight.tables is not None and row.version == version and rule.holds(row):
                return Mark(sight.tables.wall, _row(row, sight.tables.lines), TABLES)
        return None

    return sign


def _row(row: Row, lines: Lines) -> str:
    match row:
        case CacheSummary():
            return f"hit rate {row.hit_rate:.1%}, {_megabytes(row.gpu_mem_gb)} live"
        case LatencyRow():
            late = f"{lines.degrade_s * 1000:.0f} ms to {row.milestone}"
            return f"{row.over_share:.0%} of {row.requests} requests past {late}"
        case FaultRow():
            return f"{row.faulted} of {row.requests} requests at fault"


def live_gb(sight: Sight, version: str) -> float | None:
    """GB of live pages on the device; None: unknown."""
    rows = () if sight.tables is None else sight.tables.cache_summary
    return next((row.gpu_mem_gb for row in rows if row.version == version), None)


def pool_below(version: str, limit_gb: float) -> Sign:
    """Live pages take so much less than they did."""

    def sign(sight: Sight) -> Mark | None:
        held = live_gb(sight, version)
        if sight.tables is None or held is None or held > limit_gb:
            return None
        return Mark(sight.tables.wall, f"{_megabytes(held)} live", TABLES)

    return sign


def _megabytes(gigabytes: float | None) -> str:
    return "unknown" if gigabytes is None else f"{gigabytes * 1000:.1f} MB"


# ---------------------------------------------------------------- alerts
def pending(alert: str, version: str) -> Sign:
    """Prometheus has seen the breach."""

    def sign(sight: Sight) -> Mark | None:
        found = _in_prometheus(sight, alert, version)
        if found is None:
            return None
        return Mark(found.active_at.timestamp(), f"{alert} is pending", PROMETHEUS)

    return sign


def firing(alert: str, version: str) -> Sign:
    """Alertmanager has it: by its own account of when it began to fire."""

    def sign(sight: Sight) -> Mark | None:
        found = _in_alertmanager(sight, alert, version)
        if found is None:
            return None
        return Mark(found.starts_at.timestamp(), f"{alert} fires", ALERTMANAGER)

    return sign


def heard(alert: str, version: str) -> Sign:
    """The control plane has heard that it fires: the first that it journalled since the watch
    began."""

    def sign(sight: Sight) -> Mark | None:
        for news in _news(sight, alert, version):
            if news.state == "firing":
                return Mark(news.heard_at, f"{alert} fires, says {news.source}", JOURNAL)
        return None

    return sign


def _news(sight: Sight, alert: str, version: str) -> Iterator[AlertNews]:
    for line in sight.journal:
        if line.kind == NEWS:
            news = msgspec.convert(line.body, AlertNews)
            if (news.alert, news.version) == (alert, version):
                yield news


def resolved(alert: str, version: str) -> Sign:
    """Nobody who answers says any more that it fires."""

    def sign(sight: Sight) -> Mark | None:
        quiet = sight.control is not None and sight.control.firing is not None
        if not quiet or _fires(sight, alert, version):
            return None
        if any(f(sight, alert, version) for f in (_in_prometheus, _in_alertmanager)):
            return None
        return Mark(sight.wall, f"{alert} no longer fires", "all that answer")

    return sign


def _fires(sight: Sight, alert: str, version: str) -> bool:
    firing = None if sight.control is None else sight.control.firing
    return any(one.alert == alert and one.version == version for one in firing or ())


def _in_prometheus(sight: Sight, alert: str, version: str) -> PrometheusAlert | None:
    found = (one for one in sight.prometheus or () if _is(one.labels, alert, version))
    return min(found, key=lambda one: one.active_at, default=None)


def _in_alertmanager(sight: Sight, alert: str, version: str) -> AlertmanagerAlert | None:
    found = (one for one in sight.alertmanager or () if _is(one.labels, alert, version))
    return min(found, key=lambda one: one.starts_at, default=None)


def _is(labels: dict[str, str], alert: str, version: str) -> bool:
    return labels.get("alertname") == alert and labels.get("version") == version


# ---------------------------------------------------------------- the ladder
def moves(sight: Sight, part: Part, version: str) -> Iterator[tuple[JournalLine, int]]:
    """The journal's moves of one part since the watch began, each with its rung."""
    for line in sight.journal:
        body: Any = line.body
        if line.kind == MOVED and body["version"] == version and body["part"] == part:
            yield line, int(body["rung"])


def lowered(part: Part, version: str) -> Sign:
    """The move away from full fidelity, as journalled."""
    return _moved(part, version, lambda rung: rung > 0)


def eased(part: Part, version: str) -> Sign:
    """The move back to full, as journalled."""
    return _moved(part, version, lambda rung: rung == 0)


def _moved(part: Part, version: str, wanted: Callable[[int], bool]) -> Sign:
    def sign(sight: Sight) -> Mark | None:
        for line, rung in moves(sight, part, version):
            if wanted(rung):
                return Mark(line.wall, line.story or line.kind, JOURNAL)
        return None

    return sign


def resident(sight: Sight, version: str) -> ResidentStatus | None:
    """What the data plane says of one version."""
    known = () if sight.observed is None else sight.observed.residents
    return next((one for one in known if one.version == version), None)


def rung(level: Level, part: Part) -> int:
    """One part of a level as a number; 0 is full."""
    return int(getattr(level, part))


def held(part: Part, version: str) -> Sign:
    """The data plane holds a lower rung."""

    def sign(sight: Sight) -> Mark | None:
        found = resident(sight, version)
        if found is None or not rung(found.level, part):
            return None
        return Mark(sight.wall, f"{version}: {part} at rung {rung(found.level, part)}", DATA_PLANE)

    return sign


def restored(was: ResidentStatus) -> Sign:
    """The data plane holds no part of it lower than it was."""

    def sign(sight: Sight) -> Mark | None:
        found = resident(sight, was.version)
        if found is None or any(rung(found.level, p) > rung(was.level, p) for p in Part):
            return None
        return Mark(sight.wall, f"{was.version}: {shown(found.level)}", DATA_PLANE)

    return sign


# ---------------------------------------------------------------- who evaluates, who leads
def evaluates(source: Source) -> Sign:
    """Who evaluates the rules."""

    def sign(sight: Sight) -> Mark | None:
        if sight.control is None or sight.control.rule_source != source:
            return None
        return Mark(sight.control.wall, f"rules evaluated by {source}", CONTROL)

    return sign


def leads(newer_than: int) -> Sign:
    """A control plane leads under a later epoch."""

    def sign(sight: Sight) -> Mark | None:
        epoch = None if sight.control is None else sight.control.leader_epoch
        if sight.control is None or epoch is None or epoch <= newer_than:
            return None
        return Mark(sight.control.wall, f"leads under epoch {epoch}", CONTROL)

    return sign
