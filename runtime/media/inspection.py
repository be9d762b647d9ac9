"""What the detectors need of a video stream, gathered in the thread that decodes it."""

import time
from collections import Counter
from types import TracebackType

from av import VideoFrame
from av.packet import Packet

from monitors.detectors.av1 import Av1Reader
from monitors.detectors.bitstream import (
    Sighting,
    Sign,
    VideoStreamReport,
    pts_gaps,
    sighting_of,
)
from monitors.detectors.h264 import H264Reader
from monitors.labels import Detector
from runtime.media.glimpses import Glimpses

FRAME_PER_PACKET = frozenset({"h264", "vp9", "av1"})  # others may hide frames legally
_READERS = {"h264": H264Reader, "av1": Av1Reader}


class Inspection:
    """Told of every packet and every frame of one stream, in the decoder's order."""

    def __init__(self, codec: str, extradata: bytes | None) -> None:
        self.glimpses = Glimpses()
        self.packet_ms: list[float] = []
        self.spent_s: Counter[Detector] = Counter()
        self._codec = codec
        reader = _READERS.get(codec)
        self._reader = reader(extradata) if reader else None
        self._sightings: list[Sighting] = []
        self._key_ms: list[float] = []
        self._shown_ms: set[float] = set()

    def packet(self, packet: Packet, at_ms: float | None) -> None:
        """A packet that owes a frame, before it is decoded."""
        with _Timed(self.spent_s, Detector.BITSTREAM):
            if at_ms is not None:
                self.packet_ms.append(at_ms)
                if packet.is_keyframe:
                    self._key_ms.append(at_ms)
            if packet.is_corrupt:
                self._sightings.append(Sighting(Sign.CORRUPT_PACKET, at_ms))
            if self._reader is not None:
                anomalies = self._reader.feed(bytes(packet))
                self._sightings += [sighting_of(anomaly, at_ms) for anomaly in anomalies]

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

    def _holes(self) -> list[Sighting]:
        if self._codec not in FRAME_PER_PACKET:
            return []
        empty = sorted(set(self.packet_ms) - self._shown_ms)
        return [Sighting(Sign.HOLE, at_ms) for at_ms in empty]


class _Timed:
    """Adds the processor time of a block to what a detector has spent."""

    def __init__(self, spent_s: Counter[Detector], detector: Detector) -> None:
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
        self._spent_s[self._detector] += time.thread_time() - self._start  # type: ignore[assignment]
