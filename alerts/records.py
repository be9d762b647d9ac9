"""Recording rules: the three tables as ratios and quantiles, derived from raw counters."""

from dataclasses import dataclass

from alerts.promql import duration, gained, or_zero, select
from monitors import catalog, recorded
from monitors.labels import Mark
from monitors.metric import Label
from monitors.recorded import Recorded
from monitors.redlines import LatencyLines, RedLines

_BY_FIRST_OUTPUT = (Label.VERSION, Label.MILESTONE)


@dataclass(frozen=True)
class Record:
    """One recording rule: the series' name and meaning, and its PromQL."""

    series: Recorded
    expr: str


def records(lines: RedLines) -> tuple[Record, ...]:
    """Every series of `recorded.RECORDED`, in an order in which each reads only earlier ones."""
    return (*_cache(lines), *_latency(lines.latency), *_faults())


def _cache(lines: RedLines) -> tuple[Record, ...]:
    def residency(*by: str) -> str:
        window = lines.cache.hold_s
        hits = gained(select(catalog.RESIDENCY_HIT_MASS), window, *by)
        return f"{hits}\n/ ({gained(select(catalog.RESIDENCY_LOOKUP_MASS), window, *by)} > 0)"

    live = f"sum by ({Label.VERSION}) ({select(catalog.LIVE_BYTES)})"
    return (
        Record(recorded.HIT_RATE_BY_CELL, residency(*recorded.HIT_RATE_BY_CELL.labels)),
        Record(recorded.HIT_RATE, residency(Label.VERSION)),
        Record(recorded.LIVE_BYTES_BY_VERSION, live),
    )


def _latency(lines: LatencyLines) -> tuple[Record, ...]:
    """Each request counts once: in time, or overdue as it crosses the line, answered or hung."""
    in_time = _answered_by(lines.degrade_s, lines)
    overdue = gained(select(catalog.OVERDUE), lines.window_s, *_BY_FIRST_OUTPUT)
    requests = recorded.FIRST_OUTPUT_REQUESTS.name
    fast = or_zero(_answered_by(lines.first_packet_s, lines), requests)
    return (
        Record(recorded.FIRST_OUTPUT_P50, _quantile(0.50, lines)),
        Record(recorded.FIRST_OUTPUT_P95, _quantile(0.95, lines)),
        Record(recorded.FIRST_OUTPUT_P99, _quantile(0.99, lines)),
        Record(
            recorded.FIRST_OUTPUT_REQUESTS,
            f"{or_zero(in_time, overdue)}\n+ {or_zero(overdue, in_time)}",
        ),
        Record(recorded.OVERDUE_SHARE, f"{or_zero(overdue, requests)}\n/ ({requests} > 0)"),
        Record(recorded.SLOW_SHARE, f"clamp_min({requests} - {fast}, 0)\n/ ({requests} > 0)"),
    )


def _answered_by(seconds: float, lines: LatencyLines) -> str:
    bound = f'le="{catalog.bound_label(seconds)}"'
    bucket = select(catalog.FIRST_OUTPUT, bound, suffix="_bucket")
    return gained(bucket, lines.window_s, *_BY_FIRST_OUTPUT)


def _quantile(q: float, lines: LatencyLines) -> str:
    bucket = select(catalog.FIRST_OUTPUT, suffix="_bucket")
    rates = (
        f"sum by ({', '.join(_BY_FIRST_OUTPUT)}, le) (rate({bucket}[{duration(lines.window_s)}]))"
    )
    # A window without requests gives NaN; comparing drops it, so that it is absent: unknown.
    return f"histogram_quantile({q}, {rates}) >= 0"


def _faults() -> tuple[Record, ...]:
    hard = f'{Label.MARK}="{Mark.HARD}"'

    def of_ring(faulted: str) -> str:
        ring = f"sum by ({Label.VERSION}) ({select(catalog.FAULT_WINDOW_REQUESTS)}) > 0"
        return f"{faulted}\n/ on ({Label.VERSION}) group_left () ({ring})"

    any_fault = f"sum by ({Label.VERSION}) ({select(catalog.FAULT_WINDOW_FAULTED, hard)})"
    by = ", ".join(recorded.FAULT_RATE_BY_FAULT.labels)
    each = f"sum by ({by}) ({select(catalog.FAULT_WINDOW_BY_FAULT, hard)})"
    return (
        Record(recorded.FAULT_RATE, of_ring(any_fault)),
        Record(recorded.FAULT_RATE_BY_FAULT, of_ring(each)),
    )
