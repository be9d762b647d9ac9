"""The live series of a family, by kind: written by whoever measures, read by a scrape.

They hold what the Python client library's own would, as plain numbers beside the text of their
labels: that library takes 8 us a series to render, on the event loop that requests wait for.
"""

import math
import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from monitors.cardinality import check_labels
from monitors.catalog import bound_label
from monitors.metric import Label, Metric
from monitors.metric_text import Exemplar, heading, labelled, number

Series = TypeVar("Series")
Labels = tuple[str, ...]


class Handle(ABC, Generic[Series]):
    """One family. Labels are given in the catalog's order; unknown ones are refused."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._series: dict[Labels, Series] = {}
        self._heads: dict[Labels, tuple[str, ...]] = {}  # what stands before each number

    def forget(self, version: str) -> None:
        """Remove this version's series; nothing for a family without versions."""
        if Label.VERSION in self.metric.labels:
            place = self.metric.labels.index(Label.VERSION)
            self._remove([labels for labels in self._heads if labels[place] == version])

    def text(self, openmetrics: bool) -> str:
        """The family as a scrape shows it; nothing without a series."""
        if not self._series:
            return ""
        return heading(self.metric, openmetrics) + "".join(self._lines(openmetrics))

    @abstractmethod
    def _lines(self, openmetrics: bool) -> Iterator[str]: ...

    def _open(self, labels: Labels) -> None:
        """Take note of a new series. Raises `MetricRefused`."""
        if labels not in self._heads:
            check_labels(self.metric, labels, self._heads)
            self._heads[labels] = tuple(self._head(labels))

    def _head(self, labels: Labels) -> Iterator[str]:
        yield f"{self.metric.name}{labelled(self.metric.labels, labels)} "

    def _remove(self, series: Iterable[Labels]) -> None:
        for labels in list(series):
            self._series.pop(labels, None)
            self._heads.pop(labels, None)


class CounterHandle(Handle[float]):
    """A total that only grows."""

    def __init__(self, metric: Metric, wall: Callable[[], float] = time.time) -> None:
        super().__init__(metric)
        self._wall = wall
        self._followed: dict[Labels, float] = {}
        self._exemplars: dict[Labels, Exemplar] = {}

    def start(self, *labels: str) -> None:
        """Show the series at 0 before the first count, so that a rate sees the first one."""
        self._open(labels)
        self._series.setdefault(labels, 0.0)

    def inc(self, *labels: str, by: float = 1.0, trace_id: str | None = None) -> None:
        """Count `by` more; `trace_id` becomes the series' exemplar. Raises `ValueError` for less
        than nothing."""
        if not by >= 0.0:
            raise ValueError(f"{self.metric.name} only grows: {by} cannot be added to it")
        self.start(*labels)
        self._series[labels] += float(by)  # a numpy float has another repr
        if trace_id is not None:
            self._exemplars[labels] = Exemplar(trace_id, float(by), self._wall())

    def follow(self, total: float, *labels: str) -> None:
        """Follow a total kept elsewhere. One that fell, by rounding, gained nothing; that it counts
        from 0 again is for `restarted` to say."""
        before = self._followed.get(labels, 0.0)
        self.inc(*labels, by=max(total - before, 0.0))
        self._followed[labels] = max(total, before)

    def restarted(self, version: str) -> None:
        """Who kept the totals of this version is gone, and the next one counts from 0."""
        place = self.metric.labels.index(Label.VERSION)
        for labels in [labels for labels in self._followed if labels[place] == version]:
            del self._followed[labels]

    def _lines(self, openmetrics: bool) -> Iterator[str]:
        for labels, value in self._series.items():
            exemplar = self._exemplars.get(labels, "") if openmetrics else ""
            yield f"{self._heads[labels][0]}{value!r}{exemplar}\n"

    def _remove(self, series: Iterable[Labels]) -> None:
        gone = list(series)
        super()._remove(gone)
        for labels in gone:
            self._followed.pop(labels, None)
            self._exemplars.pop(labels, None)


class GaugeHandle(Handle[float]):
    """A value of now; an unknown one has no series."""

    def set(self, value: float | None, *labels: str) -> None:
        """Show `value`; None (unknown) shows nothing."""
        self._open(labels)
        if value is None or math.isnan(value):
            self._series.pop(labels, None)
        else:
            self._series[labels] = float(value)

    def _lines(self, openmetrics: bool) -> Iterator[str]:
        for labels, value in self._series.items():
            yield f"{self._heads[labels][0]}{number(value)}\n"


@dataclass
class _Distribution:
    """Counts by bucket, the last one unbounded, and an exemplar of each."""

    counts: list[int]
    sum: float = 0.0
    exemplars: dict[int, Exemplar] = field(default_factory=dict[int, Exemplar])


class HistogramHandle(Handle[_Distribution]):
    """A distribution of seconds over `bounds`."""

    def __init__(
        self, metric: Metric, bounds: tuple[float, ...], wall: Callable[[], float] = time.time
    ) -> None:
        super().__init__(metric)
        self._bounds = bounds
        self._wall = wall

    def start(self, *labels: str) -> None:
        """Show the series at 0 before the first sample, so that a rate sees the first one."""
        self._open(labels)
        if labels not in self._series:
            self._series[labels] = _Distribution([0] * (len(self._bounds) + 1))

    def observe(self, seconds: float, *labels: str, trace_id: str | None = None) -> None:
        """Count one duration; `trace_id` becomes the bucket's exemplar."""
        self.start(*labels)
        seen, bucket = self._series[labels], bisect_left(self._bounds, seconds)
        seen.counts[bucket] += 1
        seen.sum += float(seconds)
        if trace_id is not None:
            seen.exemplars[bucket] = Exemplar(trace_id, float(seconds), self._wall())

    def _head(self, labels: Labels) -> Iterator[str]:
        name, names = self.metric.name, (*self.metric.labels, "le")
        for bound in (*map(bound_label, self._bounds), "+Inf"):
            yield f"{name}_bucket{labelled(names, (*labels, bound))} "
        for suffix in ("count", "sum"):
            yield f"{name}_{suffix}{labelled(self.metric.labels, labels)} "

    def _lines(self, openmetrics: bool) -> Iterator[str]:
        for labels, seen in self._series.items():
            *buckets, count, total = self._heads[labels]
            below = 0
            for bucket, (head, inside) in enumerate(zip(buckets, seen.counts, strict=True)):
                below += inside
                exemplar = seen.exemplars.get(bucket, "") if openmetrics else ""
                yield f"{head}{below}.0{exemplar}\n"
            yield f"{count}{below}.0\n{total}{number(seen.sum)}\n"


class InfoHandle(Handle[float]):
    """Facts as labels; where they are of a version, those that hold for it now."""

    def set(self, first: str, *labels: str) -> None:
        """Say what holds; what was said of the same version before is withdrawn at once."""
        said = (first, *labels)
        if said not in self._series:
            self.forget(first)
            self._open(said)
            self._series[said] = 1.0

    def _head(self, labels: Labels) -> Iterator[str]:
        yield f"{self.metric.name}_info{labelled(self.metric.labels, labels)} "

    def _lines(self, openmetrics: bool) -> Iterator[str]:
        for labels, value in self._series.items():
            yield f"{self._heads[labels][0]}{value!r}\n"


AnyHandle = CounterHandle | GaugeHandle | HistogramHandle | InfoHandle
