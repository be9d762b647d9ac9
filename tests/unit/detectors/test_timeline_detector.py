"""Time stamps alone tell whether sound and picture shared one clock."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.detectors.finding import Abstained
from monitors.detectors.timeline import (
    ClipTimeline,
    faults,
    grid_faults,
    input_faults,
    judge,
)
from monitors.labels import Detector, Fault, Grade, Origin

NONE = np.array([])


def steady(
    seconds: float = 4.0, frame_ms: float = 40.0, sound_ms: float = 64 / 3, offset_ms: float = 0.0
) -> ClipTimeline:
    """A clean clip of constant rates, its sound shifted by `offset_ms`."""
    audio = np.arange(0.0, seconds * 1000, sound_ms) + max(0.0, offset_ms)
    video = np.arange(0.0, seconds * 1000, frame_ms) + max(0.0, -offset_ms)
    grid = np.arange(0.0, seconds * 1000, 500.0)
    return ClipTimeline(
        video_pts=video,
        audio_pts=audio,
        audio_ms=np.full(len(audio), sound_ms),
        audio_peak=np.full(len(audio), 0.5),
        video_start=float(video[0]),
        audio_start=float(audio[0]),
        sampled_ms=grid + 20.0,
        sampled_until_ms=grid + 60.0,
        grid_ms=grid,
    )


def rules(clip: ClipTimeline, grade: Grade = Grade.HARD) -> set[str]:
    return {fault.rule for fault in faults(clip) if fault.grade is grade}


def test_a_steady_clip_is_clean():
    assert faults(steady()) == ()


@given(st.floats(-85.0, 150.0), st.integers(0, 2**32 - 1))
def test_an_acceptable_offset_and_jitter_are_clean(offset_ms: float, seed: int):
    clip = steady(offset_ms=offset_ms)
    jitter = np.random.default_rng(seed).uniform(-15.0, 15.0, len(clip.video_pts))
    assert rules(replace(clip, video_pts=clip.video_pts + jitter)) == set()


@pytest.mark.parametrize("offset_ms", [-91.0, -400.0, 186.0, 400.0])
def test_an_unacceptable_start_is_a_hard_input_fault(offset_ms: float):
    (start, *_) = input_faults(steady(offset_ms=offset_ms))
    assert (start.rule, start.grade, start.origin) == ("start_offset", Grade.HARD, Origin.INPUT)
    assert start.fault is Fault.LIP_DESYNC
    assert f"{offset_ms:+.0f} ms" in start.detail


def test_a_gap_in_the_sound_is_found_where_it_is():
    clip = steady()
    later = clip.audio_pts + np.where(np.arange(len(clip.audio_pts)) >= 50, 120.0, 0.0)
    (gap,) = [f for f in faults(replace(clip, audio_pts=later)) if f.rule == "audio_gap"]
    assert gap.detail.startswith("120 ms at 1067 ms")


def test_a_gap_of_a_few_packets_is_tolerated():
    clip = steady()
    later = clip.audio_pts + np.where(np.arange(len(clip.audio_pts)) >= 50, 85.0, 0.0)
    assert rules(replace(clip, audio_pts=later)) == set()


def test_sound_that_overlaps_itself_is_found():
    clip = steady()
    earlier = clip.audio_pts - np.where(np.arange(len(clip.audio_pts)) >= 50, 60.0, 0.0)
    assert rules(replace(clip, audio_pts=earlier)) == {"audio_overlap"}


def test_a_stalled_picture_shows():
    clip = steady()
    stalled = replace(clip, video_pts=np.delete(clip.video_pts, range(30, 36)))
    assert rules(stalled) == set()
    assert rules(stalled, Grade.SOFT) == {"video_gap"}


@pytest.mark.parametrize("gaps", [1, 2])
def test_a_picture_whose_later_frames_all_moved_is_found(gaps: int):
    clip = steady(8.0)
    moved = clip.video_pts.copy()
    for at in (2000.0, 5000.0)[:gaps]:
        moved += np.where(clip.video_pts >= at, 240.0, 0.0)
    assert rules(replace(clip, video_pts=moved)) == {"video_gap"}


@pytest.mark.parametrize("late_ms", [120.0, 300.0, 700.0])
def test_a_late_first_frame_only_shows_as_both_end_together(late_ms: float):
    clip = steady()
    frames = clip.video_pts[clip.video_pts >= late_ms]
    late = replace(clip, video_pts=frames, video_start=float(frames[0]))
    assert rules(late) == set()
    assert "start_offset" in rules(late, Grade.SOFT)


@pytest.mark.parametrize(("peak", "grade"), [(0.5, Grade.HARD), (0.004, Grade.SOFT)])
def test_sound_that_goes_on_at_its_true_time_is_lost_where_it_was_heard(peak: float, grade: Grade):
    clip, gone = steady(8.0), np.s_[100:130]
    loud = clip.audio_peak.copy()
    loud[95:100] = peak
    holed = replace(
        clip,
        audio_pts=np.delete(clip.audio_pts, gone),
        audio_ms=np.delete(clip.audio_ms, gone),
        audio_peak=np.delete(loud, gone),
    )
    (fault,) = faults(holed)
    assert (fault.rule, fault.grade) == ("audio_gap", grade)


def test_time_stamps_that_run_off_the_samples_are_found():
    clip = steady()
    assert "audio_clock" in rules(replace(clip, audio_ms=clip.audio_ms * 0.9))


@pytest.mark.parametrize("ratio", [44.1 / 48, 48 / 44.1, 25 / 30, 30 / 25, 0.5, 2.0])
def test_a_mislabelled_rate_shows_in_the_length_of_the_sound(ratio: float):
    clip = steady(8.0)
    wrong = replace(clip, audio_pts=clip.audio_pts * ratio, audio_ms=clip.audio_ms * ratio)
    assert "rate_mislabel" in rules(wrong)


def test_in_a_short_clip_a_mislabelled_rate_cannot_be_told_from_an_uneven_end_for_certain():
    clip = steady(4.0)
    wrong = replace(clip, audio_pts=clip.audio_pts * 44.1 / 48, audio_ms=clip.audio_ms * 44.1 / 48)
    assert rules(wrong) == set()
    assert rules(wrong, Grade.SOFT) == {"rate_mislabel"}


def test_a_frame_rate_that_no_camera_has_and_that_the_sound_explains_is_a_wrong_clock():
    clip = steady(20.0)
    slow = replace(clip, video_pts=clip.video_pts * 1.025)
    (fault,) = [f for f in faults(slow) if f.grade is Grade.HARD]
    assert fault.rule == "video_clock"
    assert "24.39 frames a second were 25.00" in fault.detail
    odd = replace(clip, video_pts=clip.video_pts * 1.025, audio_ms=clip.audio_ms * 1.025)
    odd = replace(odd, audio_pts=clip.audio_pts * 1.025)
    assert faults(odd) == (), "a camera may have any rate"


def test_small_slips_of_the_sound_add_up_and_the_slice_is_told():
    clip = steady(12.0)
    slipped = replace(clip, audio_pts=clip.audio_pts + 40.0 * (clip.audio_pts // 1000.0))
    assert rules(slipped) == {"slice_offset"}
    (fault,) = [f for f in faults(slipped) if f.rule == "slice_offset"]
    assert (fault.at_ms, fault.limit, fault.unit) == (4000.0, 185.0, "ms")
    assert fault.value == pytest.approx(440.0, abs=1.0)


def test_a_drift_that_viewers_notice_but_accept_only_shows():
    clip = steady(12.0)
    drifting = replace(clip, audio_pts=clip.audio_pts * 1.012)
    assert rules(drifting) == set()
    assert rules(drifting, Grade.SOFT) == {"slice_offset"}


def test_every_fault_says_how_much_and_what_the_limit_is():
    clip = steady(8.0)
    late = clip.audio_pts + np.where(clip.audio_pts > 3000.0, 300.0, 0.0)
    found = [
        *faults(steady(offset_ms=400.0)),
        *faults(replace(clip, audio_pts=late)),
        *faults(replace(clip, video_pts=np.delete(clip.video_pts, range(30, 40)))),
        *faults(replace(clip, audio_ms=clip.audio_ms * 0.9)),
        *faults(replace(clip, sampled_ms=clip.grid_ms + 100.0)),
    ]
    assert {f.rule for f in found} == {
        "start_offset", "audio_gap", "slice_offset", "video_gap", "audio_clock", "grid_error",
    }  # fmt: skip
    assert all(f.detector is Detector.TIMELINE for f in found)
    assert all(f.value is not None and f.limit is not None and f.unit for f in found)
    assert all(f.at_ms is not None for f in found)


def test_a_wrong_rate_is_placed_where_it_comes_to_be_too_much():
    clip = steady(20.0)
    slow = replace(clip, audio_pts=clip.audio_pts * 24 / 25, audio_ms=clip.audio_ms * 24 / 25)
    (fault,) = faults(slow)
    assert fault.rule == "rate_mislabel"
    assert fault.at_ms == pytest.approx(90.0 / 0.04, abs=50.0)


def test_where_both_streams_pause_together_they_are_still_in_step():
    clip = steady(8.0)

    def later(times: np.ndarray) -> np.ndarray:
        return times + np.where(times >= 3000.0, 700.0, 0.0)

    paused = replace(clip, audio_pts=later(clip.audio_pts), video_pts=later(clip.video_pts))
    assert rules(paused) == set()
    assert rules(paused, Grade.SOFT) == {"shared_pause"}


def test_a_short_pause_of_both_is_not_taken_for_a_wrong_rate():
    clip = steady(4.0)
    late = [
        times + np.where(times >= 2000.0, 160.0, 0.0) for times in (clip.audio_pts, clip.video_pts)
    ]
    paused = replace(clip, audio_pts=late[0], video_pts=late[1])
    assert {fault.rule for fault in faults(paused)} == {"shared_pause"}


def test_a_picture_that_pauses_often_has_a_varying_rate_and_no_gap():
    clip, times = steady(8.0), np.cumsum(np.tile([33.0, 33.0, 33.0, 700.0], 10))
    assert rules(replace(clip, video_pts=times)) == set()


def test_an_uneven_end_only_shows():
    clip = steady()
    short = replace(clip, audio_pts=clip.audio_pts[:140], audio_ms=clip.audio_ms[:140])
    assert rules(short) == set()
    assert rules(short, Grade.SOFT) == {"length_mismatch"}


def test_frames_that_all_have_one_time_are_judged():
    clip = steady()
    frozen = replace(clip, video_pts=np.zeros(5))
    assert "length_mismatch" in rules(frozen, Grade.SOFT)


MOMENTS = st.lists(
    st.floats(-1e6, 1e7) | st.sampled_from([0.0, 40.0]), min_size=0, max_size=12
).map(sorted)
START = st.none() | st.floats(-1e6, 1e7)


@given(MOMENTS, MOMENTS, st.data(), START, START)
def test_whatever_times_a_clip_has_it_is_judged(
    pictures: list[float],
    sounds: list[float],
    data: st.DataObject,
    video: float | None,
    audio: float | None,
):
    count = len(sounds)
    lasting = data.draw(st.lists(st.floats(0.0, 1e4), min_size=count, max_size=count))
    clip = ClipTimeline(
        video_pts=np.array(pictures),
        audio_pts=np.array(data.draw(st.permutations(sounds))),
        audio_ms=np.array(lasting),
        audio_peak=np.array(lasting) / 1e4,
        video_start=video,
        audio_start=audio,
        sampled_ms=np.array(pictures),
        sampled_until_ms=np.array(pictures),
        grid_ms=np.array(pictures),
    )
    for fault in faults(clip):
        assert fault.value is None or np.isfinite(fault.value)
        assert fault.at_ms is None or np.isfinite(fault.at_ms)


def test_a_clip_of_one_stream_cannot_be_out_of_sync():
    clip = steady()
    silent = replace(clip, audio_pts=NONE, audio_ms=NONE, audio_start=None)
    blind = replace(clip, video_pts=NONE[:0], video_start=None, sampled_ms=NONE, grid_ms=NONE)
    assert faults(silent) == faults(blind) == ()
    assert judge(silent) == (), "our own sampling was judged"
    assert isinstance(judge(blind), Abstained)


def test_sampling_by_index_is_our_own_fault():
    times = np.cumsum(np.tile([20.0, 33.0, 120.0, 40.0, 66.0, 100.0], 12))
    grid = np.arange(0.0, 4000.0, 500.0)
    by_index = np.linspace(0, len(times) - 2, len(grid)).astype(int)
    taken, left = times[by_index], times[by_index + 1]
    clip = replace(steady(), sampled_ms=taken, sampled_until_ms=left, grid_ms=grid)
    (fault,) = grid_faults(clip)
    assert (fault.origin, fault.grade) == (Origin.PIPELINE, Grade.HARD)


def test_a_grid_error_is_tolerated_up_to_90_ms():
    clip = steady()
    early = replace(clip, sampled_ms=clip.grid_ms - 200.0)
    assert grid_faults(replace(early, sampled_until_ms=clip.grid_ms - 90.0)) == ()
    assert grid_faults(replace(early, sampled_until_ms=clip.grid_ms - 91.0)) != ()
    late = replace(clip, sampled_until_ms=clip.grid_ms + 200.0)
    assert grid_faults(replace(late, sampled_ms=clip.grid_ms + 90.0)) == ()
    assert grid_faults(replace(late, sampled_ms=clip.grid_ms + 91.0)) != ()


def test_a_frame_that_stays_on_screen_stands_for_every_point_until_the_next():
    clip = replace(steady(), sampled_ms=np.zeros(8), sampled_until_ms=np.full(8, np.inf))
    assert grid_faults(clip) == ()
