"""The exposition format, text and OpenMetrics: headings, labels, numbers, exemplars."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from monitors.metric import Kind, Metric

END = "# EOF\n"  # of an OpenMetrics exposition


@dataclass(frozen=True)
class Exemplar:
    """One observation by its trace. `wall`: seconds since 1970."""

    trace_id: str
    value: float
    wall: float

    def __str__(self) -> str:
        return f' # {{trace_id="{escape(self.trace_id)}"}} {number(self.value)} {self.wall:.3f}'


def heading(metric: Metric, openmetrics: bool) -> str:
    """HELP and TYPE of a family, and in OpenMetrics its UNIT."""
    if openmetrics:
        name, kind = metric.family, metric.kind.value
    elif metric.kind is Kind.INFO:
        name, kind = f"{metric.name}_info", "gauge"
    else:
        name, kind = metric.name, metric.kind.value
    unit = f"# UNIT {name} {metric.unit}\n" if openmetrics and metric.unit else ""
    return f"# HELP {name} {escape(metric.help)}\n# TYPE {name} {kind}\n{unit}"


def labelled(names: Sequence[str], values: Sequence[str]) -> str:
    """A label set in braces, by name; nothing for none. An empty value is no label at all."""
    given = sorted(zip(names, values, strict=True))
    pairs = [f'{name}="{escape(value)}"' for name, value in given if value]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
