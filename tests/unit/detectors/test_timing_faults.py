"""Real clips whose time stamps went wrong are told; hard but clean ones are not."""

from dataclasses import replace

import pytest

from monitors.contract import FaultFound
from monitors.labels import Detector, Grade, Origin
from tests.faults import timing
from tests.faults.timing import Source
from tests.unit.media.decoding import decoded

SOURCES = (Source(seconds=6.0), Source(seconds=6.0, container="webm", voice="zh"))
EACH = pytest.mark.parametrize("source", SOURCES, ids=["mp4", "webm"])


def found(data: bytes, grade: Grade = Grade.HARD) -> dict[str, FaultFound]:
    """Faults of the time stamps, by rule."""
    faults = decoded(data).report.faults
    return {f.rule: f for f in faults if f.grade is grade and f.detector is Detector.TIMELINE}


@EACH
@pytest.mark.parametrize("offset_ms", [-400.0, -120.0, 215.0, 600.0])
def test_sound_that_is_late_or_early_is_told_with_how_much(source: Source, offset_ms: float):
    fault = found(timing.shifted(source.clip(), source.container, offset_ms))["start_offset"]
    assert fault.value == pytest.approx(offset_ms, abs=25.0)  # priming may hide a frame
    assert fault.limit == (-90.0 if offset_ms < 0 else 185.0)
    assert fault.origin is Origin.INPUT


@EACH
def test_a_jump_in_the_middle_is_told_with_where(source: Source):
    faults = found(timing.jumping(source.clip(), source.container, "audio", 3000.0, 300.0))
    assert faults["audio_gap"].at_ms == pytest.approx(3000.0, abs=25.0)
    assert faults["slice_offset"].at_ms == 2000.0
    assert faults["slice_offset"].value == pytest.approx(300.0, abs=2.0)


@EACH
def test_a_jump_of_the_picture_is_told_with_where(source: Source):
    faults = found(timing.jumping(source.clip(), source.container, "video", 3000.0, 300.0))
    assert faults["video_gap"].at_ms == pytest.approx(2960.0, abs=1.0)


@EACH
@pytest.mark.parametrize("share", [0.035, -0.017])
def test_a_drifting_clock_is_told(source: Source, share: float):
    fault = found(timing.drifting(source.clip(), source.container, share))["slice_offset"]
    assert fault.value == pytest.approx(6000.0 * share, abs=15.0)


@EACH
def test_slips_too_small_for_any_rule_are_told_once_they_add_up(source: Source):
    faults = found(timing.stuttering(source.clip(), source.container, 1000.0, 45.0))
    assert set(faults) == {"slice_offset"}
    assert faults["slice_offset"].at_ms == 4000.0


@EACH
def test_sound_packed_too_close_is_told(source: Source):
    squeezed = timing.squeezed(source.clip(), source.container, 2000.0, 150.0)
    assert found(squeezed)["slice_offset"].value == pytest.approx(-150.0, abs=2.0)


@EACH
def test_lost_packets_and_stalls_are_told(source: Source):
    clip, container = source.clip(), source.container
    lost = found(timing.without(clip, container, "audio", 3000.0, 200.0))["audio_gap"]
    assert lost.value == pytest.approx(200.0, abs=25.0)
    stalled = timing.stalled(clip, container, 3000.0, 300.0)
    assert found(stalled) == {}, "the stamps are those of a screen that stands still"
    assert found(stalled, Grade.SOFT)["video_gap"].value == 320.0


@EACH
@pytest.mark.parametrize(("true_hz", "said_hz"), [(44.1, 48.0), (16.0, 24.0)])
def test_a_wrong_sample_rate_is_told(source: Source, true_hz: float, said_hz: float):
    wrong = timing.mislabelled_sound(source, true_hz, said_hz)
    assert "rate_mislabel" in found(wrong.clip())


@EACH
def test_a_wrong_frame_rate_is_told(source: Source):
    assert "rate_mislabel" in found(timing.at_rate(source.clip(), source.container, 25.0, 30.0))


@EACH
def test_sound_that_ends_early_only_shows_as_clean_files_end_unevenly_too(source: Source):
    short = timing.cut_short(source.clip(), source.container, 4300.0)
    assert found(short) == {}
    assert set(found(short, Grade.SOFT)) == {"length_mismatch"}


@pytest.mark.parametrize(
    ("source", "seed"), [(SOURCES[0], 1), (SOURCES[1], 2)], ids=["mp4", "webm"]
)
def test_clean_clips_that_are_hard_to_tell_have_no_hard_fault(source: Source, seed: int):
    clip, container = source.clip(), source.container
    rated = (timing.uneven_times, timing.recorded_screen, timing.slides, timing.jittery)
    for data in (
        *(replace(source, times_ms=times(6.0, seed)).clip() for times in rated),
        *(timing.shifted(clip, container, by) for by in (-60.0 / seed, 60.0 / seed)),
        *(replace(source, sound_seconds=6.0 + by / seed).clip() for by in (-0.35, 0.35)),
        timing.paused(clip, container, 2000.0, 1000.0 / seed),
        timing.drifting(clip, container, 0.001 * seed),
    ):
        assert found(data) == {}


@EACH
def test_a_late_first_frame_only_shows(source: Source):
    late = timing.late_camera(source, 300.0).clip()
    assert found(late) == {}
    assert set(found(late, Grade.SOFT)) == {"start_offset"}


@EACH
def test_a_screen_that_stands_still_for_a_while_only_shows(source: Source):
    idle = replace(source, times_ms=timing.idle_screen(6.0, 1)).clip()
    assert found(idle) == {}
    assert set(found(idle, Grade.SOFT)) == {"video_gap"}


@EACH
def test_silence_that_was_left_out_only_shows(source: Source):
    sparse = timing.with_silence_left_out(source, 2000.0, 1500.0)
    assert found(sparse) == {}
    assert set(found(sparse, Grade.SOFT)) == {"audio_gap"}


def test_b_frames_and_edit_lists_are_clean():
    assert decoded(timing.reordered()).report.faults == ()
    assert found(timing.shifted(timing.reordered(), "mp4", 40.0)) == {}
