"""The evaluator that stands in for Prometheus: its comparisons, its states, its windows."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from alerts.compile import alerts
from alerts.evaluator import Evaluation, Evaluator, prometheus_is_silent
from alerts.firing import Firing
from alerts.names import AlertName
from alerts.policy import make
from alerts.witness import PROMETHEUS_ONLY
from monitors.cache_table import CacheSummary
from monitors.contract import Level, Observed, ResidentStatus
from monitors.fault_table import FaultRow, FaultTable
from monitors.labels import Action, Fault, Milestone, Outcome, ResidentState
from monitors.latency_table import LatencyRow, LatencyTable
from monitors.redlines import AlertLines, FaultLines, LatencyLines, RedLines
from monitors.tables import Tables, lines_shown, windows

LINES = RedLines(latency=LatencyLines(min_count=20), faults=FaultLines(min_count=20))
WALL = 1_800_000_000.0
ROOT = Path(__file__).parents[3]


def resident(name: str, state: ResidentState, weight: int, version: str = "") -> ResidentStatus:
    return ResidentStatus(
        name=name, version=version or f"of-{name}", state=state, weight=weight, level=Level(),
        min_pool_epoch=1,
    )  # fmt: skip


def observed(*residents: ResidentStatus) -> Observed:
    return Observed(
        incarnation="g", leader_epoch=1, route_epoch=1, stable="b", canary="a", canary_weight=0,
        lease_left_s=0.0, residents=residents,
    )  # fmt: skip


SERVED = observed(resident("b", ResidentState.READY, 0))


def cache(hit_rate: float | None = 0.8, gpu_mem_gb: float | None = 26.0) -> CacheSummary:
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
        self.evaluator = Evaluator(make(lines))
        self.now = 0.0

    def look(self, seen: Tables | None, observed: Observed | None = SERVED) -> Evaluation:
        evaluation = self.evaluator.tick(seen, observed, self.now, WALL + self.now)
        self.now += 1.0
        return evaluation

    def tick(self, seen: Tables | None) -> tuple[Firing, ...]:
        return self.look(seen).firing

    def names(self, seen: Tables | None, observed: Observed | None = SERVED) -> set[str]:
        return {each.alert for each in self.look(seen, observed).firing}


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


# ---------------------------------------------------------------- over the machinery
def test_a_data_plane_that_shows_nothing_is_told_after_a_while():
    clock = Clock()
    for _ in range(10):
        assert clock.names(None, None) == set()
    assert clock.names(None, None) == {AlertName.DATA_PLANE_DOWN}
    assert clock.names(tables()) == set()


@pytest.mark.parametrize(
    ("residents", "down"),
    [
        ([resident("b", ResidentState.READY, 100)], []),
        ([resident("b", ResidentState.DEAD, 0)], ["of-b"]),
        ([resident("a", ResidentState.DEAD, 0)], []),
        ([resident("a", ResidentState.LOADING, 5)], ["of-a"]),
        (
            [
                resident("a", ResidentState.DEAD, 5, "v"),
                resident("b", ResidentState.READY, 95, "v"),
            ],
            [],
        ),
    ],
)
def test_a_resident_that_should_serve_and_is_not_ready_is_down(residents, down: list[str]):
    clock = Clock()
    for _ in range(10):
        assert clock.names(tables(), observed(*residents)) == set()
    firing = clock.look(tables(), observed(*residents)).firing
    assert [each.version for each in firing if each.alert == AlertName.RESIDENT_DOWN] == down


def test_residents_that_cannot_be_seen_are_not_known_to_be_down():
    clock = Clock()
    dead = observed(resident("b", ResidentState.DEAD, 100))
    for _ in range(10):
        clock.look(tables(), dead)
    assert AlertName.RESIDENT_DOWN not in clock.names(tables(), None)
    assert AlertName.RESIDENT_DOWN not in clock.names(tables(), dead)


def test_an_action_that_does_not_help_exhausts_the_ladder():
    clock, slow = Clock(), tables(latency=(latency(25, 25),))
    held = LINES.ladder.dwell_s * 3
    for _ in range(int(held)):
        assert clock.names(slow) == {AlertName.LATENCY_DEGRADE}
    found = clock.look(slow)
    exhausted = [each for each in found.firing if each.alert == AlertName.LADDER_EXHAUSTED]
    assert [each.version for each in exhausted] == ["v1"]


def test_a_slow_first_packet_alone_never_exhausts_the_ladder():
    clock = Clock()
    late = replace(latency(25, 0, Milestone.FIRST_AUDIO_PACKET), slow_share=1.0)
    for _ in range(int(LINES.ladder.dwell_s * 3) + 1):
        names = clock.names(tables(latency=(late,)))
    assert AlertName.FIRST_PACKET_SHED in names
    assert AlertName.LADDER_EXHAUSTED not in names


def test_a_version_with_weight_and_no_answers_has_no_traffic():
    clock = Clock()
    sent = observed(resident("b", ResidentState.READY, 100, "v1"))

    def second(finished: int) -> set[str]:
        return clock.names(tables(faults=(faults(100, 0, finished=finished),)), sent)

    for served in range(100):
        second(100 + served)
    for _ in range(29 + int(LINES.rollout.bake_s)):
        assert second(200) == set()
    second(200)
    assert second(200) == {AlertName.NO_TRAFFIC}
    assert second(201) == set()


def test_requests_that_finish_without_a_measured_output_are_no_data():
    clock = Clock()
    for finished in range(330):
        row = faults(100, 0, finished=100 + finished)
        assert clock.names(tables(faults=(row,), latency=(latency(9, 0),))) == set(), finished
    row = faults(100, 0, finished=1_000)
    firing = clock.look(tables(faults=(row,), latency=(latency(9, 0),))).firing
    (blind,) = [each for each in firing if each.alert == AlertName.NO_DATA]
    assert (blind.version, blind.labels["table"]) == ("v1", "latency")


def test_no_resident_at_all_is_no_data():
    clock = Clock()
    for _ in range(30):
        assert clock.names(tables(), observed()) == set()
    assert clock.names(tables(), observed()) == {AlertName.NO_DATA}


def test_every_alert_is_evaluated_here_or_it_is_said_why_not():
    evaluated = set(Clock().evaluator.watched)
    assert evaluated.isdisjoint(PROMETHEUS_ONLY)
    assert evaluated | set(PROMETHEUS_ONLY) == {alert.name for alert in alerts(make(LINES))}


def test_the_runbook_says_which_alerts_nobody_evaluates_without_prometheus():
    page = (ROOT / "docs/runbooks" / AlertName.WATCHDOG.page).read_text()
    assert [name for name in PROMETHEUS_ONLY if f"`{name}`" not in page] == [AlertName.WATCHDOG]


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
