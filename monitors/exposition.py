"""The one maker of `/metrics`: every series comes from the catalog, an unknown value has none.

Refused, loudly: a family that is not in the catalog, a label value outside its closed enum, and
more live values of an open label than `OPEN` allows (four versions).
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from monitors import catalog
from monitors.cache_table import CacheCell, CacheTable, Totals
from monitors.catalog import CLOSED, Kind, Label, Metric
from monitors.fault_table import FaultTable
from monitors.redlines import RedLines

OPEN: dict[Label, int] = {
    Label.VERSION: 4,
    Label.RESIDENT: 4,
    Label.DIGEST: 4,
    Label.LAYER: 128,
}
"""The most live values of each label that is not a closed enum, per family."""

_CELL_GAUGES: tuple[tuple[Metric, Callable[[CacheCell], float | None]], ...] = (
    (catalog.ENTROPY_THRESHOLD, lambda cell: cell.entropy_th),
    (catalog.LIVE_BYTES, lambda cell: cell.live_bytes),
    (catalog.EVICTABLE_BYTES, lambda cell: cell.evictable_bytes),
    (catalog.HOST_BYTES, lambda cell: cell.host_bytes),
    (catalog.ALIAS_PAGES, lambda cell: cell.alias_pages),
)
_CELL_COUNTERS: tuple[tuple[Metric, Callable[[Totals], float]], ...] = (
    (catalog.RESIDENCY_HIT_MASS, lambda totals: totals.hit_mass),
    (catalog.RESIDENCY_LOOKUP_MASS, lambda totals: totals.lookup_mass),
    (catalog.ENTROPY_SUM, lambda totals: totals.entropy_sum),
    (catalog.ENTROPY_COUNT, lambda totals: totals.entropy_count),
    (catalog.TOKEN_ENTROPY_SUM, lambda totals: totals.token_entropy_sum),
    (catalog.TOKEN_ENTROPY_COUNT, lambda totals: totals.token_entropy_count),
)

_FAULT_RING = (
    catalog.FAULT_WINDOW_REQUESTS,
    catalog.FAULT_WINDOW_FAULTED,
    catalog.FAULT_WINDOW_BY_FAULT,
)
_FROM_TABLES = frozenset(
    (*(metric for metric, _ in (*_CELL_GAUGES, *_CELL_COUNTERS)), *_FAULT_RING)
)

Cell = tuple[str, CacheCell, Totals]  # version, newest cell, counters that never fall
Child = TypeVar("Child", Counter, Gauge, Histogram, Info)


class MetricRefused(ValueError):
    """A family or label that the catalog does not allow; the message names it."""


class Exposition:
    """The metrics of one process, in an injected registry. Written and rendered on one thread."""

    def __init__(
        self,
        registry: CollectorRegistry,
        lines: RedLines,
        metrics: Sequence[Metric] = catalog.ALL,
    ) -> None:
        self._registry = registry
        self._bounds = catalog.latency_bounds(lines)
        self._metrics = frozenset(metrics)
        self._counters: dict[Metric, CounterHandle] = {}
        self._gauges: dict[Metric, GaugeHandle] = {}
        self._histograms: dict[Metric, HistogramHandle] = {}
        self._infos: dict[Metric, InfoHandle] = {}
        self._cells: Callable[[], Sequence[Cell]] = tuple

    def counter(self, metric: Metric) -> "CounterHandle":
        """The handle of a counter. Asking again gives the same one, as for the other kinds."""
        self._check(metric, Kind.COUNTER)
        if metric not in self._counters:
            family = Counter(metric.name, metric.help, metric.labels, registry=self._registry)
            self._counters[metric] = CounterHandle(metric, family)
        return self._counters[metric]

    def gauge(self, metric: Metric) -> "GaugeHandle":
        """The handle of a gauge; unknown, so absent, until it is set."""
        self._check(metric, Kind.GAUGE)
        if metric not in self._gauges:
            family = Gauge(metric.name, metric.help, metric.labels, registry=self._registry)
            self._gauges[metric] = GaugeHandle(metric, family)
        return self._gauges[metric]

    def histogram(self, metric: Metric) -> "HistogramHandle":
        """The handle of a latency histogram, with `catalog.latency_bounds`."""
        self._check(metric, Kind.HISTOGRAM)
        if metric not in self._histograms:
            family = Histogram(
                metric.name,
                metric.help,
                metric.labels,
                registry=self._registry,
                buckets=self._bounds,
            )
            self._histograms[metric] = HistogramHandle(metric, family)
        return self._histograms[metric]

    def info(self, metric: Metric) -> "InfoHandle":
        """The handle of an info metric."""
        self._check(metric, Kind.INFO)
        if metric not in self._infos:
            family = Info(metric.name, metric.help, metric.labels, registry=self._registry)
            self._infos[metric] = InfoHandle(metric, family)
        return self._infos[metric]

    def publish_tables(
        self, cache: CacheTable, faults: FaultTable, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Show table 1 and the ring of table 3 as they are at each scrape."""
        self._cells = lambda: cache.cells(clock())
        self._registry.register(_FaultRing(faults))

    def forget(self, version: str) -> None:
        """Remove every series of a version that closed."""
        for handles in (self._counters, self._gauges, self._histograms, self._infos):
            for handle in handles.values():
                handle.forget(version)

    def render(self, accept: str | None) -> tuple[bytes, str]:
        """(body, content type) of a scrape: OpenMetrics where `accept` asks for it, else text."""
        encode, content_type = choose_encoder(accept or "")
        openmetrics = content_type.startswith("application/openmetrics-text")
        table = "".join(_cache_text(self._cells(), openmetrics))
        return table.encode() + encode(_Visible(self._registry)), content_type

    def _check(self, metric: Metric, kind: Kind) -> None:
        if metric not in self._metrics:
            raise MetricRefused(f"{metric.name} is not in this process's catalog: add it there")
        if metric.kind is not kind:
            raise MetricRefused(f"{metric.name} is a {metric.kind}, not a {kind}")
        if metric in _FROM_TABLES:
            raise MetricRefused(f"{metric.name} is read from its table: update that instead")


# ---------------------------------------------------------------- handles
class _Handle(Generic[Child]):
    """One family and its live series. Labels are given in the catalog's order."""

    def __init__(self, metric: Metric, family: Child) -> None:
        self._metric = metric
        self._family = family
        self._series: dict[tuple[str, ...], Child] = {}

    def forget(self, version: str) -> None:
        """Remove this version's series; nothing for a family without versions."""
        if Label.VERSION in self._metric.labels:
            place = self._metric.labels.index(Label.VERSION)
            self._remove([labels for labels in self._series if labels[place] == version])

    def _at(self, labels: tuple[str, ...]) -> Child:
        """The series of `labels`: checked when it is new, one look-up after that."""
        if labels not in self._series:
            _check_labels(self._metric, labels, self._series)
            self._series[labels] = self._family.labels(*labels) if labels else self._family
        return self._series[labels]

    def _remove(self, series: Iterable[tuple[str, ...]]) -> None:
        for labels in series:
            del self._series[labels]
            self._family.remove(*labels)


class CounterHandle(_Handle[Counter]):
    """A total that only grows."""

    def __init__(self, metric: Metric, family: Counter) -> None:
        super().__init__(metric, family)
        self._followed: dict[tuple[str, ...], float] = {}

    def start(self, *labels: str) -> None:
        """Show the series at 0 before the first count, so that a rate sees the first one."""
        self._at(labels)

    def inc(self, *labels: str, by: float = 1.0) -> None:
        """Count `by` more."""
        self._at(labels).inc(by)

    def follow(self, total: float, *labels: str) -> None:
        """Follow a total kept elsewhere; one that fell was restarted and counts from 0 again."""
        before = self._followed.get(labels, 0.0)
        self._at(labels).inc(total - before if total >= before else total)
        self._followed[labels] = total

    def forget(self, version: str) -> None:
        super().forget(version)
        self._followed = {k: total for k, total in self._followed.items() if k in self._series}


class GaugeHandle(_Handle[Gauge]):
    """A value of now. Unknown is NaN inside, and no series outside."""

    def __init__(self, metric: Metric, family: Gauge) -> None:
        super().__init__(metric, family)
        if not metric.labels:
            family.set(math.nan)

    def set(self, value: float | None, *labels: str) -> None:
        """Show `value`; None (unknown) shows nothing."""
        self._at(labels).set(math.nan if value is None else value)


class HistogramHandle(_Handle[Histogram]):
    """A distribution of seconds."""

    def start(self, *labels: str) -> None:
        """Show the series at 0 before the first sample, so that a rate sees the first one."""
        self._at(labels)

    def observe(self, seconds: float, *labels: str, trace_id: str | None = None) -> None:
        """Count one duration; `trace_id` becomes the bucket's exemplar."""
        exemplar = None if trace_id is None else {"trace_id": trace_id}
        self._at(labels).observe(seconds, exemplar)


class InfoHandle(_Handle[Info]):
    """Facts that hold for a version now, as labels."""

    def set(self, version: str, *labels: str) -> None:
        """Say what holds for `version`; what was said of it before is withdrawn."""
        self.forget(version)
        self._at((version, *labels))


def _check_labels(metric: Metric, values: tuple[str, ...], live: Iterable[tuple[str, ...]]) -> None:
    if len(values) != len(metric.labels):
        raise MetricRefused(f"{metric.name} takes the labels {list(metric.labels)}: {values}")
    for place, (label, value) in enumerate(zip(metric.labels, values, strict=True)):
        if label in CLOSED:
            if value not in CLOSED[label]:
                raise MetricRefused(f"{metric.name}: {label} is one of {CLOSED[label]}: {value!r}")
        elif len({series[place] for series in live} | {value}) > OPEN[label]:
            raise MetricRefused(
                f"{metric.name}: {value!r} would be one {label} more than the {OPEN[label]} that"
                " may be live: forget a closed version first"
            )


# ---------------------------------------------------------------- what a scrape reads
def _cache_text(cells: Iterable[Cell], openmetrics: bool) -> Iterator[str]:
    """Table 1 as exposition text, a family at a time.

    Written by hand because it is nine tenths of all series: the client library takes 25 times as
    long over them, and requests wait meanwhile.
    """
    placed = [(_cell_labels(v, cell), cell, totals) for v, cell, totals in cells]
    for metric, read in _CELL_GAUGES:
        yield _family_text(metric, [(where, read(cell)) for where, cell, _ in placed], openmetrics)
    for metric, of in _CELL_COUNTERS:
        yield _family_text(
            metric, [(where, of(totals)) for where, _, totals in placed], openmetrics
        )


def _family_text(
    metric: Metric, samples: Sequence[tuple[str, float | None]], openmetrics: bool
) -> str:
    known = [f"{metric.name}{labels} {float(v)!r}\n" for labels, v in samples if v is not None]
    if not known:
        return ""
    family = metric.name.removesuffix("_total") if openmetrics else metric.name
    return f"# HELP {family} {metric.help}\n# TYPE {family} {metric.kind}\n{''.join(known)}"


def _cell_labels(version: str, cell: CacheCell) -> str:
    escaped = version.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return (
        f'{{{Label.LAYER}="{cell.layer}",{Label.MODALITY}="{cell.modality}"'
        f',{Label.VERSION}="{escaped}"}}'
    )


class _FaultRing(Collector):
    """The ring of table 3, read at scrape time."""

    def __init__(self, faults: FaultTable) -> None:
        self._faults = faults

    def collect(self) -> Iterable[Family]:
        requests, faulted, by_fault = (
            GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            for metric in _FAULT_RING
        )
        for row in self._faults.rows():
            if row.fault is None:
                requests.add_metric((row.version,), row.requests)
                faulted.add_metric((row.version,), row.faulted)
            else:
                by_fault.add_metric((row.version, row.fault), row.faulted)
        return requests, faulted, by_fault


class _Visible(Collector):
    """What a scrape may see of a registry: no `_created` series, and nothing unknown (NaN)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Family]:
        for family in self._registry.collect():
            family.samples = [
                sample
                for sample in family.samples
                if not (sample.name.endswith("_created") or math.isnan(sample.value))
            ]
            if family.samples:
                yield family


# ---------------------------------------------------------------- cardinality
def most_series(metric: Metric, *, layers: int, lines: RedLines) -> int:
    """The most series one family can have for models of `layers` layers, buckets included."""
    if metric.kind is Kind.INFO:
        return OPEN[Label.VERSION]
    sizes = {**OPEN, **{label: len(values) for label, values in CLOSED.items()}}
    sizes[Label.LAYER] = layers
    combinations = math.prod(sizes[label] for label in metric.labels)
    if metric.kind is Kind.HISTOGRAM:
        return combinations * (len(catalog.latency_bounds(lines)) + 3)  # +Inf, _count, _sum
    return combinations
