"""Plans: their defaults and their refusals."""

import msgspec
import pytest

from monitors.labels import Milestone
from monitors.redlines import CacheLines, FaultLines, RedLines
from rollout.plan import Cause, PlanError, RolloutPlan, cause_of, make_plan

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
        ({"weight": 91}, "choose at most 90 percent, so that B can show"),
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
