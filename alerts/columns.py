"""The table columns that a rule may compare: in `/tables`, and as series in Prometheus."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from alerts.promql import select
from monitors import catalog, recorded
from monitors.cache_table import GB, CacheSummary
from monitors.fault_table import FaultRow
from monitors.labels import Mark, Milestone
from monitors.latency_table import LatencyRow
from monitors.metric import Label, Metric, Table
from monitors.tables import Tables

Row = CacheSummary | LatencyRow | FaultRow
_BY_VERSION = (Label.VERSION,)
_BY_MILESTONE = (Label.VERSION, Label.MILESTONE)


class UnknownColumn(ValueError):
    """A column that no rule may compare; the message says which one to use instead."""


@dataclass(frozen=True)
class Column:
    """One column: `series` is the PromQL that gives the same value, with just these `labels`.

    `scale`: units of the series in one unit of the column, as bytes in a GB.
    """

    table: Table
    name: str
    series: str
    labels: tuple[Label, ...]
    scale: float = 1.0

    def read(self, row: Row) -> float | None:
        """The value in a row of the table. None is unknown."""
        value: float | int | None = getattr(row, self.name)
        return None if value is None else float(value)

    def expr(self, milestone: Milestone | None = None) -> str:
        """The PromQL, of one first output where one is named."""
        if milestone is None:
            return self.series
        return f'{self.series}{{{Label.MILESTONE}="{milestone}"}}'


def rows_of(tables: Tables, table: Table) -> tuple[Row, ...]:
    """The rows that a rule on `table` reads: of a version, or of a version and first output."""
    match table:
        case Table.CACHE:
            return tables.cache_summary
        case Table.LATENCY:
            return tables.latency
        case Table.FAULTS:
            return tuple(row for row in tables.faults if row.fault is None)


def _by_version(metric: Metric, *matchers: str) -> str:
    return f"sum by ({Label.VERSION}) ({select(metric, *matchers)})"


def _cache(name: str, series: str, scale: float = 1.0) -> Column:
    return Column(Table.CACHE, name, series, _BY_VERSION, scale)


def _latency(name: str, series: str) -> Column:
    return Column(Table.LATENCY, name, series, _BY_MILESTONE)


def _faults(name: str, series: str) -> Column:
    return Column(Table.FAULTS, name, series, _BY_VERSION)


def _ring(mark: Mark) -> str:
    return _by_version(catalog.FAULT_WINDOW_FAULTED, f'{Label.MARK}="{mark}"')


def _bound(end: str) -> str:
    return _by_version(catalog.FAULT_WINDOW_BOUND, f'{Label.BOUND}="{end}"')


COLUMNS: tuple[Column, ...] = (
    _cache("hit_rate", recorded.HIT_RATE.name),
    _cache("gpu_mem_gb", recorded.LIVE_BYTES_BY_VERSION.name, GB),
    _latency("over_share", recorded.OVERDUE_SHARE.name),
    _latency("slow_share", recorded.SLOW_SHARE.name),
    _latency("requests", recorded.FIRST_OUTPUT_REQUESTS.name),
    _faults("rate", recorded.FAULT_RATE.name),
    _faults("rate_low", _bound("low")),
    _faults("rate_high", _bound("high")),
    _faults("requests", _by_version(catalog.FAULT_WINDOW_REQUESTS)),
    _faults("faulted", _ring(Mark.HARD)),
    _faults("soft", _ring(Mark.SOFT)),
    _faults("input_only", _ring(Mark.INPUT_ONLY)),
)
_BY_NAME = {(column.table, column.name): column for column in COLUMNS}

# Quantiles are for looking at: Prometheus interpolates them between a histogram's bounds (ADR 4).
_INSTEAD_OF_QUANTILES: Mapping[str, str] = MappingProxyType(
    {"p50_s": "over_share", "p95_s": "slow_share", "p99_s": "over_share"}
)


def column(table: Table, name: str) -> Column:
    """The column of that name. Raises `UnknownColumn`."""
    found = _BY_NAME.get((table, name))
    if found is not None:
        return found
    instead = _INSTEAD_OF_QUANTILES.get(name) if table is Table.LATENCY else None
    if instead is not None:
        raise UnknownColumn(
            f"{name} is a quantile, interpolated in Prometheus: it may say 0.498 s where all took "
            f"under 0.3 s; compare {instead}, a share of counts, with the share that may be late"
        )
    known = ", ".join(each.name for each in COLUMNS if each.table is table)
    raise UnknownColumn(f"table {table} has no column {name} to compare; it has: {known}")


def count_column(table: Table) -> Column | None:
    """What a rule's minimum count is of: requests. The cache table counts none."""
    return _BY_NAME.get((table, "requests"))
