import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.model.timeline import audio_positions, audio_times_ms, video_positions

UNITS_PER_S = 13.0
HALF_UNIT_MS = 1000.0 / UNITS_PER_S / 2 + 1e-6
BASE = 17
TEN_MINUTES_MS = 600_000


def _error_ms(position: int | np.int64, time_ms: float) -> float:
    return abs(float(position - BASE) * 1000.0 / UNITS_PER_S - time_ms)


def _video_errors(pts_ms: list[float]) -> list[float]:
    at = video_positions(BASE, pts_ms, (len(pts_ms), 6, 8), 2, UNITS_PER_S)
    first_of_grid = at[0].reshape(len(pts_ms), -1)[:, 0]
    return [_error_ms(p, t) for p, t in zip(first_of_grid, pts_ms, strict=True)]


def _audio_errors(start_ms: float) -> list[float]:
    at = audio_positions(BASE, start_ms, 13, UNITS_PER_S)
    times = audio_times_ms(start_ms, 13)
    return [_error_ms(p, t) for p, t in zip(at[0], times, strict=True)]


def test_error_stays_within_half_a_unit_over_ten_minutes_and_does_not_grow() -> None:
    video = [max(_video_errors([start, start + 1000])) for start in range(0, TEN_MINUTES_MS, 2000)]
    audio = [max(_audio_errors(start)) for start in range(0, TEN_MINUTES_MS, 1000)]
    for errors in (video, audio):
        assert max(errors) <= HALF_UNIT_MS
        assert max(errors[-10:]) <= max(errors[:10]) + 1e-6


@given(
    st.integers(0, TEN_MINUTES_MS),
    st.lists(st.integers(0, 1900), min_size=1, max_size=4, unique=True).map(sorted),
)
@settings(max_examples=200, deadline=None)
def test_any_true_time_is_met_within_half_a_unit(start_ms: int, offsets: list[int]) -> None:
    assert max(_video_errors([float(start_ms + o) for o in offsets])) <= HALF_UNIT_MS
    assert max(_audio_errors(start_ms)) <= HALF_UNIT_MS


@given(st.integers(0, TEN_MINUTES_MS))
@settings(max_examples=100, deadline=None)
def test_audio_never_runs_backwards(start_ms: int) -> None:
    at = audio_positions(0, start_ms, 27, UNITS_PER_S)[0]
    assert (np.diff(at) >= 0).all()


def test_sound_and_picture_of_one_moment_share_a_position() -> None:
    video = video_positions(BASE, [4000.0, 5000.0], (2, 2, 2), 2, UNITS_PER_S)
    audio = audio_positions(BASE, 5000.0, 13, UNITS_PER_S)
    assert video[0, 1] == audio[0, 0]


def test_height_and_width_count_from_the_base_of_the_clip() -> None:
    at = video_positions(BASE, [2000.0], (1, 4, 6), 2, UNITS_PER_S)
    assert at[1].tolist() == [BASE] * 3 + [BASE + 1] * 3
    assert at[2].tolist() == [BASE, BASE + 1, BASE + 2] * 2
