"""What demuxer and decoder said becomes a verdict on the client's video."""

from dataclasses import replace

import pytest

from monitors.detectors.bitstream import VideoStreamReport, faults
from monitors.labels import Fault, Grade, Origin

CLEAN = VideoStreamReport(
    codec="h264", packets=50, frames=50, decode_errors=0, corrupt_packets=0, corrupt_frames=0,
    holes=0, pts_gaps=0, backward=0, declared_ms=2000.0, decoded_ms=2000.0,
)  # fmt: skip


def test_a_clean_stream_has_no_fault():
    assert faults(CLEAN) == ()


def test_unknown_holes_and_length_are_no_fault():
    assert faults(replace(CLEAN, holes=None, declared_ms=None)) == ()


@pytest.mark.parametrize(
    ("field", "rule", "grade"),
    [
        ("decode_errors", "decode_error", Grade.HARD),
        ("corrupt_packets", "corrupt_packet", Grade.HARD),
        ("corrupt_frames", "corrupt_frame", Grade.HARD),
        ("holes", "hole", Grade.HARD),
        ("pts_gaps", "pts_gap", Grade.SOFT),
        ("backward", "time_backward", Grade.SOFT),
    ],
)
def test_each_kind_of_damage_has_its_rule(field: str, rule: str, grade: Grade):
    (fault,) = faults(replace(CLEAN, **{field: 3}))
    assert (fault.rule, fault.grade) == (rule, grade)
    assert (fault.fault, fault.origin) == (Fault.VIDEO_CORRUPT, Origin.INPUT)
    assert fault.detail.startswith("3 ")


def test_a_stream_that_ends_before_it_said_is_cut_off():
    (fault,) = faults(replace(CLEAN, decoded_ms=1200.0))
    assert fault.rule == "early_end"
    assert "1200 ms of the declared 2000 ms" in fault.detail
