"""A lower rung really means fewer pixels and a narrower band."""

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.contract import MediaRung
from monitors.redlines import LadderLines
from runtime.media.fidelity import fidelity_of
from tests.support import media
from tests.unit.media.decoding import audio_slices, decoded, video_slices

LADDER = LadderLines()


def energy_above(pcm: np.ndarray, hz: float) -> float:
    """Share of the energy above `hz`."""
    power = np.abs(np.fft.rfft(pcm * np.hanning(len(pcm)))) ** 2
    return float(power[np.fft.rfftfreq(len(pcm), 1 / 16_000) > hz].sum() / power.sum())


@pytest.mark.parametrize(
    ("rung", "shape"),
    [
        (MediaRung.FULL, (720, 1280)),
        (MediaRung.P360_8K, (360, 640)),
        (MediaRung.P160_8K, (160, 160)),
    ],
)
def test_each_rung_makes_of_720p_what_it_says(rung: MediaRung, shape: tuple[int, int]):
    clip = decoded(media.clip(0.4, width=1280, height=720), rung=rung)
    assert video_slices(clip)[0].frames.shape[1:3] == shape


def test_an_upright_clip_keeps_as_many_pixels_as_a_lying_one():
    lying = fidelity_of(MediaRung.P360_8K, LADDER).size(1280, 720)
    upright = fidelity_of(MediaRung.P360_8K, LADDER).size(720, 1280)
    assert (lying, upright) == ((640, 360), (360, 640))


@given(st.sampled_from(MediaRung), st.integers(2, 5000), st.integers(2, 5000))
def test_sizes_are_even_and_never_larger(rung: MediaRung, width: int, height: int):
    new_width, new_height = fidelity_of(rung, LADDER).size(width, height)
    assert new_width % 2 == new_height % 2 == 0
    assert 2 <= new_width <= width
    assert 2 <= new_height <= height


def test_scaling_keeps_the_picture():
    data = media.clip(0.4, width=1280, height=720)
    full = video_slices(decoded(data))[0].frames[0].astype(float)
    half = video_slices(decoded(data, rung=MediaRung.P360_8K))[0].frames[0]
    means = full.reshape(360, 2, 640, 2, 3).mean((1, 3))
    assert np.abs(means - half).mean() < 2


def test_fine_detail_is_averaged_and_not_picked():
    board = np.indices((720, 1280)).sum(0) % 2 * 255
    frame = av.VideoFrame.from_ndarray(np.repeat(board[..., None], 3, 2).astype(np.uint8))
    picture = fidelity_of(MediaRung.P360_8K, LADDER).picture(frame, (640, 360))
    assert np.abs(picture.astype(int) - 127).max() <= 2


def test_a_still_picture_is_scaled_too():
    (only,) = decoded(media.png(800, 600), "image", rung=MediaRung.P160_8K).slices
    assert only.pixels.shape == (160, 160, 3)


@pytest.mark.parametrize("rung", [MediaRung.P360_8K, MediaRung.P160_8K])
def test_nothing_is_left_above_4_khz_on_a_lower_rung(rung: MediaRung):
    clip = decoded(media.wav(media.noise(2.0)), "audio", rung=rung)
    sound = np.concatenate([piece.pcm for piece in audio_slices(clip)])
    assert len(sound) == 32_000
    assert energy_above(sound, 4000.0) < 1e-6
    assert energy_above(sound, 2000.0) > 0.4


def test_full_fidelity_keeps_the_band_of_the_model():
    clip = decoded(media.wav(media.noise(2.0)), "audio")
    assert energy_above(audio_slices(clip)[0].pcm, 4000.0) > 0.4


def test_a_tone_above_4_khz_does_not_fold_back_into_the_band():
    high = media.wav(media.tone(1.0, hz=5000.0))
    sound = audio_slices(decoded(high, "audio", rung=MediaRung.P360_8K))[0].pcm
    assert np.abs(sound[800:-800]).max() < 0.01


def test_sound_keeps_its_length_and_place_on_every_rung():
    data = media.spoken_wav()
    full, low = (
        np.concatenate([p.pcm for p in audio_slices(decoded(data, "audio", rung=rung))])
        for rung in (MediaRung.FULL, MediaRung.P360_8K)
    )
    assert len(full) == len(low)
    lag = int(np.correlate(full[8000:24_000], low[8400:23_600], "valid").argmax()) - 400
    assert abs(lag) <= 1
