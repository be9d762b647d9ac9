"""Footage through real encoders, and its packets in hand: to be damaged and muxed again."""

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import av
import numpy as np
from av.video.stream import VideoStream
from numpy.typing import NDArray

from tests.faults.pictures import Content, Footage, footage
from tests.support.media import MILLISECOND

GOP = 25  # frames from key frame to key frame


class Coding(Enum):
    """How footage is encoded: `(codec, encoder, container, options)`.

    H.264 plain, and with B frames and slices; VP9 and AV1 as calls send them, and with frames
    that are decoded and never shown, as files have them (there without AV1's tools for screens:
    with them this encoder writes streams that no decoder reads).
    """

    H264 = "h264", "libx264", "mp4", {"preset": "veryfast", "crf": "26", "bf": "0"}
    H264_B_SLICES = "h264", "libx264", "mp4", {
        "preset": "veryfast", "crf": "26", "bf": "2", "slices": "4",
    }  # fmt: skip
    VP9 = "vp9", "libvpx-vp9", "webm", {
        "deadline": "realtime", "cpu-used": "8", "crf": "34", "b": "0", "lag-in-frames": "0",
    }  # fmt: skip
    VP9_HIDDEN = "vp9", "libvpx-vp9", "webm", {
        "deadline": "good", "cpu-used": "8", "crf": "34", "b": "0", "lag-in-frames": "16",
        "auto-alt-ref": "1",
    }  # fmt: skip
    AV1 = "av1", "libsvtav1", "mp4", {
        "preset": "12", "crf": "38", "svtav1-params": "pred-struct=1:lp=1",
    }  # fmt: skip
    AV1_HIDDEN = "av1", "libsvtav1", "mp4", {
        "preset": "12", "crf": "38", "svtav1-params": "pred-struct=2:lp=1:scm=0",
    }  # fmt: skip

    def __init__(self, codec: str, encoder: str, container: str, options: dict[str, str]) -> None:
        self.codec = codec
        self.encoder = encoder
        self.container = container
        self.options = options


@dataclass(frozen=True)
class Piece:
    """One packet: its bytes, its time stamps in units of its stream, and whether it is a key."""

    data: bytes
    pts: int
    dts: int
    duration: int
    key: bool


@dataclass(frozen=True, eq=False)
class Coded:
    """An encoded clip: the file as it came from the encoder, and its packets in order."""

    coding: Coding
    file: bytes
    pieces: tuple[Piece, ...]

    def with_pieces(self, pieces: Sequence[Piece]) -> bytes:
        """The file with these packets in place of its own.

        A muxer may refuse AV1 that it cannot parse, so damage that leaves a packet's length
        alone is written into the file once it is muxed.
        """
        own = {piece.pts: piece for piece in self.pieces}
        sound = [_standing_in(own.get(piece.pts, piece), piece) for piece in pieces]
        file = bytearray(self._muxed(sound))
        if sound == list(pieces):
            return bytes(file)
        for at, piece in zip(_positions(bytes(file)), pieces, strict=True):
            file[at : at + len(piece.data)] = piece.data
        return bytes(file)

    def _muxed(self, pieces: Iterable[Piece]) -> bytes:
        out = io.BytesIO()
        with (
            av.open(io.BytesIO(self.file)) as source,
            av.open(out, "w", format=self.coding.container) as target,
        ):
            stream = target.add_stream_from_template(source.streams.video[0], opaque=True)
            for piece in pieces:
                target.mux(_packet(piece, source.streams.video[0], stream))
        return out.getvalue()


def encoded(footage: Footage, coding: Coding) -> Coded:
    """The footage, encoded for real."""
    out = io.BytesIO()
    with av.open(out, "w", format=coding.container) as file:
        stream = file.add_stream(coding.encoder, rate=25)
        stream.width, stream.height, stream.pix_fmt = footage.width, footage.height, "yuv420p"
        stream.options = coding.options
        stream.codec_context.time_base = MILLISECOND
        stream.codec_context.gop_size = GOP
        stream.codec_context.thread_count = 1
        for at, picture in zip(footage.times_ms, footage.frames, strict=True):
            frame = av.VideoFrame.from_ndarray(picture, format="yuv420p")
            frame.pts, frame.time_base = at, MILLISECOND
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return Coded(coding, out.getvalue(), tuple(_demuxed(out.getvalue())))


@lru_cache(maxsize=128)
def clip_of(content: Content, coding: Coding, seed: int = 1) -> Coded:
    """Footage of this kind and seed, encoded; kept for the next test that asks."""
    return encoded(footage(content, seed), coding)


def decoded_luma(file: bytes) -> dict[int, NDArray[np.uint8]]:
    """The luma `(height, width)` of every frame a decoder still shows, by time stamp; what it
    refuses is left out, as a player would. The decoder is the one the gateway has."""
    shown: dict[int, NDArray[np.uint8]] = {}
    with av.open(io.BytesIO(file)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        for packet in container.demux(stream):
            try:
                frames = packet.decode()
            except av.FFmpegError:
                continue
            shown |= {f.pts: _luma(f) for f in frames if f.pts is not None}
    return shown


def _luma(frame: av.VideoFrame) -> NDArray[np.uint8]:
    return frame.to_ndarray()[: frame.height, : frame.width].copy()


def _demuxed(file: bytes) -> Iterable[Piece]:
    with av.open(io.BytesIO(file)) as container:
        for packet in container.demux(container.streams.video[0]):
            if packet.dts is not None and packet.pts is not None:
                yield Piece(
                    bytes(packet), packet.pts, packet.dts, packet.duration or 0, packet.is_keyframe
                )


def _standing_in(own: Piece, piece: Piece) -> Piece:
    return own if len(own.data) == len(piece.data) else piece


def _positions(file: bytes) -> list[int]:
    """Where in the file each packet's bytes begin."""
    with av.open(io.BytesIO(file)) as container:
        packets = [p for p in container.demux(container.streams.video[0]) if p.size]
    return [file.index(bytes(packet), packet.pos or 0) for packet in packets]


def _packet(piece: Piece, source: VideoStream, target: VideoStream) -> av.Packet:
    packet = av.Packet(piece.data)
    packet.pts, packet.dts, packet.duration = piece.pts, piece.dts, piece.duration
    packet.time_base, packet.is_keyframe = source.time_base, piece.key
    packet.stream = target
    return packet
