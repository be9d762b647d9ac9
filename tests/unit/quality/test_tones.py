"""Telephone tones: every word is told apart from its sound, and nothing else is taken for one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.quality.tones import FRAME_S, KEYS, REST, WORDS, frequencies, key_of, read_back, tone
from runtime.quality.tones import spoken as keys_of
from runtime.quality.words import COLOURS, DIGITS, SHAPES

RATE = 24_000
ALL = [*DIGITS, *COLOURS, *SHAPES]


def say(words: list[str], rate: int = RATE, level: float = 0.4) -> np.ndarray:
    """Each word as its two tones of 40 ms and 20 ms of rest."""
    rest = np.zeros(round(FRAME_S * rate), np.float32)
    pieces: list[np.ndarray] = []
    for word in words:
        first, second = keys_of(word)
        both = [tone(first, 0.08, rate)] if first == second else [
            tone(key, 0.04, rate) for key in (first, second)
        ]  # fmt: skip
        pieces += [*both, rest]
    return level * np.concatenate(pieces)


def test_every_word_has_tones_of_its_own() -> None:
    assert set(WORDS) == set(ALL)
    assert len(set(WORDS.values())) == len(ALL)
    assert all(WORDS[word] == (str(value),) * 2 for value, word in enumerate(DIGITS))


@given(st.lists(st.sampled_from(ALL), min_size=1, max_size=12), st.floats(0.05, 0.9))
def test_what_is_said_is_read_back(words: list[str], level: float) -> None:
    assert read_back(say(words, level=level), RATE) == words


@pytest.mark.parametrize("rate", [8_000, 16_000, 48_000])
def test_any_rate_will_do(rate: int) -> None:
    assert read_back(say(ALL, rate), rate) == ALL


def test_noise_20_db_down_does_no_harm() -> None:
    sound = say(ALL)
    noise = np.random.default_rng(1).standard_normal(len(sound)).astype(np.float32)
    assert read_back(sound + 0.02 * noise, RATE) == ALL


def test_a_word_that_is_cut_short_is_another_word_or_none() -> None:
    cut = say(["red"])[: round(0.04 * RATE)]
    assert read_back(cut, RATE) == ["?"]


def test_a_sound_that_is_no_key_is_no_word() -> None:
    at = np.arange(RATE // 10) / RATE
    assert read_back(0.5 * np.sin(2 * np.pi * 440 * at).astype(np.float32), RATE) == ["?"]


@pytest.mark.parametrize("sound", [np.zeros(0), np.zeros(RATE), np.full(RATE, 1e-4)])
def test_silence_says_nothing(sound: np.ndarray) -> None:
    assert read_back(sound.astype(np.float32), RATE) == []


def test_unknown_words_and_punctuation_have_their_own() -> None:
    assert keys_of(" Seven") == ("7", "7")
    assert keys_of(",") == (REST, REST)
    assert keys_of("zebra") not in WORDS.values()


@pytest.mark.parametrize("key", list(KEYS))
def test_each_key_sounds_at_its_two_frequencies(key: str) -> None:
    wave = tone(key, 0.1, RATE)
    spectrum = np.abs(np.fft.rfft(wave * np.hanning(len(wave)), 8 * len(wave)))
    bins = np.fft.rfftfreq(8 * len(wave), 1 / RATE)
    low, high = frequencies(key)
    for wanted, band in ((low, bins < 1075), (high, bins >= 1075)):
        assert abs(bins[band][spectrum[band].argmax()] - wanted) < 5
    assert key_of(wave[480:960], RATE) == key
