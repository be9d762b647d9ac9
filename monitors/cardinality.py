"""How many series there may be: what a label may say, and the most that a family can have."""

import math
from collections.abc import Collection, Iterable

from monitors import catalog
from monitors.metric import CLOSED, Kind, Label, Metric
from monitors.redlines import RedLines

OPEN: dict[Label, int] = {
    Label.VERSION: 4,
    Label.RESIDENT: 4,
    Label.DIGEST: 4,
    Label.EPOCH: 4,
    Label.BUILD: 1,
    Label.LAYER: 128,
}
"""The most live values of each label that is not a closed enum, per family."""

MOST_SERIES = 6_500
"""Of one data plane at four versions of 48 layers (ADR 24)."""


class MetricRefused(ValueError):
    """A family or label that the catalog does not allow; the message names it."""


def check_labels(metric: Metric, values: tuple[str, ...], live: Iterable[tuple[str, ...]]) -> None:
    """Raises `MetricRefused` unless `values` may be a series beside those that are `live`."""
    if len(values) != len(metric.labels):
        raise MetricRefused(f"{metric.name} takes the labels {list(metric.labels)}: {values}")
    for place, (label, value) in enumerate(zip(metric.labels, values, strict=True)):
        if label in CLOSED:
            if value not in CLOSED[label]:
                raise MetricRefused(f"{metric.name}: {label} is one of {CLOSED[label]}: {value!r}")
        else:
            check_open(metric, label, {series[place] for series in live} | {value})


def check_open(metric: Metric, label: Label, live: Collection[str]) -> None:
    """Raises `MetricRefused` where an open label has more live values than it may."""
    if len(live) > OPEN[label]:
        raise MetricRefused(
            f"{metric.name}: {len(live)} values of {label} would be live, of {OPEN[label]} that may"
        )


def most_series(
    metric: Metric, *, layers: int, lines: RedLines, versions: int = OPEN[Label.VERSION]
) -> int:
    """The most series one family can have for models of `layers` layers, buckets included."""
    sizes = {**OPEN, **{label: len(values) for label, values in CLOSED.items()}}
    sizes |= {Label.LAYER: layers, Label.VERSION: versions}
    if metric.kind is Kind.INFO:  # one set of facts holds at a time
        return sizes[metric.labels[0]]
    combinations = math.prod(sizes[label] for label in metric.labels)
    if metric.kind is Kind.HISTOGRAM:
        return combinations * (len(catalog.latency_bounds(lines)) + 3)  # +Inf, _count, _sum
    return combinations
