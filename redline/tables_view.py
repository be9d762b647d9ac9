"""The three tables in a terminal (rich), and the one line that says whether all is well."""

import time
from collections.abc import Callable

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.live import Live
from rich.table import Table

from monitors.fault_table import FaultRow
from monitors.latency_table import MEASURED_FROM
from monitors.tables import Lines, Tables
from redline.client import ask
from redline.settings import Stack

UNKNOWN = "[dim]unknown[/]"


def fetch(stack: Stack) -> Tables:
    """The tables as the gateway has them now."""
    return ask(stack, "GET", f"{stack.runtime_url}/tables", Tables)


def follow(stack: Stack, period_s: float = 1.0) -> None:
    """Redraw every `period_s` until Ctrl-C."""
    with Live(draw(fetch(stack)), refresh_per_second=4) as live:
        while True:
            time.sleep(period_s)
            live.update(draw(fetch(stack)))


def draw(tables: Tables) -> Group:
    """The three tables, each value coloured by the red line it was judged by; the one with many
    rows last, for a terminal that is too low for it."""
    return Group(_latency(tables), _faults(tables), _cache(tables))


def _value(value: float | None, text: Callable[[float], str], bad: bool) -> str:
    if value is None:
        return UNKNOWN
    return f"[{'red' if bad else 'green'}]{text(value)}[/]"


def _cache(tables: Tables) -> Table:
    """Each version in sum, as the cache rule sees it, then its cells; those never used are left
    out."""
    window = f"hit rate of the last {tables.windows.cache_s:g} s"
    table = _table(
        f"cache (S4.1), {window}", "layer_id", "modal", "entropy_th", "hit_rate", "gpu_mem_gb"
    )
    for total in tables.cache_summary:
        values = _hits_and_memory(total.hit_rate, total.gpu_mem_gb, tables.lines)
        table.add_row(f"[bold]{total.version}[/]", "all", "all", "", *values)
        for row in tables.cache:
            if row.version == total.version and (row.hit_rate is not None or row.gpu_mem_gb > 0.0):
                reuse = "off" if row.entropy_th is None else f"{row.entropy_th:.2f}"
                cells = _hits_and_memory(row.hit_rate, row.gpu_mem_gb, tables.lines)
                table.add_row(row.version, str(row.layer_id), row.modal, reuse, *cells)
    told = [f"{s.version}: reuse {s.reuse}" for s in tables.cache_summary if s.reuse is not None]
    table.caption, table.caption_justify = "\n".join(told) or None, "left"
    return table


def _hits_and_memory(hit_rate: float | None, gb: float | None, lines: Lines) -> tuple[str, str]:
    bad = hit_rate is not None and hit_rate < lines.hit_rate_floor
    return _value(hit_rate, lambda v: f"{v:.1%}", bad), UNKNOWN if gb is None else f"{gb:.6f}"


def _latency(tables: Tables) -> Table:
    lines = tables.lines
    title = f"latency (S4.2), seconds, of the last {tables.windows.latency_s:g} s"
    over, slow = (f">{s * 1000:.0f}ms" for s in (lines.degrade_s, lines.first_packet_s))
    table = _table(title, "milestone", "reqs", "p50", "p95", "p99", over, slow)
    for row in tables.latency:
        quantiles = [
            _value(q, lambda v: f"{v:.3f}", q is not None and q > lines.degrade_s)
            for q in (row.p50_s, row.p95_s, row.p99_s)
        ]
        shares = [
            _share(row.over_share, lines.degrade_exceedance),
            _share(row.slow_share, lines.first_packet_exceedance),
        ]
        table.add_row(row.version, row.milestone, str(row.requests), *quantiles, *shares)
    measured = [f"{milestone}: {words}" for milestone, words in MEASURED_FROM.items()]
    table.caption, table.caption_justify = "\n".join(measured), "left"
    return table


def _faults(tables: Tables) -> Table:
    title = f"faults (S4.3), of the last {tables.windows.fault_requests:,} requests"
    table = _table(title, "fault", "reqs", "hard", "soft", "input", "rate", "95 %")
    for row in tables.faults:
        table.add_row(
            row.version,
            row.fault or "any",
            str(row.requests),
            str(row.faulted),
            str(row.soft),
            str(row.input_only),
            _share(row.rate, tables.lines.fault_rate),
            _interval(row),
        )
    return table


def _interval(row: FaultRow) -> str:
    if row.rate_low is None or row.rate_high is None:
        return UNKNOWN
    return f"{row.rate_low:.2%}-{row.rate_high:.2%}"


def _share(share: float | None, line: float) -> str:
    return _value(share, lambda v: f"{v:.2%}", share is not None and share > line)


def _table(title: str, key: str, *numbers: str) -> Table:
    """Whole at 80 columns: names on the left, numbers on the right. Only a version that is too
    long for its place is folded; nothing is cut."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0)
    table.add_column("version", overflow="fold")
    table.add_column(key, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table
