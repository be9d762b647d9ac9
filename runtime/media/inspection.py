"""What the detectors need of a video stream, gathered in the thread that decodes it."""

import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from types import TracebackType

import numpy as np
from av import VideoFrame
from av.packet import Packet
from numpy.typing import NDArray

from monitors.detectors import bitstream, operations, pixels
from monitors.detectors.av1 import Av1Reader
from monitors.detectors.bitstream import (
    Sighting,
    Sign,
    VideoStreamReport,
    pts_gaps,
    sighting_of,
)
from monitors.detectors.finding import Abstained, Finding, Verdict, examine
from monitors.detectors.h264 import H264Reader
from monitors.labels import Detector
from runtime.media.glimpses import Glimpses
from runtime.media.planes import planes

FRAME_PER_PACKET = frozenset({"h264", "vp9", "av1"})  # others may hide frames legally
_FULL_RANGE = 2  # ITU-T H.273: what FFmpeg calls "pc"
_Kind = tuple[operations.Colour, int]  # of pictures that can be compared together
_READERS = {"h264": H264Reader, "av1": Av1Reader}


class Inspection:
    """Told of every packet and every frame of one stream, in the decoder's order."""

    def __init__(self, codec: str, extradata: bytes | None) -> None:
        self.glimpses = Glimpses()
        self.packet_ms: list[float] = []
        self.spent_s: defaultdict[Detector, float] = defaultdict(float)
        self._codec = codec
        reader = _READERS.get(codec)
        self._reader = reader(extradata) if reader else None
        self._sightings: list[Sighting] = []
        self._key_ms: list[float] = []
        self._shown_ms: set[float] = set()
        self._coded_bytes: dict[float, int] = {}
        self._frame_pixels = 0
        self._looks: list[pixels.Look] = []
        self._made: defaultdict[_Kind, list[tuple[float, operations.Made]]] = defaultdict(list)
        self._unreadable: str | None = None  # a pixel format

    def packet(self, packet: Packet, at_ms: float | None) -> None:
        """A packet, before it is decoded."""
        with _Timed(self.spent_s, Detector.BITSTREAM):
            if at_ms is not None and not packet.is_discard:  # else it owes no frame
                self.packet_ms.append(at_ms)
                if packet.is_keyframe:
                    self._key_ms.append(at_ms)
                else:
                    self._coded_bytes[at_ms] = packet.size
            if packet.is_corrupt:
                self._sightings.append(Sighting(Sign.CORRUPT_PACKET, at_ms))
            if self._reader is not None:
                anomalies = self._reader.feed(bytes(packet))
                self._sightings += [sighting_of(anomaly, at_ms) for anomaly in anomalies]
                if at_ms in self._coded_bytes:
                    self._coded_bytes[at_ms] -= self._reader.padding

    def refused(self, at_ms: float | None, why: str) -> None:
        """The demuxer or the decoder refused a packet, or a frame had no time."""
        self._sightings.append(Sighting(Sign.DECODE_ERROR, at_ms, why))

    def frame(self, frame: VideoFrame, at_ms: float) -> None:
        """A frame as it came from the decoder, shown at `at_ms`."""
        self._shown_ms.add(at_ms)
        if frame.is_corrupt:
            self._sightings.append(Sighting(Sign.CORRUPT_FRAME, at_ms))
        with _Timed(self.spent_s, Detector.PIXELS):
            self.glimpses.feed(frame, at_ms)

    def picture(
        self, frame: VideoFrame, at_ms: float, made: NDArray[np.uint8], turned: int
    ) -> None:
        """A frame that was sampled, and the RGB picture that was made of it and turned."""
        seen = planes(frame)
        if seen is None:
            self._unreadable = frame.format.name
            return
        self._frame_pixels = frame.width * frame.height
        with _Timed(self.spent_s, Detector.PIXELS):
            self._looks.append(pixels.look(*seen, at_ms))
        if min(*made.shape[:2], *seen.y.shape, *seen.u.shape) < operations.LEAST_SIDE:
            return
        with _Timed(self.spent_s, Detector.OPERATIONS):
            full_range = frame.color_range == _FULL_RANGE or frame.format.name.startswith("yuvj")
            colour = operations.colour_of(int(frame.colorspace), full_range)
            kind = colour, seen.depth
            self._made[kind].append((at_ms, operations.made(*seen, made, turned)))

    def backward(self, at_ms: float) -> None:
        """A frame whose time does not move forward; it is not shown."""
        self._shown_ms.add(at_ms)
        self._sightings.append(Sighting(Sign.TIME_BACKWARD, at_ms))

    def report(
        self, frames: int, end_ms: float, declared_ms: float | None, decoded_ms: float
    ) -> VideoStreamReport:
        """The stream as a whole, for `monitors.detectors.bitstream`."""
        with _Timed(self.spent_s, Detector.BITSTREAM):
            return VideoStreamReport(
                codec=self._codec,
                packets=len(self.packet_ms),
                frames=frames,
                sightings=(*self._sightings, *self._holes(), *pts_gaps(self.packet_ms)),
                key_ms=tuple(sorted(self._key_ms)),
                end_ms=end_ms,
                declared_ms=declared_ms,
                decoded_ms=decoded_ms,
            )

    def findings(self, report: VideoStreamReport) -> Iterator[Finding]:
        """What the detectors of video say, once the stream has ended."""
        for detector, judge in (
            (Detector.BITSTREAM, partial(bitstream.faults, report)),
            (Detector.PIXELS, self._judge_pixels),
            (Detector.OPERATIONS, self._judge_operations),
        ):
            yield examine(detector, judge, self.spent_s[detector])

    def _judge_pixels(self) -> Verdict:
        if not self._looks:
            return Abstained(self._why_unseen())
        times = self.glimpses.times_ms
        sizes = np.array([self._coded_bytes.get(float(ms), np.nan) for ms in times], np.float64)
        glanced = pixels.Glanced(times, self.glimpses.grids, sizes, self._frame_pixels)
        return pixels.faults(self._looks, glanced)

    def _judge_operations(self) -> Verdict:
        if not self._made:
            return Abstained(self._why_unseen())
        seen: list[tuple[float, operations.Difference]] = []
        for (colour, _), pictures in self._made.items():
            apart = operations.differences([one for _, one in pictures], colour)
            seen += zip((at_ms for at_ms, _ in pictures), apart, strict=True)
        return operations.picture_faults(sorted(seen))

    def _why_unseen(self) -> str:
        if self._unreadable is not None:
            return f"frames in {self._unreadable} cannot be read here"
        return "no frame is large enough" if self._looks else "no frame was sampled"

    def _holes(self) -> list[Sighting]:
        if self._codec not in FRAME_PER_PACKET:
            return []
        empty = sorted(set(self.packet_ms) - self._shown_ms)
        return [Sighting(Sign.HOLE, at_ms) for at_ms in empty]


class _Timed:
    """Adds the processor time of a block to what a detector has spent."""

    def __init__(self, spent_s: defaultdict[Detector, float], detector: Detector) -> None:
        self._spent_s = spent_s
        self._detector = detector

    def __enter__(self) -> None:
        self._start = time.thread_time()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._spent_s[self._detector] += time.thread_time() - self._start
