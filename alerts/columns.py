"""The table columns that a rule may compare: in `/tables`, and as series in Prometheus."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
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


class ColumnUnit(StrEnum):
    """What a column is in."""

    SHARE = "share"  # from 0 to 1
    GB = "GB"
    COUNT = "count"


class UnknownColumn(ValueError):
    """A column that no rule may compare; the message says which one to use instead."""


@dataclass(frozen=True)
class Column:
    """One column: `series` is the PromQL that gives the same value, with just these `labels`.

    `meaning`: the column in words, with red lines by name in braces.
    """

    table: Table
    name: str
    meaning: str
    unit: ColumnUnit
    series: str
    labels: tuple[Label, ...]

    @property
    def scale(self) -> float:
        """Units of the series in one unit of the column: bytes in a GB."""
        return GB if self.unit is ColumnUnit.GB else 1.0

    @property
    def most(self) -> float | None:
        """No value is above it; none is below 0."""
        return 1.0 if self.unit is ColumnUnit.SHARE else None

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


def _ring(mark: Mark) -> str:
    return _by_version(catalog.FAULT_WINDOW_FAULTED, f'{Label.MARK}="{mark}"')


def _bound(end: str) -> str:
    return _by_version(catalog.FAULT_WINDOW_BOUND, f'{Label.BOUND}="{end}"')


_SHARE, _COUNT = ColumnUnit.SHARE, ColumnUnit.COUNT
_REQUESTS = _by_version(catalog.FAULT_WINDOW_REQUESTS)
_RING = "of the last {faults.window_requests} finished requests"

COLUMNS: tuple[Column, ...] = (
    Column(Table.CACHE, "hit_rate", "cache hit rate", _SHARE, recorded.HIT_RATE.name, _BY_VERSION),
    Column(
        Table.CACHE, "gpu_mem_gb", "live KV", ColumnUnit.GB,
        recorded.LIVE_BYTES_BY_VERSION.name, _BY_VERSION,
    ),
    Column(
        Table.LATENCY, "over_share",
        "share of requests past {latency.degrade_s}, answered or not,",
        _SHARE, recorded.OVERDUE_SHARE.name, _BY_MILESTONE,
    ),
    Column(
        Table.LATENCY, "slow_share",
        "share of requests past {latency.first_packet_s}, answered or not,",
        _SHARE, recorded.SLOW_SHARE.name, _BY_MILESTONE,
    ),
    Column(
        Table.LATENCY, "requests", "count of requests in {latency.window_s}", _COUNT,
        recorded.FIRST_OUTPUT_REQUESTS.name, _BY_MILESTONE,
    ),
    Column(
        Table.FAULTS, "rate", f"faulted share {_RING}", _SHARE, recorded.FAULT_RATE.name,
        _BY_VERSION,
    ),
    Column(
        Table.FAULTS, "rate_low", "lower end of the fault rate's 95 % interval", _SHARE,
        _bound("low"), _BY_VERSION,
    ),
    Column(
        Table.FAULTS, "rate_high", "upper end of the fault rate's 95 % interval", _SHARE,
        _bound("high"), _BY_VERSION,
    ),
    Column(
        Table.FAULTS, "requests", "count of finished requests in the ring", _COUNT, _REQUESTS,
        _BY_VERSION,
    ),
    Column(
        Table.FAULTS, "faulted", f"count {_RING} that are faulted", _COUNT, _ring(Mark.HARD),
        _BY_VERSION,
    ),
    Column(
        Table.FAULTS, "soft", f"count {_RING} with a soft fault", _COUNT, _ring(Mark.SOFT),
        _BY_VERSION,
    ),
    Column(
        Table.FAULTS, "input_only", f"count {_RING} with a fault of the input alone", _COUNT,
        _ring(Mark.INPUT_ONLY), _BY_VERSION,
    ),
)  # fmt: skip
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
