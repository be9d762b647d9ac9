"""The three tables as JSON, in the terminal and in a real Prometheus: the same, column by column.

Counts and shares are equal to the last digit. `increase` stretches a count of a window to its ends,
by a scrape interval's part at most. A quantile that Prometheus interpolates lies in the bucket
that holds the exact one.
"""

import bisect
import itertools
import json
import math
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry
from rich.console import Console
from typer.testing import CliRunner

from monitors import catalog, recorded, tables
from monitors.cache_table import CacheCell, CacheRow, CacheSummary
from monitors.contract import FaultFound, Level, RequestFinished
from monitors.detectors.finding import Finding
from monitors.fault_table import FaultRow, counts
from monitors.labels import Detector, Fault, Grade, Milestone, Modality, Origin, Outcome, Role
from monitors.latency_table import LatencyRow
from monitors.metric import Metric
from monitors.recorded import Recorded
from monitors.redlines import RedLines
from monitors.tables import Tables
from monitors.tracing import Tracing
from redline import tables_view
from redline.cli import app
from runtime.book import Book
from runtime.requests import Requests
from runtime.residents.port import Capabilities
from runtime.stamp import Stamp
from tests.support.http_server import Answer, Server, recording_server
from tests.support.prometheus import SCRAPE_S, needs_prometheus, prometheus

LINES = RedLines()
OPENMETRICS = "application/openmetrics-text"
VERSIONS = ("v1", "v2")
LAYERS = 3
TRACE = "ab" * 16
INCREASES = 8 * SCRAPE_S  # at least this long behind the first scrape is the last one


# ---------------------------------------------------------------- where each column is
@dataclass(frozen=True)
class Place:
    """A column's series. `labels`: row fields by label; `fixed`: labels that pick the column."""

    series: Metric | Recorded
    labels: dict[str, str]
    suffix: str = ""
    scale: float = 1.0
    fixed: dict[str, str] | None = None
    summed: bool = False


CELL = {"version": "version", "layer_id": "layer_id", "modality": "modal"}
FIRST = {"version": "version", "milestone": "milestone"}
BY_VERSION = {"version": "version"}
BY_FAULT = {"version": "version", "fault": "fault"}
GB = 1e-9


def ring(any_fault: Metric | Recorded, each: Metric | Recorded, **fixed: str) -> Sequence[Place]:
    return Place(any_fault, BY_VERSION, fixed=fixed), Place(each, BY_FAULT, fixed=fixed)


# Of one with two places: the row of any fault, and that of each.
COLUMNS: dict[type[msgspec.Struct], dict[str, Sequence[Place]]] = {
    CacheRow: {
        "entropy_th": [Place(catalog.ENTROPY_THRESHOLD, CELL)],
        "hit_rate": [Place(recorded.HIT_RATE_BY_CELL, CELL)],
        "gpu_mem_gb": [Place(catalog.LIVE_BYTES, CELL, scale=GB)],
    },
    CacheSummary: {
        "hit_rate": [Place(recorded.HIT_RATE, BY_VERSION)],
        "gpu_mem_gb": [Place(recorded.LIVE_BYTES_BY_VERSION, BY_VERSION, scale=GB)],
        "reuse": [Place(catalog.REUSE_ON, BY_VERSION)],
    },
    LatencyRow: {
        "count": [Place(catalog.FIRST_OUTPUT, FIRST, suffix="_count")],
        "over": [Place(catalog.OVERDUE, FIRST)],
        "requests": [Place(recorded.FIRST_OUTPUT_REQUESTS, FIRST)],
        "p50_s": [Place(recorded.FIRST_OUTPUT_P50, FIRST)],
        "p95_s": [Place(recorded.FIRST_OUTPUT_P95, FIRST)],
        "p99_s": [Place(recorded.FIRST_OUTPUT_P99, FIRST)],
        "over_share": [Place(recorded.OVERDUE_SHARE, FIRST)],
        "slow_share": [Place(recorded.SLOW_SHARE, FIRST)],
    },
    FaultRow: {
        "finished": [
            Place(catalog.REQUESTS, BY_VERSION, fixed={"outcome!": "refused"}, summed=True)
        ] * 2,
        "requests": [Place(catalog.FAULT_WINDOW_REQUESTS, BY_VERSION)] * 2,
        "rate": ring(recorded.FAULT_RATE, recorded.FAULT_RATE_BY_FAULT),
        **{
            column: ring(catalog.FAULT_WINDOW_FAULTED, catalog.FAULT_WINDOW_BY_FAULT, mark=mark)
            for column, mark in (
                ("faulted", "hard"), ("soft", "soft"), ("input_only", "input_only"),
            )
        },
        **{
            f"rate_{end}": ring(
                catalog.FAULT_WINDOW_BOUND, catalog.FAULT_WINDOW_BOUND_BY_FAULT, bound=end
            )
            for end in ("low", "high")
        },
    },
}  # fmt: skip
KEYS = {"version", "layer_id", "modal", "milestone", "fault"}


@pytest.mark.parametrize("row", COLUMNS, ids=lambda row: row.__name__)
def test_every_column_of_a_table_has_its_series(row: type[msgspec.Struct]) -> None:
    fields = set(row.__struct_fields__) - KEYS
    assert fields == set(COLUMNS[row])
    for column, place in ((c, p) for c, places in COLUMNS[row].items() for p in places):
        told = place.series.column
        assert column == "reuse" or (told is not None and column in told.split(", ")), column


# ---------------------------------------------------------------- a known workload
class Traced(Requests):
    """Every measurement has a trace that is kept."""

    def exemplar(self, stamp: Stamp) -> str | None:
        return TRACE


def drive(book: Book) -> None:
    """Some of everything, on both versions; the same each time."""
    draw = random.Random(7)
    for version in VERSIONS:
        stamp = Stamp("a", version, "s", "r", 3, 1, Level())
        for milestone in Milestone:
            for _ in range(draw.randrange(150, 250)):
                first_output(book, stamp, milestone, draw.lognormvariate(-1.6, 0.6))
            for seconds in (0.25, 0.4):  # on a line is not over it
                first_output(book, stamp, milestone, seconds)
            for _ in range(3):  # these hang
                book.crossed(stamp, milestone, LINES.latency.degrade_s)
        for _ in range(400):
            finish(book, stamp, draw)
        for _ in range(2):
            cells = [cell(draw, place) for place in itertools.product(range(LAYERS), Modality)]
            book.cache.update(version, cells, time.monotonic(), "on")
    stamp = Stamp("a", "v1", "s", "r", 3, 1, Level(), operator=True)
    first_output(book, stamp, Milestone.FIRST_TOKEN, 9.0)  # shows nowhere


def first_output(book: Book, stamp: Stamp, milestone: Milestone, seconds: float) -> None:
    for line_s in (LINES.latency.first_packet_s, LINES.latency.degrade_s):
        if seconds > line_s:
            book.crossed(stamp, milestone, line_s)
    book.reached(stamp, milestone, seconds)


def finish(book: Book, stamp: Stamp, draw: random.Random) -> None:
    found = [
        FaultFound(
            fault=fault,
            grade=draw.choice(list(Grade)),
            origin=draw.choice(list(Origin)),
            detector=Detector.SPEECH,
            rule="r",
            detail="",
        )
        for fault in Fault
        if draw.random() < 0.05
    ]
    book.judged(stamp, Finding(Detector.SPEECH, tuple(found), 0.0))
    ending = draw.choices([Outcome.OK, Outcome.LOST, Outcome.CANCELLED], [50, 1, 2])[0]
    faulted = ending is Outcome.LOST or any(map(counts, found))
    book.finished(stamp, RequestFinished(outcome=ending, faulted=faulted), found)


def cell(draw: random.Random, place: tuple[int, Modality]) -> CacheCell:
    layer, modality = place
    lookup = draw.uniform(50, 60) * (modality is not Modality.IMAGE)  # images were never used
    return CacheCell(
        layer=layer,
        modality=modality,
        entropy_th=0.35 if layer else None,
        hit_mass=lookup * draw.uniform(0.8, 0.9),
        lookup_mass=lookup,
        entropy_sum=lookup,
        entropy_count=int(lookup),
        token_entropy_sum=lookup,
        token_entropy_count=int(lookup),
        live_bytes=draw.randrange(10**9) * (modality is not Modality.IMAGE),
        evictable_bytes=7,
        host_bytes=8,
        alias_pages=9,
    )


def nothing_yet(book: Book) -> None:
    for version in VERSIONS:
        book.open(version)
        cells = [
            CacheCell(layer, modality, None, 0.0, 0.0, 0.0, 0, 0.0, 0, 0, 0, 0, 0)
            for layer, modality in itertools.product(range(LAYERS), Modality)
        ]
        book.cache.update(version, cells, time.monotonic(), "on")


# ---------------------------------------------------------------- the three of them
@dataclass(frozen=True)
class Three:
    """The tables, the server that shows them, and the Prometheus that has scraped it."""

    book: Book
    json: Tables
    server: Server
    client: httpx.Client

    def publish(self) -> None:
        body, kind = self.book.exposition.render(OPENMETRICS)
        self.server.answers["/metrics"] = Answer(body, kind=kind)

    def scraped(self, times: int = 3) -> None:
        """Wait until what is shown now was scraped, and rules have seen it."""
        seen = len(self.server.seen)
        wait_for(lambda: len(self.server.seen) >= seen + times)

    def query(self, expr: str) -> dict[frozenset[tuple[str, str]], float]:
        answer = self.client.get("/api/v1/query", params={"query": expr})
        assert answer.status_code == 200, answer.text
        return {
            labels(one["metric"]): float(one["value"][1]) for one in answer.json()["data"]["result"]
        }


def labels(metric: dict[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((k, v) for k, v in metric.items() if k not in {"__name__", "instance", "job"})


def wait_for(holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    book = Book(LINES, "inc", registry=CollectorRegistry(), requests=Traced(Tracing()))
    flag = "--enable-feature=exemplar-storage"
    nothing_yet(book)
    with (
        recording_server() as server,
        prometheus(
            tmp_path_factory.mktemp("prometheus"), server.server_port, LINES, flag
        ) as client,
    ):
        empty = Three(book, book.tables(), server, client)
        empty.publish()
        wait_for(lambda: len(server.seen) > INCREASES / SCRAPE_S)
        drive(book)
        book.exposition.gauge(catalog.REUSE_ON).set(1.0, "v1")
        book.exposition.gauge(catalog.REUSE_ON).set(1.0, "v2")
        resident_info(book, "3", "full")
        driven = Three(book, book.tables(), server, client)
        server.answers["/tables"] = Answer(driven.json.to_json())
        driven.publish()
        driven.scraped()
        yield driven


def resident_info(book: Book, epoch: str, rung: str) -> None:
    info = book.exposition.info(catalog.RESIDENT_INFO)
    info.set("v1", "b", Role.STABLE, "d1", epoch, rung)
    info.set("v2", "a", Role.CANARY, "d2", "1", "full")


def recorded_of(three: Three, place: Place, row: Any) -> float | None:
    """What Prometheus has of one column of one row; `None`: nothing."""
    where = {label: str(getattr(row, name)) for label, name in place.labels.items()}
    where |= place.fixed or {}
    matchers = ",".join(f'{label}="{value}"' for label, value in where.items())
    series = f"{place.series.name}{place.suffix}{{{matchers}}}"
    found = three.query(f"sum({series})" if place.summed else series)
    assert len(found) <= 1
    return next((value * place.scale for value in found.values()), None)


def rows(three: Three) -> Iterator[Any]:
    shown = three.json
    yield from (*shown.cache, *shown.cache_summary, *shown.latency, *shown.faults)


# ---------------------------------------------------------------- Prometheus
@needs_prometheus
def test_prometheus_has_every_column_of_every_row_as_the_tables_have_it(three: Three) -> None:
    compared = 0
    for row in rows(three):
        for column, places in COLUMNS[type(row)].items():
            place = places[-1 if getattr(row, "fault", None) else 0]
            mine, theirs = getattr(row, column), recorded_of(three, place, row)
            where = f"{column} of {row}"
            if mine is None:
                assert theirs is None, where
            else:
                assert theirs is not None, where
                agree(column, mine, theirs, where)
                compared += 1
    assert compared > 150


def agree(column: str, mine: Any, theirs: float, where: str) -> None:
    if column == "reuse":
        assert (mine == "on") == bool(theirs), where
    elif column in {"p50_s", "p95_s", "p99_s"}:
        low, high = bucket(theirs)
        assert low <= mine <= high, where
    elif column == "requests" and "milestone" in where:
        assert mine <= theirs <= mine * (1 + 2 * SCRAPE_S / INCREASES), where
    else:
        assert theirs == pytest.approx(mine, rel=1e-9, abs=1e-12), where


def bucket(interpolated: float) -> tuple[float, float]:
    """The bounds between which the exact quantile lies. On a bound, both neighbours."""
    bounds = [0.0, *catalog.latency_bounds(LINES), math.inf]
    at = bisect.bisect_left(bounds, interpolated - 1e-9)
    return bounds[max(at - 1, 0)], bounds[bisect.bisect_left(bounds, interpolated + 1e-9)]


@needs_prometheus
def test_an_info_joins_on_version_before_and_after_it_changed(three: Three) -> None:
    joined = (
        f"{recorded.FAULT_RATE.name}"
        " * on (version) group_left (role, epoch, rung) redline_resident_info"
    )

    def facts() -> set[frozenset[tuple[str, str]]]:
        return {at for at in three.query(joined) if ("version", "v1") in at}

    old = {"version": "v1", "role": "stable", "epoch": "3", "rung": "full"}
    assert facts() == {frozenset(old.items())}
    resident_info(three.book, "4", "p360_8k+int8")
    three.publish()
    three.scraped()
    new = {**old, "epoch": "4", "rung": "p360_8k+int8"}
    assert facts() == {frozenset(new.items())}  # a second match would have been an error


@needs_prometheus
def test_prometheus_keeps_the_exemplars_trace(three: Three) -> None:
    now = time.time()
    window = {"start": now - 60, "end": now}
    for series in (f"{catalog.FIRST_OUTPUT.name}_bucket", catalog.FAULTS.name):
        answer = three.client.get("/api/v1/query_exemplars", params={"query": series, **window})
        found = [each for one in answer.json()["data"] for each in one["exemplars"]]
        assert {each["labels"]["trace_id"] for each in found} == {TRACE}
        assert all(0.0 < float(each["value"]) < 9.0 for each in found)


@needs_prometheus
def test_an_engine_that_cannot_show_its_cache_is_not_missed(three: Three) -> None:
    able = Capabilities(
        flush=True,
        probe=True,
        quantise_kv=False,
        drills=False,
        observes_residency=False,
        observes_video_prefill=False,
    )
    up = three.book.exposition.gauge(catalog.RESIDENT_UP)
    up.set(1.0, "v3")
    up.set(1.0, "v4")
    three.book.shows("v3", able)
    three.book.shows("v4", msgspec.structs.replace(able, observes_residency=True))
    three.publish()
    three.scraped(4)
    pending = 'max by (version, table) (ALERTS{alertname="RedlineNoData",table="cache"})'
    assert list(three.query(pending)) == [frozenset({("version", "v4"), ("table", "cache")})]


# ---------------------------------------------------------------- the terminal
@pytest.fixture
def stack(three: Three, tmp_path: Path) -> list[str]:
    """The options that lead the command line to the server."""
    told = {"runtime_url": three.server.url, "control_url": three.server.url, "token": "t"}
    (tmp_path / "stack.json").write_text(json.dumps(told))
    return ["--state-dir", str(tmp_path)]


@needs_prometheus
def test_the_command_line_prints_the_same_as_json_on_one_line(
    three: Three, stack: list[str]
) -> None:
    done = CliRunner().invoke(app, ["tables", "--once", "--json", *stack])
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 1
    assert tables.from_json(done.stdout.encode()) == three.json


def test_a_stack_that_is_not_there_is_exit_code_1(tmp_path: Path) -> None:
    told = {"runtime_url": "http://127.0.0.1:9", "control_url": "http://127.0.0.1:9", "token": "t"}
    (tmp_path / "stack.json").write_text(json.dumps(told))
    done = CliRunner().invoke(app, ["tables", "--json", "--state-dir", str(tmp_path)])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "does not answer" in done.stderr


@needs_prometheus
def test_the_terminal_shows_the_same_in_every_column(three: Three) -> None:
    console = Console(width=80, force_terminal=False)
    with console.capture() as capture:
        console.print(tables_view.draw(three.json, LINES))
    shown = {re.sub(r"[│\s]+", " ", line).strip() for line in capture.get().splitlines()}
    for row in three.json.latency:
        assert latency_line(row) in shown
    for row in three.json.faults:
        assert fault_line(row) in shown
    for row in three.json.cache:
        if row.hit_rate is not None:
            assert cache_line(row) in shown


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
