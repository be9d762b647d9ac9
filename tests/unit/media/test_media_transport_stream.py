"""MPEG transport streams, whose clock of 33 bits goes round."""

import io

import av
import pytest

from monitors.labels import Detector, Grade
from tests.support import media
from tests.unit.media.decoding import audio_slices, decoded, video_slices

ROUND_MS = 2**33 / 90.0
CLIP = media.clip(4.0, width=64, height=48)


def streamed(data: bytes, from_ms: float) -> bytes:
    """The same packets as a transport stream whose clock shows `from_ms` at the start."""
    out = io.BytesIO()
    options = {"mpegts_copyts": "1"}
    with (
        av.open(io.BytesIO(data)) as source,
        av.open(out, "w", format="mpegts", options=options) as target,
    ):
        streams = {one.index: target.add_stream_from_template(one) for one in source.streams}
        for packet in source.demux():
            if packet.dts is None or packet.pts is None:
                continue
            by = round(from_ms / 1000.0 / packet.time_base)
            packet.pts, packet.dts = packet.pts + by, packet.dts + by
            packet.stream = streams[packet.stream.index]
            target.mux(packet)
    return out.getvalue()


def test_a_stream_that_is_joined_between_key_frames_has_sound_and_picture_in_step():
    whole = streamed(media.clip(6.0, width=64, height=48), 10_000.0)
    packets = 188 * (len(whole) // 188 * 2 // 5)
    faults = decoded(whole[packets:]).report.faults
    assert faults, "the pictures before its first key frame are lost"
    assert [f.rule for f in faults if f.detector is Detector.TIMELINE] == []


@pytest.mark.parametrize("before_ms", [500.0, 2000.0, 3500.0])
def test_a_clock_that_goes_round_loses_nothing(before_ms: float):
    plain = decoded(streamed(CLIP, 10_000.0))
    round_ = decoded(streamed(CLIP, ROUND_MS - before_ms))
    assert len(audio_slices(round_)) == 4
    assert [one.start_ms for one in video_slices(round_)] == pytest.approx([21, 2021], abs=1)
    assert [piece.pcm.tolist() for piece in audio_slices(round_)] == [
        piece.pcm.tolist() for piece in audio_slices(plain)
    ]
    assert not [fault for fault in round_.report.faults if fault.grade is Grade.HARD]
