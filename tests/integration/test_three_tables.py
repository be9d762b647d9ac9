"""The three tables as JSON and in a real Prometheus: the same, column by column.

Counts are equal to the last digit, and shares are here, where all counters began in the window: how
far they are apart where one began before it is in tests/rules/latency.yml. `increase` stretches a
count of a window to its ends, by a scrape interval's part at each. A quantile that Prometheus
interpolates lies in the bucket that holds the exact one.
"""

import bisect
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec
import pytest

from monitors import catalog, recorded
from monitors.cache_table import CacheRow, CacheSummary
from monitors.contract import Level, RequestFinished
from monitors.fault_table import FaultRow
from monitors.labels import Milestone, Outcome, Role
from monitors.latency_table import LatencyRow
from monitors.metric import Metric
from monitors.recorded import Recorded
from monitors.tables import Tables
from monitors.tracing import Tracing
from runtime.book import Book
from runtime.residents.port import Capabilities
from runtime.stamp import Stamp
from tests.support.http_server import Answer, Server, recording_server
from tests.support.prometheus import SCRAPE_S, needs_prometheus, prometheus
from tests.support.three_tables import LINES, TRACE, Traced, drive, nothing_yet

OPENMETRICS = "application/openmetrics-text"
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
        "finished": [Place(catalog.SERVED_REQUESTS, BY_VERSION)] * 2,
        "answered": [Place(catalog.REQUESTS, BY_VERSION, fixed={"outcome": Outcome.OK})] * 2,
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
    book = Book(LINES, "inc", requests=Traced(Tracing()))
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
        resident_info(book, "3", "full")
        driven = Three(book, book.tables(), server, client)
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
    found = three.query(series)
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


@needs_prometheus
def test_answers_without_a_first_output_are_missed_and_others_are_not(three: Three) -> None:
    """What a book shows of two versions from their start on, where one measures no latency."""
    pending = 'max by (version, table) (ALERTS{alertname="RedlineNoData",table="latency"})'
    for version in ("v3", "v4"):
        three.book.open(version)
    three.publish()
    three.scraped()
    assert three.query(pending) == {}
    for version in ("v3", "v4"):
        stamp = Stamp("a", version, "s", "r", 3, 1, Level())
        if version == "v4":
            three.book.reached(stamp, Milestone.FIRST_TOKEN, 0.1)
        three.book.finished(stamp, RequestFinished(outcome=Outcome.OK, faulted=False), ())
    three.publish()
    three.scraped(4)
    assert list(three.query(pending)) == [frozenset({("version", "v3"), ("table", "latency")})]
