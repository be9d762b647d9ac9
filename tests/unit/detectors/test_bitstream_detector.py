"""What demuxer, decoder and headers said becomes a verdict on the client's video."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.detectors.bitstream import (
    Sighting,
    Sign,
    Stretch,
    VideoStreamReport,
    damaged,
    faults,
    pts_gaps,
    sighting_of,
)
from monitors.detectors.syntax import Anomaly
from monitors.labels import Detector, Fault, Grade, Origin

CLEAN = VideoStreamReport(
    codec="h264", packets=50, sightings=(), key_ms=(0.0, 1000.0), end_ms=2000.0,
    declared_ms=2000.0, decoded_ms=2000.0,
)  # fmt: skip


def seen(*sightings: Sighting, **other: object) -> VideoStreamReport:
    return replace(CLEAN, sightings=sightings, **other)


def test_a_clean_stream_has_no_fault():
    assert faults(CLEAN) == ()


def test_an_unknown_length_is_no_fault():
    assert faults(replace(CLEAN, declared_ms=None)) == ()


@pytest.mark.parametrize("sign", list(Sign))
def test_each_sign_has_its_rule_and_says_where_and_how_many(sign: Sign):
    (fault,) = faults(seen(Sighting(sign, 400.0), Sighting(sign, 240.0), Sighting(sign, None)))
    soft = sign in (Sign.PTS_GAP, Sign.TIME_BACKWARD)
    assert (fault.rule, fault.grade) == (sign.value, Grade.SOFT if soft else Grade.HARD)
    assert (fault.fault, fault.origin) == (Fault.VIDEO_CORRUPT, Origin.INPUT)
    assert fault.detector is Detector.BITSTREAM
    assert (fault.at_ms, fault.value, fault.unit) == (240.0, 3.0, "packets")
    assert fault.detail.startswith("3 of 50 packets, h264")
    assert ("damaged from 240 to 1000 ms" in fault.detail) is not soft


def test_a_fault_without_a_place_says_so():
    (fault,) = faults(seen(Sighting(Sign.DECODE_ERROR, None, "InvalidDataError")))
    assert fault.at_ms is None
    assert "InvalidDataError" in fault.detail
    assert "damaged" not in fault.detail


def test_a_stream_that_ends_before_it_said_is_cut_off():
    (fault,) = faults(replace(CLEAN, decoded_ms=1200.0, end_ms=1200.0))
    assert fault.rule == "early_end"
    assert "1200 ms of the declared 2000 ms" in fault.detail
    assert (fault.at_ms, fault.value, fault.limit, fault.unit) == (1200.0, 800.0, 185.0, "ms")


def test_damage_lasts_until_the_next_key_frame():
    report = seen(Sighting(Sign.CORRUPT_FRAME, 400.0), Sighting(Sign.HOLE, 1200.0))
    assert damaged(report) == (Stretch(400.0, 1000.0), Stretch(1200.0, 2000.0))


def test_a_broken_key_frame_mends_nothing():
    broken = Sighting(Sign.CORRUPT_FRAME, 1000.0)
    assert damaged(seen(Sighting(Sign.HOLE, 400.0), broken)) == (Stretch(400.0, 2000.0),)


def test_a_skipped_frame_damages_nothing():
    assert damaged(seen(Sighting(Sign.PTS_GAP, 400.0))) == ()


@given(
    st.lists(st.floats(0, 4000), max_size=20),
    st.lists(st.floats(0, 4000), max_size=5).map(sorted),
    st.floats(0, 4000),
)
def test_stretches_are_in_order_and_apart_and_cover_every_damage(
    at: list[float], keys: list[float], end_ms: float
):
    report = seen(*(Sighting(Sign.HOLE, ms) for ms in at), key_ms=tuple(keys), end_ms=end_ms)
    stretches = damaged(report)
    bounds = [bound for s in stretches for bound in (s.from_ms, s.until_ms)]
    assert bounds == sorted(bounds)
    for ms in at:
        assert any(s.from_ms <= ms <= s.until_ms for s in stretches)


def test_av1_that_does_not_count_in_ones_is_not_held_to_its_count():
    breaks = [sighting_of(Anomaly.FRAME_ORDER, 40.0 * i) for i in range(30)]
    assert faults(seen(*breaks, codec="av1")) == ()
    assert {f.rule for f in faults(seen(*breaks[:3], codec="av1"))} == {"lost_reference"}
    assert {f.rule for f in faults(seen(*breaks, codec="h264"))} == {"lost_reference"}


@pytest.mark.parametrize("anomaly", list(Anomaly))
def test_every_anomaly_is_a_hard_sign(anomaly: Anomaly):
    (fault,) = faults(seen(sighting_of(anomaly, 40.0)))
    assert fault.grade is Grade.HARD
    assert anomaly.value in fault.detail


def test_a_gap_in_a_constant_rate_is_told_with_its_place():
    times = [40.0 * i for i in range(50) if i not in (20, 21)]
    (gap,) = pts_gaps(times)
    assert (gap.sign, gap.at_ms) == (Sign.PTS_GAP, 760.0)
    assert gap.what == "120 ms to the next frame"


def test_a_variable_rate_has_no_gaps():
    assert pts_gaps([0.0, 20.0, 53.0, 173.0, 213.0, 279.0, 379.0, 399.0]) == []
    assert pts_gaps([]) == pts_gaps([0.0]) == pts_gaps([0.0, 40.0]) == []


def test_a_clip_damaged_at_every_key_frame_is_placed_in_bounded_steps():
    class Counted(float):
        looks = 0

        def __gt__(self, other: float) -> bool:
            Counted.looks += 1
            return float(self) > other

        def __lt__(self, other: float) -> bool:
            Counted.looks += 1
            return float(self) < other

    keys = tuple(Counted(10 * i) for i in range(2000))
    stream = seen(*(Sighting(Sign.HOLE, 10.0 * i + 5) for i in range(2000)), key_ms=keys)
    assert len(damaged(stream)) == 2000
    assert Counted.looks < 200_000
