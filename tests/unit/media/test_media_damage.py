"""Clean clips are clean, damaged ones are decoded and their damage is told."""

import itertools
from dataclasses import replace

import pytest

from monitors.labels import Fault, Grade, Origin
from tests.faults.encodings import Coding, clip_of
from tests.faults.pictures import Content
from tests.support import media
from tests.unit.media.decoding import decoded, video_slices

STEPS = itertools.cycle((20, 33, 120, 40, 66, 100))
UNEVEN = tuple(itertools.takewhile(lambda t: t < 3000, itertools.accumulate(STEPS, initial=0)))


def rules(data: bytes, grade: Grade = Grade.HARD) -> set[str]:
    return {fault.rule for fault in decoded(data).report.faults if fault.grade is grade}


@pytest.mark.parametrize(
    "clean",
    [
        {},
        {"container": "webm"},
        {"sound": "speech", "seconds": 3.0},
        {"sound": None},
        {"fragmented": True},
        {"fps": 30.0},
        {"fps": 24_000 / 1001},
        {"fps": 10.0},
        {"turned": 90},
        *(
            {"audio_offset_ms": ms, "container": c}
            for ms in (-60, -20, 20, 60)
            for c in media.CODECS
        ),
        *({"frame_times_ms": UNEVEN, "seconds": 3.0, "container": c} for c in media.CODECS),
    ],
    ids=str,
)
def test_a_clean_clip_has_no_fault_at_all(clean: dict[str, object]):
    assert decoded(media.clip(**clean)).report.faults == ()


@pytest.mark.parametrize("container", list(media.CODECS))
@pytest.mark.parametrize("offset_ms", [-1000.0, -200.0, 400.0])
def test_sound_that_starts_too_far_from_the_picture_is_found(container: str, offset_ms: float):
    assert "start_offset" in rules(media.clip(container=container, audio_offset_ms=offset_ms))


@pytest.mark.parametrize("container", list(media.CODECS))
def test_lost_sound_is_found(container: str):
    clip = media.clip(container=container)
    holed = media.without_packets(clip, "audio", range(20, 30), container)
    assert "audio_gap" in rules(holed)


@pytest.mark.parametrize("container", list(media.CODECS))
def test_a_stall_of_the_picture_is_found(container: str):
    holed = media.without_packets(
        media.clip(container=container), "video", range(20, 26), container
    )
    assert "hole" in rules(holed)
    assert "video_gap" in rules(holed, Grade.SOFT)


def test_a_lost_key_frame_leaves_holes():
    assert "hole" in rules(media.without_packets(media.clip(), "video", [0]))


@pytest.mark.parametrize("coding", [Coding.H264, Coding.H264_B_SLICES, Coding.AV1])
def test_a_clip_that_was_trimmed_without_encoding_it_again_is_clean(coding: Coding):
    """Its first frames are there to be decoded, and an edit list says not to show them."""
    coded = clip_of(Content.MOTION, coding)
    first = coded.pieces[10].dts
    trimmed = coded.with_pieces(
        [replace(piece, pts=piece.pts - first, dts=piece.dts - first) for piece in coded.pieces]
    )
    clip = decoded(trimmed)
    assert clip.report.faults == ()
    assert clip.duration_ms == pytest.approx(1600, abs=80)


def test_a_lost_frame_that_others_build_on_is_found():
    holed = media.without_packets(media.clip(), "video", [20])
    assert rules(holed) == {"lost_reference"}
    assert rules(holed, Grade.SOFT) == {"pts_gap"}


def test_a_lost_frame_that_none_builds_on_only_shows():
    coded = clip_of(Content.MOTION, Coding.H264_B_SLICES)
    lone = next(i for i, piece in enumerate(coded.pieces) if piece.data[4] == 1)
    holed = coded.with_pieces([*coded.pieces[:lone], *coded.pieces[lone + 1 :]])
    assert rules(holed) == set()
    assert rules(holed, Grade.SOFT) == {"pts_gap"}


@pytest.mark.parametrize("container", list(media.CODECS))
@pytest.mark.parametrize("packet", [0, 10, 30])
def test_flipped_bits_are_found(container: str, packet: int):
    broken = media.with_flipped_bits(media.clip(container=container), [packet], container)
    assert rules(broken) & {"decode_error", "corrupt_frame", "hole"}


@pytest.mark.parametrize("way", [{"container": "webm"}, {"fragmented": True}], ids=str)
def test_a_cut_off_file_is_decoded_as_far_as_it_goes(way: dict[str, object]):
    data = media.truncated(media.clip(4.0, **way))
    clip = decoded(data)
    assert 1000 < clip.duration_ms < 3500
    assert video_slices(clip)
    assert "early_end" in rules(data)


def test_damage_of_the_input_is_never_blamed_on_us():
    for data in (
        media.clip(audio_offset_ms=400),
        media.with_flipped_bits(media.clip(), [0, 10]),
        media.without_packets(media.clip(), "video", range(20, 30)),
    ):
        faults = decoded(data).report.faults
        assert faults
        assert {fault.origin for fault in faults} == {Origin.INPUT}


def test_damage_names_the_mode_it_belongs_to():
    (late, *_) = decoded(media.clip(audio_offset_ms=400)).report.faults
    (flipped, *_) = decoded(media.with_flipped_bits(media.clip(), [10])).report.faults
    assert (late.fault, flipped.fault) == (Fault.LIP_DESYNC, Fault.VIDEO_CORRUPT)
    assert "ms" in late.detail
    assert "packets" in flipped.detail
