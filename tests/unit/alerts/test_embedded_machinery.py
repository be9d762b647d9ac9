"""What the embedded evaluator tells of the machinery: who is down, blind, silent, at its end."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from alerts.compile import alerts
from alerts.names import AlertName
from alerts.policy import make
from alerts.witness import PROMETHEUS_ONLY
from monitors.labels import Milestone, ResidentState
from tests.unit.alerts.looks import (
    LINES,
    Clock,
    faults,
    latency,
    observed,
    resident,
    tables,
)

ROOT = Path(__file__).parents[3]


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


def test_a_breach_that_pauses_for_less_than_a_window_exhausts_the_ladder_and_a_longer_one_not():
    held = int(LINES.ladder.dwell_s * 3)

    def ends(pause: int) -> set[str]:
        clock = Clock()
        for second in range(held + 100):
            overdue = 0 if 90 <= second < 90 + pause else 5
            names = clock.names(tables(latency=(latency(25, overdue),)))
        return names

    window = int(LINES.latency.window_s)
    assert AlertName.LADDER_EXHAUSTED in ends(window)
    assert AlertName.LADDER_EXHAUSTED not in ends(window + 1)


def test_what_cannot_be_read_is_no_pause():
    clock, slow = Clock(), tables(latency=(latency(25, 5),))
    for _ in range(int(LINES.ladder.dwell_s * 3)):
        clock.look(slow)
    clock.look(None)
    assert AlertName.LADDER_EXHAUSTED not in clock.names(slow)


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


def test_a_version_whose_every_request_fails_answers_none_and_lacks_no_data():
    """As Prometheus has it, which counts answers too (test_scenarios, slow.yml)."""
    clock, sent = Clock(), observed(resident("b", ResidentState.READY, 100, "v1"))
    for second in range(29 + int(LINES.rollout.bake_s)):
        row = faults(10, 10, finished=10 + second, answered=7)
        names = clock.names(tables(faults=(row,)), sent)
        assert AlertName.NO_DATA not in names
    row = faults(10, 10, finished=5_000, answered=7)
    assert AlertName.NO_TRAFFIC in clock.names(tables(faults=(row,)), sent)


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
