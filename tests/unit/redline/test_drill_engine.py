"""The drills of the ladder: where they cannot be held, what they break, what proves an answer."""

from typing import Any

import pytest
from msgspec.structs import replace

from alerts.names import AlertName
from alerts.policy import make
from monitors.contract import KvRung, Level, MediaRung
from monitors.redlines import LatencyLines, RedLines
from redline.drills import engine
from redline.drills.stage import CannotRun, Stage
from redline.drills.timeline import BREACH, wanting
from redline.drills.traffic import Probe
from tests.support.records import a_leg, a_record
from tests.unit.redline.drill_world import World, stage_in
from tests.unit.redline.test_drill_plays import Play, complaints

LATENCY, CACHE = engine.latency, engine.cache


def with_lines(monkeypatch: pytest.MonkeyPatch, **latency: Any) -> Stage:
    stage = stage_in(World(), monkeypatch)
    stage.policy = make(RedLines(latency=LatencyLines(**latency)))
    return stage


# ---------------------------------------------------------------- before anything is broken
@pytest.mark.parametrize(
    ("play", "level", "runs"),
    [
        (LATENCY, Level(media=MediaRung.P360_8K), False),
        (LATENCY, Level(kv=KvRung.INT8), True),
        (CACHE, Level(kv=KvRung.INT8), False),
    ],
)
def test_a_part_that_is_down_already_cannot_be_drilled(
    play: Play, level: Level, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.level = level
    stage = stage_in(world, monkeypatch)
    breach = engine.slow(stage) if play is LATENCY else engine.pressure(stage)
    if runs:
        assert engine.at_full(stage, breach).version == "tiny-omni-1"
        return
    with pytest.raises(CannotRun, match=r"is at .* already"):
        play(stage)
    assert stage.timeline.steps == ()


@pytest.mark.parametrize(
    ("play", "alert"),
    [(LATENCY, AlertName.LATENCY_DEGRADE), (CACHE, AlertName.CACHE_BELOW_FLOOR)],
)
def test_an_alert_that_fires_already_comes_before_any_drill(
    play: Play, alert: AlertName, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.alert = alert
    stage = stage_in(world, monkeypatch)
    with pytest.raises(CannotRun, match=f"{alert} fires already"):
        play(stage)
    other = World()
    other.alert = AlertName.NO_TRAFFIC
    stage = stage_in(other, monkeypatch)
    assert engine.at_full(stage, engine.slow(stage)).version == "tiny-omni-1"


def test_a_step_takes_longer_than_the_line_and_no_longer_than_an_engine_lets_itself_be_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for degrade_s in (0.4, 9.0):
        amount = engine.slow(with_lines(monkeypatch, degrade_s=degrade_s)).amount
        assert amount is not None
        assert degrade_s < amount <= 10.0
    with pytest.raises(CannotRun, match=r"10 s slow, not 10\.45 s"):
        engine.slow(with_lines(monkeypatch, degrade_s=9.5))


def test_a_rule_that_asks_for_many_requests_gets_more_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = engine.slow(with_lines(monkeypatch, min_count=5)).traffic
    many = engine.slow(with_lines(monkeypatch, min_count=100)).traffic
    assert few.workers < many.workers


@pytest.mark.parametrize("play", [LATENCY, CACHE])
def test_a_drill_without_traffic_of_its_own_sends_none(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    for own_traffic in (True, False):
        world = World()
        play(stage_in(world, monkeypatch, own_traffic=own_traffic))
        assert [kind is not None for kind in world.sent] == [own_traffic] * 2


# ---------------------------------------------------------------- what is waited for, from when on
AS_PROMETHEUS_TELLS = [
    ("pending", BREACH),
    ("firing", BREACH),
    ("webhook", BREACH),
    ("action", "webhook"),
    ("effect", "action"),
]


@pytest.mark.parametrize(
    ("prometheus", "alertmanager", "left_out"),
    [
        ("http://p", "http://a", set[str]()),
        (None, "http://a", {"pending"}),
        ("http://p", None, {"firing"}),
    ],
)
def test_each_step_counts_from_its_cause_and_only_who_listens_is_asked(
    prometheus: str | None,
    alertmanager: str | None,
    left_out: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = stage_in(World(), monkeypatch)
    urls = {"prometheus_url": prometheus, "alertmanager_url": alertmanager}
    stage.stack = stage.stack.model_copy(update=urls)
    (_, *after) = engine.answered(stage, engine.slow(stage), "tiny-omni-1")
    expected = [(key, since) for key, since in AS_PROMETHEUS_TELLS if key not in left_out]
    assert [(step.key, step.since) for step, _ in after] == expected


def test_recovery_counts_from_the_mending_and_each_step_from_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = stage_in(World(), monkeypatch)
    engine.latency(stage)
    steps = {step.key: step for step in stage.timeline.steps}
    since = {key: steps[key].since for key in ("told", "quiet", "eased", "recovery", "full")}
    assert since == {
        "told": "effect", "quiet": "mended", "eased": "quiet", "recovery": "eased",
        "full": "recovery",
    }  # fmt: skip
    dwell_s = stage.lines.ladder.dwell_s
    assert dwell_s < (steps["eased"].within_s or 0.0) < 2 * dwell_s


@pytest.mark.parametrize("play", [LATENCY, CACHE])
def test_without_recovery_nothing_is_waited_for_after_the_answer(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_in(World(), monkeypatch)
    stage.recovery = False
    play(stage)
    assert wanting(stage.timeline) == ()
    last = "told" if play is LATENCY else "mended"
    assert stage.timeline.steps[-1].key == last


# ---------------------------------------------------------------- what is no proof
@pytest.mark.parametrize(
    ("play", "odd", "says"),
    [
        (LATENCY, {"tells": False}, "told: not seen within"),
        (LATENCY, {"shrinks": False}, "told: not seen within"),
        (CACHE, {"int8_share": 0.9}, "smaller: not seen within"),
        (CACHE, {"is_native_again": False}, "full: not seen within"),
    ],
)
def test_an_answer_that_changes_nothing_is_none(
    play: Play, odd: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(world: World) -> None:
        for name, value in odd.items():
            setattr(world, name, value)

    (told,) = complaints(play, differs, monkeypatch)
    assert told.startswith(says)


def probe(level: str, tokens: int | None, *kv: KvRung) -> Probe:
    used = a_record().usage
    assert used is not None
    usage = None if tokens is None else replace(used, prompt_tokens=tokens)
    return Probe(1.0, level, a_record(usage=usage, legs=tuple(a_leg(kv=each) for each in kv)))


@pytest.mark.parametrize(
    ("level", "tokens", "fewer", "as_many"),
    [
        ("media=360p+8k", 139, True, False),
        ("media=360p+8k", 161, False, False),
        ("media=360p+8k", None, False, False),
        ("full", 139, False, False),
        ("full", 161, False, True),
        ("full", 162, False, False),
        ("kv=int8", 161, False, True),
    ],
)
def test_a_clip_shows_its_rung_by_what_is_told_and_by_its_tokens(
    level: str, tokens: int | None, fewer: bool, as_many: bool
) -> None:
    before, after = probe("full", 161), probe(level, tokens)
    assert (engine._fewer(after, before) is not None) is fewer
    assert (engine._as_many(after, before) is not None) is as_many


@pytest.mark.parametrize(
    ("legs", "native"),
    [
        ((KvRung.NATIVE,), True),
        ((KvRung.INT8,), False),
        ((KvRung.INT8, KvRung.NATIVE), True),
        ((KvRung.NATIVE, KvRung.INT8), False),
        ((), False),
    ],
)
def test_pages_are_as_the_leg_that_ended_wrote_them(legs: tuple[KvRung, ...], native: bool) -> None:
    assert (engine._native(probe("full", 161, *legs)) is not None) is native


def test_a_pool_that_says_nothing_of_its_pages_cannot_be_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = stage_in(World(), monkeypatch)
    monkeypatch.setattr(engine.signs, "live_gb", lambda *_: None)
    with stage.damage.mended_at_the_end(), pytest.raises(CannotRun, match="what its pool holds"):
        engine.cache(stage)
    assert stage.damage.told == "what was broken is mended"
