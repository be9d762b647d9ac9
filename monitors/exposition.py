"""The one maker of `/metrics`: every series comes from the catalog, an unknown value has none.

Refused, loudly: a family that is not in the catalog, a label value outside its closed enum, and
more live values of an open label than `cardinality.OPEN` allows (four versions).
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from prometheus_client.exposition import choose_encoder

from monitors import catalog, cell_text
from monitors.cache_table import CacheTable, CellState
from monitors.cardinality import MetricRefused
from monitors.cell_text import CellText
from monitors.fault_table import FaultRow, FaultTable
from monitors.handles import (
    AnyHandle,
    CounterHandle,
    GaugeHandle,
    HistogramHandle,
    InfoHandle,
)
from monitors.labels import Mark
from monitors.metric import Kind, Metric
from monitors.metric_text import END
from monitors.redlines import RedLines

_OPENMETRICS = "application/openmetrics-text"
_FAULT_RING = (
    catalog.FAULT_WINDOW_REQUESTS,
    catalog.FAULT_WINDOW_FAULTED,
    catalog.FAULT_WINDOW_BY_FAULT,
    catalog.FAULT_WINDOW_BOUND,
    catalog.FAULT_WINDOW_BOUND_BY_FAULT,
)
_FROM_TABLES = cell_text.SHOWN | frozenset(_FAULT_RING)
H = TypeVar("H", bound=AnyHandle)


class Exposition:
    """The metrics of one process. Written and rendered on one thread."""

    def __init__(
        self,
        lines: RedLines,
        metrics: Sequence[Metric] = catalog.ALL,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._bounds = catalog.latency_bounds(lines)
        self._metrics = frozenset(metrics)
        self._wall = wall
        self._handles: dict[str, AnyHandle] = {}
        self._cell_text = CellText()
        self._cells: Callable[[], Sequence[CellState]] = tuple
        self._ring: _FaultRing | None = None

    def counter(self, metric: Metric) -> CounterHandle:
        """The handle of a counter. Asking again gives the same one, as for the other kinds."""
        return self._handle(metric, Kind.COUNTER, lambda: CounterHandle(metric, self._wall))

    def gauge(self, metric: Metric) -> GaugeHandle:
        """The handle of a gauge; unknown, so absent, until it is set."""
        return self._handle(metric, Kind.GAUGE, lambda: GaugeHandle(metric))

    def histogram(self, metric: Metric) -> HistogramHandle:
        """The handle of a latency histogram, with `catalog.latency_bounds`."""
        return self._handle(
            metric, Kind.HISTOGRAM, lambda: HistogramHandle(metric, self._bounds, self._wall)
        )

    def info(self, metric: Metric) -> InfoHandle:
        """The handle of an info metric."""
        return self._handle(metric, Kind.INFO, lambda: InfoHandle(metric))

    def publish_tables(
        self, cache: CacheTable, faults: FaultTable, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Show table 1 and the ring of table 3 as they are at each scrape."""
        self._cells = lambda: cache.cells(clock())
        self._ring = _FaultRing(faults)

    def forget(self, version: str) -> None:
        """Show no more of a version, until it is measured again."""
        for handle in self._handles.values():
            handle.forget(version)

    def prepare(self) -> None:
        """Write the text of table 1's new cells now, so that no scrape writes all of them."""
        self._cell_text.show(self._cells())

    def render(self, accept: str | None) -> tuple[bytes, str]:
        """(body, content type) of a scrape: OpenMetrics where `accept` asks for it, else text."""
        _, content_type = choose_encoder(accept or "")
        openmetrics = content_type.startswith(_OPENMETRICS)
        self.prepare()
        families = [self._cell_text.text(openmetrics)]
        families += [handle.text(openmetrics) for handle in self._handles.values()]
        families += [] if self._ring is None else self._ring.texts(openmetrics)
        return "".join([*families, END if openmetrics else ""]).encode(), content_type

    def _handle(self, metric: Metric, kind: Kind, make: Callable[[], H]) -> H:
        found = self._handles.get(metric.name)
        if found is None:
            self._check(metric, kind)
            found = self._handles[metric.name] = make()
        elif metric.kind is not kind:
            raise MetricRefused(f"{metric.name} is a {metric.kind}, not a {kind}")
        return cast("H", found)  # a metric's kind tells its handle's

    def _check(self, metric: Metric, kind: Kind) -> None:
        if metric not in self._metrics:
            raise MetricRefused(f"{metric.name} is not in this process's catalog: add it there")
        if metric.kind is not kind:
            raise MetricRefused(f"{metric.name} is a {metric.kind}, not a {kind}")
        if metric in _FROM_TABLES:
            raise MetricRefused(f"{metric.name} is read from its table: update that instead")


class _FaultRing:
    """The ring of table 3 as its families."""

    def __init__(self, faults: FaultTable) -> None:
        self._table = faults
        self._versions: set[str] = set()
        self._handles = tuple(map(GaugeHandle, _FAULT_RING))

    def texts(self, openmetrics: bool) -> list[str]:
        rows = self._table.rows()
        versions = {row.version for row in rows}
        for handle in self._handles:
            for gone in self._versions - versions:
                handle.forget(gone)
        self._versions = versions
        for row in rows:
            self._show(row)
        return [handle.text(openmetrics) for handle in self._handles]

    def _show(self, row: FaultRow) -> None:
        requests, faulted, by_fault, bound, bound_by_fault = self._handles
        if row.fault is None:
            requests.set(row.requests, row.version)
            labels, of_count, of_bound = (row.version,), faulted, bound
        else:
            labels, of_count, of_bound = (row.version, row.fault), by_fault, bound_by_fault
        of_count.set(row.faulted, *labels, Mark.HARD)
        of_count.set(row.soft, *labels, Mark.SOFT)
        of_count.set(row.input_only, *labels, Mark.INPUT_ONLY)
        of_bound.set(row.rate_low, *labels, "low")
        of_bound.set(row.rate_high, *labels, "high")
