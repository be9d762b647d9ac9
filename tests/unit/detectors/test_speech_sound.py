"""Features of sound made to measure."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from monitors.detectors.speech_sound import measure

HZ = 24_000


def tone(seconds: float, level: float = 0.3, hz: float = 200.0) -> NDArray[np.int16]:
    at = np.arange(round(seconds * HZ)) / HZ
    return (32767 * level * np.sin(2 * np.pi * hz * at)).astype(np.int16)


def silence(seconds: float) -> NDArray[np.int16]:
    return np.zeros(round(seconds * HZ), np.int16)


def test_where_speech_starts_and_ends_is_known_to_a_hop() -> None:
    sound = measure(np.concatenate((silence(0.3), tone(1.0), silence(0.5))), HZ)
    assert sound.speech.at_s == pytest.approx(0.3)
    assert sound.speech.seconds == pytest.approx(1.0)
    assert sound.tail_s == pytest.approx(0.5)
    assert sound.end_db < -80


def test_a_tone_that_stops_ends_loud() -> None:
    assert measure(tone(1.0), HZ).end_db == pytest.approx(0.0, abs=0.5)


def test_the_longest_pause_is_found_with_its_place() -> None:
    parts = (tone(0.5), silence(0.1), tone(0.5), silence(0.4), tone(0.5))
    gap = measure(np.concatenate(parts), HZ).gap
    assert (gap.at_s, gap.seconds) == pytest.approx((1.1, 0.4))


def test_zeros_that_break_into_a_wave_are_a_hole_of_exact_length() -> None:
    pcm = tone(1.0, hz=210.0)
    pcm[10_000:11_001] = 0
    hole = measure(pcm, HZ).hole
    assert hole.at_s == pytest.approx(10_000 / HZ, abs=2 / HZ)
    assert hole.seconds == pytest.approx(1001 / HZ, abs=3 / HZ)


def test_zeros_between_soft_ends_are_a_pause() -> None:
    fade = np.minimum(1.0, np.minimum(np.arange(12_000), np.arange(12_000)[::-1]) / 1200)
    word = (tone(0.5) * fade).astype(np.int16)
    assert measure(np.concatenate((word, silence(0.2), word)), HZ).hole.seconds == 0.0


def test_samples_without_room_are_clipped() -> None:
    assert measure(tone(1.0), HZ).clipped_share == 0.0
    loud = np.clip(tone(1.0).astype(np.int32) * 8, -32768, 32767).astype(np.int16)
    assert measure(loud, HZ).clipped_share > 0.5


def test_a_jump_at_a_joint_is_a_click_and_a_smooth_joint_is_none() -> None:
    pcm = tone(1.0)
    assert measure(pcm, HZ, (9600, 12_000)).clicks == ()
    pcm[9600:] += 4000
    assert measure(pcm, HZ, (9600, 12_000)).clicks == (0.4,)


def test_no_sample_is_no_sound() -> None:
    with pytest.raises(ValueError, match="no samples"):
        measure(silence(0.0), HZ)


@given(st.lists(st.integers(-32768, 32767), min_size=1, max_size=2000), st.lists(st.integers(0)))
def test_any_sound_can_be_measured(samples: list[int], joints: list[int]) -> None:
    pcm = np.array(samples, np.int16)
    sound = measure(pcm, HZ, joints)
    assert sound.seconds == len(pcm) / HZ
    assert 0.0 < sound.speech.seconds <= sound.seconds + 1e-9
    assert 0.0 <= sound.tail_s < sound.seconds
