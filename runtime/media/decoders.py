"""Which decoder reads a video stream: one that says when a picture is broken.

FFmpeg's own VP9 decoder and dav1d as it comes show garbage and say nothing; libvpx and a strict
dav1d refuse what does not add up, at the same cost (docs/adr/0021).
"""

from collections.abc import Sequence

from av import CodecContext, VideoCodecContext, VideoFrame
from av.error import FFmpegError
from av.packet import Packet
from av.video.stream import VideoStream

_VP9_FORMATS = frozenset({"yuv420p", "yuv422p", "yuv444p"})  # libvpx here decodes eight bits


class Decoder:
    """Decodes the packets of one stream."""

    def __init__(self, stream: VideoStream) -> None:
        self._context = stream.codec_context
        if self._context.name == "libdav1d":
            self._context.options = {**self._context.options, "strict": "strict"}

    def decode(self, packet: Packet | None) -> Sequence[VideoFrame]:
        """The frames that a packet, or with None the end of the stream, brings forth.

        Raises `FFmpegError` where it cannot be decoded.
        """
        return self._context.decode(packet)

    def rotation(self, frame: VideoFrame) -> int:
        """Degrees by which a frame must be turned to stand upright."""
        return frame.rotation


class CheckingVp9(Decoder):
    """Libvpx. It is not told how a clip must be turned, so FFmpeg's own is asked once."""

    def __init__(self, stream: VideoStream) -> None:
        super().__init__(stream)
        self._own, self._context = self._context, _libvpx(stream)
        self._rotation: int | None = None

    def decode(self, packet: Packet | None) -> Sequence[VideoFrame]:
        if self._rotation is None and packet is not None and packet.size:
            self._rotation = self._rotation_in(packet)
        if packet is not None and not packet.size:
            packet = None
        return self._context.decode(packet)

    def rotation(self, frame: VideoFrame) -> int:
        return self._rotation or 0

    def _rotation_in(self, packet: Packet) -> int | None:
        try:
            frames = self._own.decode(packet)
        except FFmpegError:
            return None  # the next packet may tell
        return frames[0].rotation if frames else None


def decoder_for(stream: VideoStream) -> Decoder:
    """The decoder of a stream whose codec is known here."""
    context = stream.codec_context
    if context.name == "vp9" and context.pix_fmt in _VP9_FORMATS:
        return CheckingVp9(stream)
    return Decoder(stream)


def _libvpx(stream: VideoStream) -> VideoCodecContext:
    context = CodecContext.create("libvpx-vp9", "r")
    assert isinstance(context, VideoCodecContext)
    context.extradata = stream.codec_context.extradata
    context.thread_count = stream.codec_context.thread_count
    return context
