"""The three tables in a terminal (rich), and the one line that says whether all is well."""

import time
from collections.abc import Callable

from rich.console import Group
from rich.live import Live
from rich.table import Table

from monitors.fault_table import FaultRow
from monitors.latency_table import LatencyRow
from monitors.redlines import RedLines
from monitors.tables import Tables
from redline.client import ask
from redline.settings import Stack

UNKNOWN = "[dim]unknown[/]"


def fetch(stack: Stack) -> Tables:
    """The tables as the gateway has them now."""
    return ask(stack, "GET", f"{stack.runtime_url}/tables", Tables)


def follow(stack: Stack, lines: RedLines, period_s: float = 1.0) -> None:
    """Redraw every `period_s` until Ctrl-C."""
    with Live(draw(fetch(stack), lines), refresh_per_second=4) as live:
        while True:
            time.sleep(period_s)
            live.update(draw(fetch(stack), lines))


def draw(tables: Tables, lines: RedLines) -> Group:
    """The three tables, each value coloured by its red line; the one with many rows last, for a
    terminal that is too low for it."""
    return Group(
        _latency(tables.latency, lines), _faults(tables.faults, lines), _cache(tables, lines)
    )


def _value(value: float | None, text: Callable[[float], str], bad: bool) -> str:
    if value is None:
        return UNKNOWN
    return f"[{'red' if bad else 'green'}]{text(value)}[/]"


def _cache(tables: Tables, lines: RedLines) -> Table:
    """Each version in sum, as the cache rule sees it, then its cells; those never used are left
    out."""
    table = Table(title="cache (S4.1)", title_justify="left")
    for name in ("version", "layer_id", "modal", "entropy_th", "hit_rate", "gpu_mem_gb"):
        table.add_column(name, justify="left" if name in ("version", "modal") else "right")
    for total in tables.cache_summary:
        values = _hits_and_memory(total.hit_rate, total.gpu_mem_gb, lines)
        table.add_row(f"[bold]{total.version}[/]", "all", "all", "", *values)
        for row in tables.cache:
            if row.version == total.version and (row.hit_rate is not None or row.gpu_mem_gb > 0.0):
                reuse = "off" if row.entropy_th is None else f"{row.entropy_th:.2f}"
                cells = _hits_and_memory(row.hit_rate, row.gpu_mem_gb, lines)
                table.add_row(row.version, str(row.layer_id), row.modal, reuse, *cells)
    told = [f"{s.version}: reuse {s.reuse}" for s in tables.cache_summary if s.reuse is not None]
    table.caption, table.caption_justify = "\n".join(told) or None, "left"
    return table


def _hits_and_memory(hit_rate: float | None, gb: float, lines: RedLines) -> tuple[str, str]:
    bad = hit_rate is not None and hit_rate < lines.cache.hit_rate_floor
    return _value(hit_rate, lambda v: f"{v:.1%}", bad), f"{gb:.6f}"


def _latency(rows: tuple[LatencyRow, ...], lines: RedLines) -> Table:
    table = Table(title="latency, seconds (S4.2)", title_justify="left")
    for name in ("version", "milestone", "count", "p50", "p95", "p99", "over"):
        table.add_column(name, justify="left" if name in ("version", "milestone") else "right")
    line = lines.latency.degrade_s
    for row in rows:
        quantiles = [
            _value(q, lambda v: f"{v:.3f}", q is not None and q > line)
            for q in (row.p50_s, row.p95_s, row.p99_s)
        ]
        table.add_row(row.version, row.milestone, str(row.count), *quantiles, str(row.over))
    return table


def _faults(rows: tuple[FaultRow, ...], lines: RedLines) -> Table:
    table = Table(title="faults, last 10,000 requests (S4.3)", title_justify="left")
    for name in ("version", "fault", "requests", "faulted", "rate"):
        table.add_column(name, justify="left" if name in ("version", "fault") else "right")
    for row in rows:
        bad = row.rate is not None and row.rate > lines.faults.rate
        table.add_row(
            row.version,
            row.fault or "any",
            str(row.requests),
            str(row.faulted),
            _value(row.rate, lambda v: f"{v:.2%}", bad),
        )
    return table
