"""What is expected one rung better: a queue's arithmetic, and what the tables tell."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.forecast import (
    SPAN_S,
    History,
    Load,
    assumed_ratio,
    kept_s,
    load_of,
    measured_ratio,
    p99_ahead,
    pixel_ratio,
)
from monitors.cache_table import CacheSummary
from monitors.contract import MediaRung
from monitors.labels import Milestone
from monitors.latency_table import LatencyTable
from monitors.redlines import LadderLines, RedLines
from monitors.tables import Tables, lines_shown, windows

LINES = RedLines()
LADDER = LadderLines()
HALF = Load(p99_s=0.1, busy_share=0.5, per_s=10.0)


@pytest.mark.parametrize(
    ("ratio", "peak", "p99_s"),
    [
        (1.0, None, 0.1),
        (1.0, 10.0, 0.1),
        (1.0, 5.0, 0.1),  # there is as much now
        (1.8, None, 0.9),  # 90 % busy: as long again for the work, five times for the wait
        (1.0, 18.0, 0.5),
        (2.0, None, math.inf),
        (1.0, 20.0, math.inf),
        (3.0, 30.0, math.inf),
    ],
)
def test_the_p99_ahead_is_that_of_a_queue(ratio: float, peak: float | None, p99_s: float) -> None:
    assert p99_ahead(HALF, ratio, peak) == pytest.approx(p99_s)


@pytest.mark.parametrize(
    "load",
    [
        Load(),
        Load(p99_s=0.1),
        Load(p99_s=0.1, per_s=10.0),
        Load(p99_s=0.1, busy_share=0.5),
        Load(p99_s=0.1, busy_share=0.5, per_s=0.0),
        Load(busy_share=0.5, per_s=10.0),
    ],
)
def test_of_less_than_all_nothing_is_foreseen(load: Load) -> None:
    assert p99_ahead(load, 2.0, 10.0) is None


ratios, shares, rates = st.floats(1.0, 9.0), st.floats(0.0, 1.0), st.floats(0.1, 1e3)


@given(st.floats(0.0, 10.0), shares, rates, ratios, ratios, rates, rates)
def test_more_work_and_more_load_never_look_better(
    p99_s: float, busy: float, per_s: float, one: float, other: float, low: float, high: float
) -> None:
    load = Load(p99_s=p99_s, busy_share=busy, per_s=per_s)
    low, high = sorted((low, high))
    less, more = sorted((one, other))
    milder, harsher = p99_ahead(load, less, low), p99_ahead(load, more, high)
    assert milder is not None
    assert harsher is not None
    assert milder <= harsher * (1 + 1e-9)


# ---------------------------------------------------------------- the ratio
def test_the_pixels_of_the_rungs_are_those_of_the_article() -> None:
    assert [pixel_ratio(rung, LADDER) for rung in MediaRung] == [1.0, 4.0, 9.0]
    assert [assumed_ratio(rung, LADDER) for rung in MediaRung] == [1.0, 2.5, 5.0]


@pytest.mark.parametrize(
    ("before", "after", "ratio"),
    [
        (0.8, 0.4, 2.0),
        (0.4, 0.8, 1.0),  # noise: a worse rung is never more work
        (0.9, 0.1, 4.0),  # nor less than its pixels
        (None, 0.4, None),
        (0.8, None, None),
        (0.8, 0.0, None),
    ],
)
def test_the_ratio_is_measured_by_the_work_of_a_request_before_and_after(
    before: float | None, after: float | None, ratio: float | None
) -> None:
    loads = [Load(busy_share=busy, per_s=10.0) for busy in (before, after)]
    assert measured_ratio(loads[0], loads[1], MediaRung.P360_8K, LADDER) == ratio


# ---------------------------------------------------------------- what was
def test_the_peak_is_the_highest_that_is_remembered() -> None:
    history = History()
    for at, per_s in ((0.0, 5.0), (1.0, 40.0), (2.0, 7.0), (100.0, 9.0), (200.0, None)):
        history = history.noted(at, Load(per_s=per_s), 1_000.0)
    assert history.peak(200.0, 1_000.0) == 40.0
    assert history.peak(200.0, 150.0) == 9.0
    assert history.peak(200.0, 50.0) is None
    assert len(history.peaks) == 2


@pytest.mark.parametrize("falls", [0.0, 0.001])
def test_a_history_stays_small_and_forgets_what_lies_ahead(falls: float) -> None:
    history = History()
    for at in range(10_000):
        history = history.noted(float(at), Load(per_s=20.0 - falls * at), 3_600.0)
    assert len(history.peaks) <= 3_600 / SPAN_S + 1
    history = history.noted(5_000.0, Load(per_s=2.0), 3_600.0)
    assert history.peak(5_000.0, 1e9) == 2.0


loads = st.lists(st.tuples(st.floats(0.0, 300.0), st.floats(0.1, 99.0)), min_size=1, max_size=40)


@given(loads, st.floats(2 * SPAN_S, 3_600.0))
def test_whatever_the_loads_were_the_highest_is_known_to_a_span(
    looks: list[tuple[float, float]], memory_s: float
) -> None:
    history, at, seen = History(), 0.0, list[tuple[float, float]]()
    for wait_s, per_s in looks:
        at += wait_s
        history = history.noted(at, Load(per_s=per_s), 3_600.0)
        seen.append((at, per_s))
    known = history.peak(at, memory_s)
    assert known is None or known in [per_s for when, per_s in seen if at - when <= memory_s]
    assert (known or 0.0) >= max(
        (per_s for when, per_s in seen if at - when <= memory_s - SPAN_S), default=0.0
    )


def test_a_load_is_kept_for_as_long_as_the_most_patient_ladder_asks_and_no_longer_than_a_day() -> (
    None
):
    assert kept_s(LADDER) == LADDER.memory_s * 30
    assert kept_s(LADDER.model_copy(update={"memory_s": 7_200.0})) == 86_400.0


# ---------------------------------------------------------------- the tables
class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def tables_of(table: LatencyTable, now: float, **more: object) -> Tables:
    given = {"cache": (), "cache_summary": (), "faults": ()}
    return Tables(
        wall=now, windows=windows(LINES), lines=lines_shown(LINES), latency=table.rows(now),
        **{**given, **more},
    )  # fmt: skip


def test_a_load_is_of_one_version_and_its_slowest_first_output() -> None:
    clock = Clock()
    table = LatencyTable(LINES, clock=clock)
    for _ in range(60):
        table.observe("v1", Milestone.FIRST_TOKEN, 0.1)
        table.observe("v1", Milestone.FIRST_AUDIO_PACKET, 0.3)
        table.observe("v2", Milestone.FIRST_TOKEN, 0.9)
    held = (
        CacheSummary(version="v1", hit_rate=None, gpu_mem_gb=5.0),
        CacheSummary(version="v2", hit_rate=None, gpu_mem_gb=7.0),
    )
    tables = tables_of(table, 0.0, cache_summary=held)
    assert load_of("v1", tables, 60, busy_share=0.4, native_bytes=9_000_000_000) == Load(
        p99_s=0.3, busy_share=0.4, per_s=2.0, live_gb=5.0, native_gb=9.0
    )


def test_requests_that_hang_are_as_late_as_the_line_at_least() -> None:
    clock = Clock()
    table = LatencyTable(LINES, clock=clock)
    for _ in range(10):
        table.overdue("v1", Milestone.FIRST_TOKEN)
    load = load_of("v1", tables_of(table, 0.0), 10)
    assert (load.p99_s, load.per_s) == (LINES.latency.degrade_s, pytest.approx(1 / 3))


def test_of_too_few_requests_there_is_no_p99_and_a_rate_all_the_same() -> None:
    table = LatencyTable(LINES, clock=Clock())
    for _ in range(30):
        table.observe("v1", Milestone.FIRST_TOKEN, 0.1)
    assert load_of("v1", tables_of(table, 0.0), 31, busy_share=0.2) == Load(
        busy_share=0.2, per_s=1.0
    )
    assert load_of("v1", tables_of(table, 0.0), 30).p99_s == 0.1


def test_of_no_request_and_no_tables_nothing_is_known() -> None:
    clock = Clock()
    table = LatencyTable(LINES, clock=clock)
    table.observe("v1", Milestone.FIRST_TOKEN, 0.1)
    assert load_of("v1", tables_of(table, 1_000.0), 1).p99_s is None
    assert load_of("v1", None, 1, busy_share=0.3) == Load(busy_share=0.3)
    assert Load().told() == ""
