"""How long a voice takes for a text, learned from what it said whole."""

import math

import msgspec
import numpy as np
import pytest

from monitors.detectors.speaking_time import (
    LEAST_ROWS,
    Spoken,
    TimeTaken,
    Unjudged,
    VoiceModel,
    fit,
    judge,
)
from monitors.detectors.syllables import Language
from runtime.quality.readings import Reading, draw

TEXTS = [text for text in draw(Reading.WORDS, 200, seed=1) if len(text.split()) > 2][:120]


def row(text: str, seconds: float, end_db: float = -50.0, tail_s: float = 0.2) -> Spoken:
    return Spoken(text, seconds, end_db, tail_s)


def steady(text: str) -> float:
    """Seconds of a voice that takes 0.3 s for each word, and varies by a few per cent."""
    words = len(text.split())
    return 0.3 * words * (1.0 + 0.03 * math.sin(7.0 * len(text)))


VOICE = fit([row(text, steady(text)) for text in TEXTS[:80]])


def taken(text: str, seconds: float, voice: VoiceModel = VOICE) -> TimeTaken:
    found = judge(voice, text, seconds)
    assert isinstance(found, TimeTaken)
    return found


def test_whole_speech_takes_the_time_that_is_expected() -> None:
    for text in TEXTS[80:]:
        found = taken(text, steady(text))
        assert not found.is_short
        assert found.expected_s == pytest.approx(0.3 * len(text.split()), rel=0.15)


def test_half_of_it_is_short() -> None:
    assert all(taken(text, steady(text) / 2).is_short for text in TEXTS[80:])


def test_slow_speech_is_not_short() -> None:
    assert not taken(TEXTS[0], 3 * steady(TEXTS[0])).is_short


def test_a_few_bad_rows_do_not_bend_a_pace() -> None:
    rows = [row(text, steady(text)) for text in TEXTS[:80]]
    rows[::16] = [row(one.text, one.seconds / 4) for one in rows[::16]]
    assert fit(rows).paces[Language.ENGLISH].word == pytest.approx(0.3, rel=0.05)


def test_a_text_unlike_those_it_was_fitted_to_is_not_judged() -> None:
    found = judge(VOICE, "one two, three 4 five", 0.5)
    assert isinstance(found, Unjudged)
    assert found.reason.endswith("fitted without: minor_pause, number")


@pytest.mark.parametrize("text", ["红色，三", "Вот и всё"])
def test_a_language_that_it_was_not_heard_in_is_not_judged(text: str) -> None:
    assert isinstance(judge(VOICE, text, 0.1), Unjudged)


def test_a_text_shorter_than_any_that_was_heard_is_not_judged() -> None:
    assert judge(VOICE, "two", 0.01) == Unjudged("the voice was hardly heard saying so little")


def test_a_text_that_is_mostly_pauses_is_not_judged() -> None:
    pausing = fit(
        [row(text, steady(text)) for text in TEXTS[:40]]
        + [row(text.replace(" ", ", ", 1), steady(text) + 0.5) for text in TEXTS[40:80]]
    )
    assert taken("one, two three four five six", 2.3, pausing).expected_s == pytest.approx(2.3, 0.1)
    assert judge(pausing, "one, two, three, four", 1.0) == Unjudged("the text is mostly pauses")


def test_too_few_texts_make_no_model() -> None:
    rows = [row(text, steady(text)) for text in TEXTS[: LEAST_ROWS - 1]]
    assert fit(rows) == VoiceModel()
    assert not fit(rows).known


def test_a_voice_that_may_end_loud_is_not_held_to_fade() -> None:
    rows = [row(text, steady(text)) for text in TEXTS[:80]]
    assert VOICE.end_db == -38.0
    assert fit([*rows, row("one", 0.3, end_db=-5.0)]).end_db is None


def test_a_voice_that_once_ends_at_once_is_not_held_to_a_tail() -> None:
    rows = [row(text, steady(text)) for text in TEXTS[:80]]
    assert VOICE.tail_s == pytest.approx(0.1)
    assert fit([*rows, row("one", 0.3, tail_s=0.0)]).tail_s is None


def test_a_model_goes_over_the_wire_as_it_is() -> None:
    assert msgspec.json.decode(msgspec.json.encode(VOICE), type=VoiceModel) == VOICE


def test_spread_is_never_so_small_that_a_hop_counts() -> None:
    exact = fit([row(text, 0.3 * len(text.split())) for text in TEXTS[:80]])
    assert exact.paces[Language.ENGLISH].spread == (None, 0.04, 0.04, 0.04, 0.04)
    assert np.isfinite(taken("one two three", 0.9, exact).z)
