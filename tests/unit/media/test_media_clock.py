"""Sampling goes by time stamps and never by index."""

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.detectors.timeline import GRID_TOLERANCE_MS
from runtime.media.clock import GridSampler, Sample, slice_index, to_ms
from tests.support import media
from tests.unit.media.decoding import decoded, video_slices


def sampled(times_ms: list[float], end_ms: float, grid_ms: float = 500.0) -> list[Sample[float]]:
    """Samples of frames that carry their own time as their picture."""
    sampler: GridSampler[float] = GridSampler(grid_ms)
    fed = [sample for ms in times_ms for sample in sampler.feed(ms, ms)]
    return fed + list(sampler.finish(end_ms))


def test_time_stamps_become_milliseconds():
    assert to_ms(90_000, Fraction(1, 90_000)) == 1000.0


def test_a_slice_begins_on_its_bound():
    assert [slice_index(ms, 2000.0) for ms in (0.0, 1999.9, 2000.0, 3999.9999999999)] == [
        0,
        0,
        1,
        2,
    ]


def test_a_steady_clip_gives_the_nearest_frame_of_every_half_second():
    times = [i * 40.0 for i in range(50)]
    assert [one.frame for one in sampled(times, 2000.0)] == [0.0, 480.0, 1000.0, 1480.0]


def test_the_next_frame_is_taken_where_it_is_nearer():
    assert [one.frame for one in sampled([0.0, 420.0, 530.0], 570.0)] == [0.0, 530.0]


def test_a_frame_that_stays_on_screen_is_taken_again_at_the_grid_time():
    samples = sampled([0.0, 1800.0], 2000.0)
    assert [(one.frame, one.shown_ms) for one in samples] == [
        (0.0, 0.0), (0.0, 500.0), (0.0, 1000.0), (0.0, 1500.0),
    ]  # fmt: skip


def test_the_grid_begins_with_the_first_frame():
    assert [one.grid_ms for one in sampled([60.0, 100.0, 600.0], 700.0)] == [60.0, 560.0]


def test_a_single_frame_is_sampled_once():
    assert [one.frame for one in sampled([0.0], 40.0)] == [0.0]


def test_no_frame_gives_no_sample():
    assert sampled([], 0.0) == []


@given(
    st.lists(st.floats(1.0, 700.0), min_size=1, max_size=40),
    st.floats(0.0, 300.0),
    st.sampled_from([1.0, 2.0, 3.0, 7.5]),
)
def test_every_grid_point_has_a_frame_on_screen_within_tolerance(
    steps: list[float], start: float, fps: float
):
    times = [start + t for t in itertools.accumulate(steps, initial=0.0)]
    samples = sampled(times, times[-1] + 40.0, 1000.0 / fps)
    for i, one in enumerate(samples):
        assert one.grid_ms == pytest.approx(start + i * 1000.0 / fps)
        assert abs(one.shown_ms - one.grid_ms) <= GRID_TOLERANCE_MS
        later = [t for t in times if t > one.frame]
        leaves = later[0] if later else times[-1] + 40.0
        assert one.frame - GRID_TOLERANCE_MS <= one.grid_ms < leaves + 1e-6


def test_a_clip_of_variable_rate_is_sampled_on_its_time_stamps():
    steps = itertools.cycle((20, 33, 120, 40, 66, 100))
    times = tuple(itertools.takewhile(lambda t: t < 4000, itertools.accumulate(steps, initial=0)))
    clip = decoded(media.clip(4.0, frame_times_ms=times))
    shown = [ms for piece in video_slices(clip) for ms in piece.pts_ms]
    assert shown == [min(times, key=lambda t: abs(t - point)) for point in range(0, 4000, 500)]
    by_index = [times[i * len(times) // 8] for i in range(8)]
    assert shown != by_index
    assert clip.report.faults == ()


def test_a_higher_sampling_rate_gives_more_frames():
    (only,) = video_slices(decoded(media.clip(), fps=5.0))
    assert only.pts_ms == tuple(range(0, 2000, 200))
    assert only.grid_ms == 200.0
