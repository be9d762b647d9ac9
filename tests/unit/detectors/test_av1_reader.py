"""The headers of AV1 packets tell what is broken or missing, whatever the bytes."""

import io
from functools import lru_cache

import av
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.detectors.av1 import Av1Reader
from monitors.detectors.syntax import Anomaly
from tests.faults.encodings import Coded, Coding, clip_of
from tests.faults.pictures import Content

BOTH = (Coding.AV1, Coding.AV1_HIDDEN)


def coded(coding: Coding, content: Content = Content.MOTION) -> Coded:
    return clip_of(content, coding)


@lru_cache
def head(clip: Coded) -> bytes | None:
    with av.open(io.BytesIO(clip.file)) as container:
        return container.streams.video[0].codec_context.extradata


def anomalies(clip: Coded, packets: list[bytes]) -> list[tuple[int, Anomaly]]:
    reader = Av1Reader(head(clip))
    return [(i, one) for i, packet in enumerate(packets) for one in reader.feed(packet)]


def payloads(clip: Coded) -> list[bytes]:
    return [piece.data for piece in clip.pieces]


@pytest.mark.parametrize("coding", BOTH)
@pytest.mark.parametrize("content", [Content.MOTION, Content.CUTS, Content.UNEVEN, Content.SLIDES])
def test_a_whole_stream_has_no_anomaly(coding: Coding, content: Content):
    clip = coded(coding, content)
    assert anomalies(clip, payloads(clip)) == []


@pytest.mark.parametrize("coding", BOTH)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_lost_frames_are_missed_by_the_next(coding: Coding, count: int):
    packets = payloads(coded(coding))
    found = anomalies(coded(coding), packets[:10] + packets[10 + count :])
    assert (10, Anomaly.FRAME_ORDER) in found


def test_the_sequence_header_may_stand_in_the_stream_alone():
    packets = payloads(coded(Coding.AV1))
    reader = Av1Reader(None)
    found = [reader.feed(packet) for packet in packets[:10] + packets[11:]]
    assert found[10] == (Anomaly.FRAME_ORDER,)


def test_a_stream_that_begins_without_a_key_frame_says_so():
    clip = coded(Coding.AV1)
    assert anomalies(clip, payloads(clip)[3:])[0] == (0, Anomaly.NO_KEY_FRAME)


def test_a_unit_longer_than_its_packet_is_broken():
    clip = coded(Coding.AV1)
    packets = payloads(clip)
    assert anomalies(clip, [packets[0], packets[1][:-9]]) == [(1, Anomaly.BROKEN_UNIT)]


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.none(), st.binary(max_size=80)), st.lists(st.binary(max_size=120), max_size=5))
def test_no_bytes_make_it_raise(extradata: bytes | None, packets: list[bytes]):
    for reader in (Av1Reader(extradata), Av1Reader(b"\x81\0\0\0" + (extradata or b""))):
        for packet in packets:
            assert set(reader.feed(packet)) <= set(Anomaly)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_damage_to_a_real_stream_makes_it_raise(data: st.DataObject):
    clip = coded(data.draw(st.sampled_from(BOTH)))
    packets = [bytearray(packet[:60]) for packet in payloads(clip)[:4]]
    for part in packets:
        for at in data.draw(st.lists(st.integers(0, len(part) - 1), max_size=3)):
            part[at] ^= data.draw(st.integers(1, 255))
    reader = Av1Reader(None)
    for packet in packets:
        reader.feed(bytes(packet))
