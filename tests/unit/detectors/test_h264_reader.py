"""The headers of H.264 packets tell what is broken or missing, whatever the bytes."""

import io
from functools import lru_cache

import av
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.detectors import h264
from monitors.detectors.h264 import H264Reader
from monitors.detectors.syntax import Anomaly, Bits
from tests.faults.encodings import Coded, Coding, clip_of
from tests.faults.pictures import Content

BOTH = (Coding.H264, Coding.H264_B_SLICES)


def coded(coding: Coding, content: Content = Content.MOTION) -> Coded:
    return clip_of(content, coding)


@lru_cache
def parameter_sets(clip: Coded) -> bytes:
    with av.open(io.BytesIO(clip.file)) as container:
        return container.streams.video[0].codec_context.extradata or b""


def anomalies(clip: Coded, packets: list[bytes]) -> list[tuple[int, Anomaly]]:
    reader = H264Reader(parameter_sets(clip))
    return [(i, one) for i, packet in enumerate(packets) for one in reader.feed(packet)]


def payloads(clip: Coded) -> list[bytes]:
    return [piece.data for piece in clip.pieces]


def annex_b(clip: Coded) -> list[bytes]:
    """The same units with start codes between them, and the parameter sets in the stream."""
    with av.open(io.BytesIO(clip.file)) as source:
        stream = source.streams.video[0]
        convert = av.BitStreamFilterContext("h264_mp4toannexb", stream)
        packets = [
            p for packet in source.demux(stream) if packet.size for p in convert.filter(packet)
        ]
        return [bytes(packet) for packet in packets]


@pytest.mark.parametrize("coding", BOTH)
@pytest.mark.parametrize("content", list(Content))
def test_a_whole_stream_has_no_anomaly(coding: Coding, content: Content):
    clip = coded(coding, content)
    assert anomalies(clip, payloads(clip)) == []


@pytest.mark.parametrize("coding", BOTH)
def test_start_codes_serve_as_well_as_lengths(coding: Coding):
    packets = annex_b(coded(coding))
    reader = H264Reader(None)
    assert [reader.feed(packet) for packet in packets] == [()] * len(packets)
    reader = H264Reader(None)
    found = [reader.feed(packet) for packet in packets[:10] + packets[12:]]
    assert Anomaly.FRAME_ORDER in found[10]


@pytest.mark.parametrize("coding", BOTH)
def test_a_lost_reference_frame_is_missed_by_the_next(coding: Coding):
    packets = payloads(coded(coding))
    lost = next(i for i in range(5, 40) if packets[i][4] & 0x60)
    found = anomalies(coded(coding), packets[:lost] + packets[lost + 1 :])
    assert (lost, Anomaly.FRAME_ORDER) in found


def test_a_lost_picture_among_many_key_frames_is_missed_too():
    clip = coded(Coding.H264, Content.DARK)
    assert all(piece.key for piece in clip.pieces)
    found = anomalies(clip, payloads(clip)[:20] + payloads(clip)[21:])
    assert found == [(20, Anomaly.FRAME_ORDER)]


def test_a_stream_that_begins_without_a_key_frame_says_so():
    clip = coded(Coding.H264)
    assert anomalies(clip, payloads(clip)[3:])[0] == (0, Anomaly.NO_KEY_FRAME)


def test_a_unit_longer_than_its_packet_is_broken():
    clip = coded(Coding.H264)
    packets = payloads(clip)
    assert anomalies(clip, [packets[0], packets[1][:-9]]) == [(1, Anomaly.BROKEN_UNIT)]


def test_zeros_inside_a_unit_are_no_coded_video():
    clip = coded(Coding.H264)
    packets = payloads(clip)
    zeroed = packets[1][:30] + bytes(12) + packets[1][42:]
    assert (1, Anomaly.START_CODE) in anomalies(clip, [packets[0], zeroed])


def test_a_picture_without_its_first_slice_is_not_whole():
    clip = coded(Coding.H264_B_SLICES)
    first, second = payloads(clip)[:2]
    behind = second[4 + int.from_bytes(second[:4], "big") :]
    assert (1, Anomaly.FIRST_SLICE) in anomalies(clip, [first, behind])


def test_without_parameter_sets_nothing_is_claimed():
    packets = payloads(coded(Coding.H264))
    reader = H264Reader(b"\x01\x64\x00\x0a\xff\xe0\x00")
    assert [reader.feed(packet) for packet in packets] == [()] * len(packets)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.none(), st.binary(max_size=80)), st.lists(st.binary(max_size=120), max_size=5))
def test_no_bytes_make_it_raise(extradata: bytes | None, packets: list[bytes]):
    reader = H264Reader(extradata)
    for packet in packets:
        assert set(reader.feed(packet)) <= set(Anomaly)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_damage_to_a_real_stream_makes_it_raise(data: st.DataObject):
    clip = coded(data.draw(st.sampled_from(BOTH)))
    sets = bytearray(parameter_sets(clip))
    packets = [bytearray(packet[:200]) for packet in payloads(clip)[:4]]
    for part in (sets, *packets):
        for at in data.draw(st.lists(st.integers(0, len(part) - 1), max_size=3)):
            part[at] ^= data.draw(st.integers(1, 255))
    reader = H264Reader(bytes(sets))
    for packet in packets:
        reader.feed(bytes(packet))


def exp_golomb(number: int) -> str:
    code = f"{number + 1:b}"
    return "0" * (len(code) - 1) + code


def sequence_set(in_cycle: int, number: int = 0, tail: int = 0) -> bytes:
    """A sequence parameter set of picture order 1 with so many frames in its cycle; `tail` more
    bytes behind it."""
    head = f"{66:08b}{0:08b}{30:08b}{exp_golomb(number)}{exp_golomb(0)}{exp_golomb(1)}0"
    bits = head + exp_golomb(0) * 2 + exp_golomb(in_cycle) + "1" * in_cycle
    bits += exp_golomb(1) + "0" + exp_golomb(19) * 2 + "1" * 8
    whole = bits.ljust(-(-len(bits) // 8) * 8, "1")
    return b"\x67" + int(whole, 2).to_bytes(len(whole) // 8, "big") + b"\xff" * tail


def in_packet(*units: bytes) -> bytes:
    return b"".join(b"\0\0\1" + unit for unit in units)


def test_a_cycle_of_more_frames_than_there_may_be_cannot_be_read():
    reader = H264Reader(None)
    assert reader.feed(in_packet(sequence_set(255))) == ()
    assert reader.feed(in_packet(sequence_set(256))) == (Anomaly.PARAMETER_SET,)


def test_what_stands_far_behind_in_a_parameter_set_is_not_read(monkeypatch: pytest.MonkeyPatch):
    lengths: list[int] = []

    def bits(data: bytes) -> Bits:
        lengths.append(len(data))
        return Bits(data)

    monkeypatch.setattr(h264, "Bits", bits)
    reader = H264Reader(None)
    units = [sequence_set(200, i, tail=20_000) for i in range(5)]
    for _ in range(3):
        assert reader.feed(in_packet(*units)) == ()
    assert len(lengths) == len(units), "a set that is known is not read again"
    assert max(lengths) < 520


def test_a_stream_of_ever_new_parameter_sets_is_not_judged():
    reader = H264Reader(None)
    found = [reader.feed(in_packet(sequence_set(i, 40), b"\x65\xff")) for i in range(200)]
    assert found[0]
    assert found[-1] == ()
