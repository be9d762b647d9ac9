"""Plans: their defaults, their refusals, and whether the promised sensitivity is true."""

import msgspec
import numpy as np
import pytest

from monitors.labels import Milestone
from monitors.redlines import CacheLines, FaultLines, RedLines
from rollout.plan import (
    Cause,
    PlanError,
    RolloutPlan,
    cause_of,
    clean_requests_to_pass,
    detectable,
    make_plan,
    requests_to_call,
)
from rollout.sequential import LineTest, Verdict
from tests.unit.rollout.test_sequential import stop_times

PLAN = make_plan(RedLines(), stable="b", canary="a", version="v2")


def test_a_plan_by_the_article_is_five_percent_for_ten_minutes() -> None:
    assert (PLAN.weight, PLAN.bake_s) == (5, 600.0)
    limits = {line.name: line.limit for line in PLAN.lines}
    assert limits == {
        "faults": 0.005,
        "residency": pytest.approx(0.1),
        "first_packet": 0.05,
        "degrade_first_token": 0.01,
        "degrade_first_audio_packet": 0.01,
        "degrade_first_video_frame": 0.01,
    }


def test_all_lines_share_one_false_alarm_budget() -> None:
    assert sum(line.alpha for line in PLAN.lines) == pytest.approx(RedLines().rollout.alpha)


def test_every_milestone_has_a_degrade_line_and_speech_has_the_first_packet_line() -> None:
    seen = [(latency.milestone, latency.seconds) for latency in PLAN.latency]
    assert seen == [(Milestone.FIRST_AUDIO_PACKET, 0.25), *((m, 0.4) for m in Milestone)]


def test_a_plan_comes_back_from_the_journal_as_it_was() -> None:
    assert msgspec.json.decode(msgspec.json.encode(PLAN), type=RolloutPlan) == PLAN


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"canary": "b"}, "name two residents"),
        ({"weight": 0}, "choose 1 to 100"),
        ({"weight": 101}, "choose 1 to 100"),
        ({"bake_s": 0.0}, "above 0 seconds"),
        ({"bake_s": float("inf")}, "above 0 seconds"),
        ({"version": ""}, "needs the version"),
    ],
)
def test_a_plan_that_cannot_be_does_not_construct(wish: dict[str, object], words: str) -> None:
    asked: dict[str, object] = {"stable": "b", "canary": "a", "version": "v2", **wish}
    with pytest.raises(PlanError, match=words):
        make_plan(RedLines(), **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "lines",
    [
        RedLines(faults=FaultLines(rate=0.0)),
        RedLines(cache=CacheLines(hit_rate_floor=1.0)),
    ],
)
def test_a_line_that_no_test_can_hold_is_refused_by_name(lines: RedLines) -> None:
    with pytest.raises(PlanError, match="strictly between 0 and 1"):
        make_plan(lines, stable="b", canary="a", version="v2")


def test_only_faults_are_the_faults_cause() -> None:
    causes = {line.name: cause_of(line.name) for line in PLAN.lines}
    assert causes.pop("faults") is Cause.FAULTS
    assert causes.pop("residency") is Cause.CACHE
    assert set(causes.values()) == {Cause.LATENCY}


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.2, 0.5])
def test_the_median_that_is_promised_is_the_median_that_is_simulated(rate: float) -> None:
    promised = requests_to_call(PLAN.faults, rate)
    draws = np.random.default_rng(3).random((120, int(2.5 * promised)))
    stop = stop_times(PLAN.faults, (draws < rate).astype(float), restart_every=10_000)
    assert np.median(np.where(stop == 0, draws.shape[1], stop)) == pytest.approx(promised, rel=0.3)


def test_less_traffic_detects_less_and_none_detects_nothing() -> None:
    rates = [detectable(PLAN, rps).fault_rate for rps in (333.0, 20.0, 1.0)]
    assert rates[0] is not None
    assert rates[1] is not None
    assert rates[2] is not None
    assert 0.005 < rates[0] < rates[1] < rates[2]
    assert detectable(PLAN, 0.001).fault_rate is None


def test_clean_requests_to_pass_is_exact() -> None:
    needed, test = clean_requests_to_pass(PLAN.faults), LineTest(PLAN.faults)
    for i in range(needed - 1):
        test.observe(0.0, f"s{i}")
    assert test.verdict is Verdict.INCONCLUSIVE
    test.observe(0.0, "last")
    assert test.verdict is Verdict.PASS
    assert not detectable(PLAN, (needed - 1) / 30.0).can_pass
    assert detectable(PLAN, (needed + 1) / 30.0).can_pass
