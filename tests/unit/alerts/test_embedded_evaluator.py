"""The evaluator that stands in for Prometheus: its comparisons, its states, its windows."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.evaluator import (
    Evaluator,
    Phase,
    Standing,
    advance,
    cache_is_crossed,
    faults_are_crossed,
    latency_is_crossed,
    prometheus_is_silent,
)
from alerts.firing import Firing
from alerts.policy import AlertName
from monitors.cache_table import CacheSummary
from monitors.fault_table import FaultRow, FaultTable
from monitors.labels import Action, Fault, Milestone, Outcome
from monitors.latency_table import LatencyRow, LatencyTable
from monitors.redlines import AlertLines, FaultLines, LatencyLines, RedLines
from monitors.tables import Tables, lines_shown, windows

LINES = RedLines(latency=LatencyLines(min_count=20), faults=FaultLines(min_count=20))
WALL = 1_800_000_000.0


def cache(hit_rate: float | None = 0.8, gpu_mem_gb: float = 26.0) -> CacheSummary:
    return CacheSummary(version="v1", hit_rate=hit_rate, gpu_mem_gb=gpu_mem_gb)


def latency(
    requests: int, overdue: int, milestone: Milestone = Milestone.FIRST_TOKEN
) -> LatencyRow:
    return LatencyRow(
        version="v1",
        milestone=milestone,
        count=10 * requests,
        p50_s=None,
        p95_s=None,
        p99_s=None,
        over=5 * requests,
        requests=requests,
        over_share=overdue / requests if requests else None,
        slow_share=None,
    )


def faults(requests: int, faulted: int, fault: Fault | None = None, finished: int = 0) -> FaultRow:
    rate = faulted / requests if requests else None
    return FaultRow(
        version="v1",
        fault=fault,
        finished=finished or requests,
        requests=requests,
        faulted=faulted,
        rate=rate,
        rate_low=None,
        rate_high=None,
        soft=0,
        input_only=0,
    )


def tables(**rows: Any) -> Tables:
    empty: dict[str, Any] = {"cache": (), "cache_summary": (), "latency": (), "faults": ()}
    return Tables(wall=WALL, windows=windows(LINES), lines=lines_shown(LINES), **{**empty, **rows})


class Clock:
    """Ticks an evaluator once a second."""

    def __init__(self, lines: RedLines = LINES) -> None:
        self.evaluator = Evaluator(lines)
        self.now = 0.0

    def tick(self, seen: Tables | None) -> tuple[Firing, ...] | None:
        firing = self.evaluator.tick(seen, self.now, WALL + self.now)
        self.now += 1.0
        return firing

    def names(self, seen: Tables) -> set[str]:
        firing = self.tick(seen)
        assert firing is not None
        return {each.alert for each in firing}


# ---------------------------------------------------------------- the three comparisons
@pytest.mark.parametrize(
    ("hit_rate", "gpu_mem_gb", "crossed"),
    [
        (0.899, 25.1, True),
        (0.900, 25.1, False),
        (0.899, 25.0, False),
        (None, 90.0, False),
    ],
)
def test_the_cache_line_needs_both_conditions(hit_rate, gpu_mem_gb: float, crossed: bool):
    assert cache_is_crossed(cache(hit_rate, gpu_mem_gb), LINES.cache) is crossed


@pytest.mark.parametrize(
    ("requests", "overdue", "crossed"),
    [(20, 1, True), (19, 19, False), (100, 1, False), (100, 2, True), (0, 0, False)],
)
def test_the_latency_line_is_a_share_with_a_minimum(requests: int, overdue: int, crossed: bool):
    assert latency_is_crossed(latency(requests, overdue), LINES.latency) is crossed


@pytest.mark.parametrize(
    ("requests", "faulted", "crossed"),
    [(20, 1, True), (19, 19, False), (200, 1, False), (10_000, 51, True), (0, 0, False)],
)
def test_the_fault_line_is_a_share_of_the_ring(requests: int, faulted: int, crossed: bool):
    assert faults_are_crossed(faults(requests, faulted), LINES.faults) is crossed


# ---------------------------------------------------------------- inactive, pending, firing
def test_a_crossing_fires_when_it_has_lasted_and_not_a_second_before():
    standing = None
    for second in range(30):
        standing = advance(standing, True, 30.0, float(second), WALL + second)
        assert standing == Standing(Phase.PENDING, 0.0, WALL)
    assert advance(standing, True, 30.0, 30.0, WALL + 30) == Standing(Phase.FIRING, 0.0, WALL)


def test_one_tick_inside_the_line_starts_again():
    standing = advance(None, True, 30.0, 0.0, WALL)
    standing = advance(standing, False, 30.0, 29.0, WALL)
    assert standing is None
    assert advance(standing, True, 30.0, 30.0, WALL + 30) == Standing(
        Phase.PENDING, 30.0, WALL + 30
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), max_size=60), st.integers(0, 8))
def test_it_fires_exactly_while_the_last_seconds_were_all_crossed(crossed: list[bool], for_s: int):
    standing = None
    for now, each in enumerate(crossed):
        standing = advance(standing, each, float(for_s), float(now), WALL)
        last = crossed[max(0, now - for_s) : now + 1]
        fires = standing is not None and standing.phase is Phase.FIRING
        assert fires == (len(last) == for_s + 1 and all(last))


# ---------------------------------------------------------------- over the tables
def test_the_cache_alert_fires_after_its_hold_as_prometheus_would_label_it():
    clock = Clock()
    for _ in range(30):
        assert clock.tick(tables(cache_summary=(cache(),))) == ()
    (firing,) = clock.tick(tables(cache_summary=(cache(),))) or ()
    assert (firing.action, firing.version) == (Action.QUANTISE_KV, "v1")
    assert firing.starts_at == WALL
    assert firing.labels == {
        "alertname": AlertName.CACHE_BELOW_FLOOR,
        "severity": "action",
        "action": "quantise_kv",
        "table": "cache",
        "version": "v1",
    }


def test_the_latency_alert_fires_on_the_tables_own_window_and_at_once():
    clock = Clock()
    assert clock.names(tables(latency=(latency(100, 1),))) == set()
    assert clock.names(tables(latency=(latency(100, 2),))) == {AlertName.LATENCY_DEGRADE}
    assert clock.names(tables(latency=(latency(0, 0),))) == set()
    (firing,) = clock.tick(tables(latency=(latency(25, 25, Milestone.FIRST_AUDIO_PACKET),))) or ()
    assert firing.labels["milestone"] == "first_audio_packet"


def test_it_decides_over_latencies_as_the_table_counts_them():
    """90 answered and 90 hung: their share is over the line in the table, so it fires."""
    now = [0.0]
    seen = LatencyTable(RedLines(), clock=lambda: now[0])
    clock = Clock(RedLines())
    clock.tick(tables(latency=seen.rows()))
    for _ in range(90):
        seen.observe("v1", Milestone.FIRST_TOKEN, 0.1)
        seen.overdue("v1", Milestone.FIRST_TOKEN)
    (row,) = seen.rows()
    assert (row.requests, row.over_share) == (180, 0.5)
    assert clock.names(tables(latency=(row,))) == {AlertName.LATENCY_DEGRADE}
    now[0] += 31.0
    assert clock.names(tables(latency=seen.rows())) == set()


def test_faults_fire_while_requests_finish_and_are_old_news_after():
    clock = Clock()

    def bad(finished: int) -> Tables:
        each = faults(100, 5, Fault.LIP_DESYNC, finished)
        return tables(faults=(faults(100, 5, finished=finished), each))

    assert clock.names(bad(110)) == set()  # before it looked
    assert clock.names(bad(111)) == {AlertName.FAULT_RATE}
    for _ in range(59):
        assert clock.names(bad(111)) == {AlertName.FAULT_RATE}
    assert clock.names(bad(111)) == set()


def test_requests_that_all_fail_before_any_output_are_traffic_in_a_full_ring():
    seen = FaultTable(RedLines(faults=FaultLines(window_requests=3_000)))
    clock = Clock(RedLines())
    clock.tick(tables(faults=seen.rows()))
    for _ in range(3_000):
        seen.finish("v1", Outcome.FAILED, True)
    assert clock.names(tables(faults=seen.rows())) == {AlertName.FAULT_RATE}
    for _ in range(59):
        clock.tick(tables(faults=seen.rows()))
    seen.finish("v1", Outcome.FAILED, True)  # moves nothing in the ring
    assert clock.names(tables(faults=seen.rows())) == {AlertName.FAULT_RATE}
    assert clock.names(tables(faults=seen.rows())) == {AlertName.FAULT_RATE}


def test_what_a_restarted_data_plane_finished_is_traffic():
    clock = Clock()
    clock.tick(tables(faults=(faults(100, 0, finished=5_000),)))
    assert clock.names(tables(faults=(faults(30, 5, finished=30),))) == {AlertName.FAULT_RATE}


def test_tables_that_cannot_be_read_are_unknown_and_every_hold_starts_again():
    clock = Clock()
    for _ in range(29):
        clock.tick(tables(cache_summary=(cache(),)))
    assert clock.tick(None) is None
    for _ in range(30):
        assert clock.tick(tables(cache_summary=(cache(),))) == ()
    assert clock.names(tables(cache_summary=(cache(),))) == {AlertName.CACHE_BELOW_FLOOR}


def test_a_version_that_is_gone_no_longer_fires():
    clock = Clock()
    for _ in range(31):
        clock.tick(tables(cache_summary=(cache(),)))
    assert clock.names(tables()) == set()


@pytest.mark.parametrize(("age_s", "silent"), [(None, True), (20.0, False), (20.1, True)])
def test_prometheus_is_silent_without_a_recent_heartbeat(age_s: float | None, silent: bool):
    assert prometheus_is_silent(age_s, AlertLines()) is silent
