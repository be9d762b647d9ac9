"""Lanes and the scheduler's decisions, by tables."""

import pytest

from monitors.labels import Lane, Modality
from monitors.redlines import LatencyLines, SchedulerLines
from runtime.engine.lanes import AGEING_S, Urgency, by_urgency
from runtime.engine.scheduler import (
    Kind,
    RequestView,
    Shedable,
    Shedder,
    Utilisation,
    Waiting,
    choose,
    prefill_urgency,
)

LINES = LatencyLines()
NOW = 10.0


def waiting(name: str, lane: Lane, deadline: float = 11.0, since: float = NOW) -> Waiting:
    return Waiting(name, Urgency(lane, deadline, since))


def order(*items: Waiting, now: float = NOW) -> list[str]:
    return [item.request_id for item in by_urgency(list(items), now)]


def view(name: str, **facts: object) -> RequestView:
    blank = {
        "arrived": NOW, "served": NOW, "modalities": frozenset(), "decodes": False,
        "speaks": False, "starves": False, "speech_due": None,
    }  # fmt: skip
    return RequestView(name, **(blank | facts))


def test_audio_goes_before_key_frames_before_text() -> None:
    items = [waiting("text", Lane.TEXT), waiting("keys", Lane.KEY_FRAMES), waiting("a", Lane.AUDIO)]
    assert order(*items) == ["a", "keys", "text"]


def test_inside_a_lane_the_earliest_deadline_goes_first() -> None:
    assert order(waiting("b", Lane.TEXT, 12.0), waiting("a", Lane.TEXT, 11.0)) == ["a", "b"]


def test_text_that_waited_two_spans_is_as_urgent_as_audio() -> None:
    text = waiting("text", Lane.TEXT, deadline=NOW)
    audio = waiting("audio", Lane.AUDIO, deadline=NOW + 1, since=NOW + 2 * AGEING_S)
    assert order(text, audio, now=NOW + 1.9 * AGEING_S) == ["audio", "text"]
    assert order(text, audio, now=NOW + 2.1 * AGEING_S) == ["text", "audio"]


@pytest.mark.parametrize(
    ("left", "lane"),
    [
        ({Modality.TEXT}, Lane.TEXT),
        ({Modality.TEXT, Modality.IMAGE}, Lane.KEY_FRAMES),
        ({Modality.TEXT, Modality.VIDEO}, Lane.KEY_FRAMES),
        ({Modality.TEXT, Modality.VIDEO, Modality.AUDIO}, Lane.AUDIO),
    ],
)
def test_a_prompt_waits_in_the_highest_lane_of_what_is_left(
    left: set[Modality], lane: Lane
) -> None:
    assert prefill_urgency(view("a", modalities=frozenset(left)), LINES).lane is lane


def test_nothing_to_do_is_no_work() -> None:
    assert choose([], LINES, NOW) is None
    assert choose([view("speaks nothing", starves=True, speech_due=11.0)], LINES, NOW) is None


def test_all_that_decode_go_in_one_step() -> None:
    work = choose([view("a", decodes=True), view("b"), view("c", decodes=True)], LINES, NOW)
    assert work is not None
    assert (work.kind, work.request_ids) == (Kind.DECODE, ("a", "c"))


def test_speech_goes_before_the_text_of_others() -> None:
    speaking = view("speech", speaks=True, speech_due=NOW + 5)
    work = choose([view("text", decodes=True), speaking], LINES, NOW)
    assert work is not None
    assert work.kind is Kind.SPEAK


def test_starving_speech_lifts_the_decode_that_feeds_it() -> None:
    starving = view("a", decodes=True, starves=True, speech_due=NOW + 0.01)
    other = view("b", speaks=True, speech_due=NOW + 0.02)
    work = choose([starving, other], LINES, NOW)
    assert work is not None
    assert work.kind is Kind.DECODE


def test_a_listener_with_sound_in_hand_waits_for_a_new_audio_prompt() -> None:
    prompt = view("new", modalities=frozenset({Modality.AUDIO}))
    speaking = view("old", speaks=True, speech_due=NOW + 1)
    work = choose([speaking, prompt], LINES, NOW)
    assert work is not None
    assert work.kind is Kind.PREFILL


def test_shedding_starts_above_85_percent_and_ends_below_75() -> None:
    shedder = Shedder(SchedulerLines())
    candidates = [Shedable("small", 0.5, 10), Shedable("large", 0.5, 100)]
    picks = [shedder.pick(u, candidates) for u in (0.80, 0.86, 0.80, 0.74, 0.80)]
    assert picks == [None, "large", "large", None, None]


def test_the_score_is_entropy_times_remaining_and_unknown_entropy_leaves_remaining() -> None:
    shedder = Shedder(SchedulerLines())
    high = [Shedable("low nats", 0.1, 100), Shedable("high nats", 0.9, 20)]
    assert shedder.pick(1.0, high) == "high nats"
    assert Shedable("text", None, 7).score == 7
    assert shedder.pick(1.0, []) is None


def test_utilisation_follows_busy_over_wall_time() -> None:
    load = Utilisation(span_s=1.0)
    for _ in range(100):
        load.add(busy_s=0.09, wall_s=0.1)
    assert load.value == pytest.approx(0.9, abs=0.01)
    load.add(busy_s=0.0, wall_s=0.0)
    for _ in range(100):
        load.add(busy_s=0.0, wall_s=0.1)
    assert load.value < 0.01
