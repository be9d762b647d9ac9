"""The evaluator that stands in for Prometheus: its comparisons, its states, its windows."""

import pytest

from alerts.evaluator import prometheus_is_silent
from alerts.names import AlertName
from monitors.fault_table import FaultTable
from monitors.labels import Action, Fault, Milestone, Outcome
from monitors.latency_table import LatencyTable
from monitors.redlines import AlertLines, FaultLines, RedLines
from monitors.tables import Tables
from tests.unit.alerts.looks import LINES, WALL, Clock, cache, faults, latency, tables


# ---------------------------------------------------------------- the three comparisons
@pytest.mark.parametrize(
    ("hit_rate", "gpu_mem_gb", "crossed"),
    [
        (0.899, 25.1, True),
        (0.900, 25.1, False),
        (0.899, 25.0, False),
        (None, 90.0, False),
        (0.5, None, False),
    ],
)
def test_the_cache_line_needs_both_conditions(hit_rate, gpu_mem_gb, crossed: bool):
    pending = Clock().look(tables(cache_summary=(cache(hit_rate, gpu_mem_gb),))).pending
    assert bool(pending) is crossed


@pytest.mark.parametrize(
    ("requests", "overdue", "crossed"),
    [(20, 1, True), (19, 19, False), (100, 1, False), (100, 2, True), (0, 0, False)],
)
def test_the_latency_line_is_a_share_with_a_minimum(requests: int, overdue: int, crossed: bool):
    names = Clock().names(tables(latency=(latency(requests, overdue),)))
    assert (AlertName.LATENCY_DEGRADE in names) is crossed


@pytest.mark.parametrize(
    ("requests", "faulted", "crossed"),
    [(20, 1, True), (19, 19, False), (200, 1, False), (10_000, 51, True), (0, 0, False)],
)
def test_the_fault_line_is_a_share_of_the_ring(requests: int, faulted: int, crossed: bool):
    clock = Clock()
    clock.tick(tables(faults=(faults(requests, faulted, finished=1),)))
    names = clock.names(tables(faults=(faults(requests, faulted, finished=2),)))
    assert (AlertName.FAULT_RATE in names) is crossed


# ---------------------------------------------------------------- over the tables
def test_the_cache_alert_fires_after_its_hold_as_prometheus_would_label_it():
    clock = Clock()
    for _ in range(30):
        assert clock.tick(tables(cache_summary=(cache(),))) == ()
    (firing,) = clock.tick(tables(cache_summary=(cache(),)))
    assert (firing.action, firing.version) == (Action.QUANTISE_KV, "v1")
    assert firing.starts_at == WALL + 30  # as Prometheus tells Alertmanager
    assert firing.summary == "Cache hit rate of v1 is 80%, below 90 %, with much KV live"
    assert firing.runbook == "docs/runbooks/redline-cache-below-floor.md"
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
    (firing,) = clock.tick(tables(latency=(latency(25, 25, Milestone.FIRST_AUDIO_PACKET),)))
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
    assert clock.look(None).watched is False
    for _ in range(30):
        assert clock.tick(tables(cache_summary=(cache(),))) == ()
    assert clock.names(tables(cache_summary=(cache(),))) == {AlertName.CACHE_BELOW_FLOOR}


def test_a_version_that_is_gone_no_longer_fires():
    clock = Clock()
    for _ in range(31):
        clock.tick(tables(cache_summary=(cache(),)))
    assert clock.names(tables()) == set()


# ---------------------------------------------------------------- when to take over
def test_what_is_decided_was_watched_for_as_long_as_its_line_must_be_crossed():
    clock = Clock()
    assert AlertName.LATENCY_DEGRADE in clock.look(tables()).decided
    for _ in range(29):
        assert AlertName.CACHE_BELOW_FLOOR not in clock.look(tables()).decided
    assert AlertName.CACHE_BELOW_FLOOR in clock.look(tables()).decided
    assert AlertName.CACHE_BELOW_FLOOR not in clock.look(None).decided


def test_it_says_when_the_first_pending_alert_is_due():
    clock = Clock()
    assert clock.look(tables()).due is None
    clock.look(tables(cache_summary=(cache(),)))
    assert clock.look(tables(cache_summary=(cache(),))).due == 1.0 + LINES.cache.hold_s


@pytest.mark.parametrize(("age_s", "silent"), [(None, True), (30.0, False), (30.1, True)])
def test_prometheus_is_silent_without_a_recent_heartbeat(age_s: float | None, silent: bool):
    assert prometheus_is_silent(age_s, AlertLines()) is silent
