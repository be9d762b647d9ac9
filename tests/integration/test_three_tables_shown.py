"""The three tables at the command line: what `GET /tables` says, in every column."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from monitors import tables
from monitors.cache_table import CacheRow
from monitors.fault_table import FaultRow
from monitors.latency_table import LatencyRow
from monitors.tables import Tables
from monitors.tracing import Tracing
from redline import tables_view
from redline.cli import app
from runtime.book import Book
from tests.support.http_server import Answer, recording_server
from tests.support.three_tables import LINES, Traced, drive, nothing_yet


@pytest.fixture(scope="module")
def shown() -> Tables:
    """Of the known workload."""
    book = Book(LINES, "inc", requests=Traced(Tracing()))
    nothing_yet(book)
    drive(book)
    return book.tables()


@pytest.fixture
def stack(shown: Tables, tmp_path: Path) -> Iterator[list[str]]:
    """The options that lead the command line to a server of these tables."""
    with recording_server() as server:
        server.answers["/tables"] = Answer(shown.to_json())
        told = {"runtime_url": server.url, "control_url": server.url, "token": "t"}
        (tmp_path / "stack.json").write_text(json.dumps(told))
        yield ["--state-dir", str(tmp_path)]


def test_the_command_line_prints_the_same_as_json_on_one_line(
    shown: Tables, stack: list[str]
) -> None:
    done = CliRunner().invoke(app, ["tables", "--once", "--json", *stack])
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 1
    assert tables.from_json(done.stdout.encode()) == shown


def test_a_stack_that_is_not_there_is_exit_code_1(tmp_path: Path) -> None:
    told = {"runtime_url": "http://127.0.0.1:9", "control_url": "http://127.0.0.1:9", "token": "t"}
    (tmp_path / "stack.json").write_text(json.dumps(told))
    done = CliRunner().invoke(app, ["tables", "--json", "--state-dir", str(tmp_path)])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "does not answer" in done.stderr


def test_the_terminal_shows_the_same_in_every_column(shown: Tables) -> None:
    console = Console(width=80, force_terminal=False)
    with console.capture() as capture:
        console.print(tables_view.draw(shown))
    lines = {re.sub(r"[│\s]+", " ", line).strip() for line in capture.get().splitlines()}
    for row in shown.latency:
        assert latency_line(row) in lines
    for row in shown.faults:
        assert fault_line(row) in lines
    for row in shown.cache:
        if row.hit_rate is not None:
            assert cache_line(row) in lines


def latency_line(row: LatencyRow) -> str:
    quantiles = " ".join(f"{q:.3f}" for q in (row.p50_s, row.p95_s, row.p99_s))
    shares = f"{row.over_share:.2%} {row.slow_share:.2%}"
    return f"{row.version} {row.milestone} {row.requests} {quantiles} {shares}"


def fault_line(row: FaultRow) -> str:
    counted = f"{row.requests} {row.faulted} {row.soft} {row.input_only}"
    rate = f"{row.rate:.2%} {row.rate_low:.2%}-{row.rate_high:.2%}"
    return f"{row.version} {row.fault or 'any'} {counted} {rate}"


def cache_line(row: CacheRow) -> str:
    threshold = "off" if row.entropy_th is None else f"{row.entropy_th:.2f}"
    figures = f"{threshold} {row.hit_rate:.1%} {row.gpu_mem_gb:.6f}"
    return f"{row.version} {row.layer_id} {row.modal} {figures}"
