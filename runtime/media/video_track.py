"""The picture of a clip: packets in, samples on the millisecond axis out."""

from collections.abc import Iterator

import numpy as np
from av import VideoFrame
from av.error import FFmpegError
from av.packet import Packet
from av.video.stream import VideoStream
from numpy.typing import NDArray

from monitors.detectors.bitstream import VideoStreamReport
from runtime.media.clock import GridSampler, Sample, to_ms
from runtime.media.decoders import decoder_for
from runtime.media.fidelity import Fidelity
from runtime.media.inspection import Inspection
from runtime.media.limits import Guard, MediaProblem
from runtime.media.track import Track

Pixels = NDArray[np.uint8]

_TELL_EACH_LENGTH = frozenset({"mov", "avi"})  # containers, by the first of FFmpeg's names


class VideoTrack(Track):
    """Decodes a video stream; keeps only the frames that stand for a grid point.

    `inspection` has looked at every packet and frame, for the detectors.
    """

    def __init__(
        self,
        stream: VideoStream,
        origin_ms: float,
        guard: Guard,
        fidelity: Fidelity,
        fps: float,
    ) -> None:
        super().__init__(stream, origin_ms, guard)
        self.inspection = Inspection(self.codec, stream.codec_context.extradata)
        self.samples: list[Sample[Pixels]] = []
        self.shown_ms: list[float] = []  # when each frame came on screen
        self.taken_ms: list[float] = []  # ... and each that was sampled, by its own time stamp
        self._decoder = decoder_for(stream)
        self._fidelity = fidelity
        self._size: tuple[int, int] | None = None
        self._sampler: GridSampler[VideoFrame] = GridSampler(1000.0 / fps)
        self._frame_ms = 1000.0 / float(stream.average_rate or fps)
        self._declared_ms = self._own_length_ms(stream)
        self._decoded = 0

    def feed(self, packet: Packet | None) -> None:
        """Decodes one packet, or with None what the decoder still holds; damage is noted.

        Raises `MediaError` beyond a limit.
        """
        at_ms = None
        if packet is not None and packet.size:
            at_ms = None if packet.pts is None else self._at(packet.pts)
            self.inspection.packet(packet, at_ms)
        try:
            frames = self._decoder.decode(packet)
        except FFmpegError as err:
            self.inspection.refused(at_ms, type(err).__name__)
            return
        for frame in frames:
            self._take(frame)

    def broke_off(self) -> None:
        """The demuxer could read no further."""
        self.inspection.refused(None, "the file breaks off")
        self.feed(None)

    def finish(self) -> None:
        """Settles the samples until the last frame leaves the screen."""
        self._guard.length(self.end_ms / 1000.0)
        self._keep(self._sampler.finish(self.end_ms))

    @property
    def pts_ms(self) -> list[float]:
        """Of the packets, in their order."""
        return self.inspection.packet_ms

    @property
    def end_ms(self) -> float:
        """When the last frame leaves the screen."""
        return self.shown_ms[-1] + self._frame_ms if self.shown_ms else 0.0

    def report(self, clip_ms: tuple[float | None, float]) -> VideoStreamReport:
        """What decoding brought to light.

        `clip_ms`: how long the whole clip should last and did, for containers that do not tell
        how long each stream should.
        """
        own_ms = self._declared_ms, self.end_ms - (self.start_ms or 0.0)
        declared_ms, decoded_ms = clip_ms if self._declared_ms is None else own_ms
        return self.inspection.report(self.end_ms, declared_ms, decoded_ms)

    def _own_length_ms(self, stream: VideoStream) -> float | None:
        """How long the stream alone should last; None where its container does not tell, though
        FFmpeg may then give what the clip lasts: a picture that stands still ends before."""
        told = stream.container.format.name.partition(",")[0] in _TELL_EACH_LENGTH
        return self._span(stream.duration) if told and stream.duration is not None else None

    def _span(self, duration: int) -> float:
        return to_ms(duration, self._time_base)

    def _take(self, frame: VideoFrame) -> None:
        self._decoded += 1
        self._guard.frames(self._decoded)
        if frame.pts is None:
            self.inspection.refused(None, "a frame without a time")
            return
        ms = self._at(frame.pts)
        if self.shown_ms and ms <= self.shown_ms[-1]:
            self.inspection.backward(ms)
            return
        self._guard.pixels(frame.width, frame.height)
        if self.start_ms is None:
            self.start_ms = ms
        self._frame_ms = self._span(frame.duration) or self._frame_ms
        self.shown_ms.append(ms)
        self.inspection.frame(frame, ms)
        self._keep(self._sampler.feed(frame, ms))

    def _keep(self, samples: Iterator[Sample[VideoFrame]]) -> None:
        for sample in samples:
            frame = sample.frame
            self._size = self._size or self._fidelity.size(frame.width, frame.height)
            turned = self._decoder.rotation(frame)
            pixels = self._picture(frame, self._size, turned)
            self.inspection.picture(frame, sample.shown_ms, pixels, turned)
            self._guard.unpacked(pixels.nbytes * (len(self.samples) + 1))
            self.samples.append(Sample(pixels, sample.shown_ms, sample.grid_ms))
            assert frame.pts is not None, "a frame without a time is not taken"
            self.taken_ms.append(self._at(frame.pts))

    def _picture(self, frame: VideoFrame, size: tuple[int, int], turned: int) -> Pixels:
        try:
            return self._fidelity.picture(frame, size, turned)
        except FFmpegError as err:  # of a colour matrix that the scaler does not know
            raise self._guard.refusal(
                MediaProblem.UNSUPPORTED, f"has colours that cannot be shown here: {err.strerror}"
            ) from err
