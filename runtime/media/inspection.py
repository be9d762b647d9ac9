"""What the detectors need of a video stream, gathered in the thread that decodes it."""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

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
from monitors.detectors.finding import Abstained, Finding, Gathering, Verdict, examine
from monitors.detectors.h264 import H264Reader
from monitors.labels import Detector
from runtime.media import sync
from runtime.media.glimpses import Glimpses
from runtime.media.planes import planes

FRAME_PER_PACKET = frozenset({"h264", "vp9", "av1"})  # others may hide frames legally
_FULL_RANGE = 2  # ITU-T H.273: what FFmpeg calls "pc"
_Kind = tuple[operations.Colour, int]  # of pictures that can be compared together
_READERS = {"h264": H264Reader, "av1": Av1Reader}


class Inspection:
    """Told of every packet and every frame of one stream, in the decoder's order.

    A detector that breaks on one of them is fed no more, and has failed on the stream.
    """

    def __init__(self, codec: str, extradata: bytes | None) -> None:
        self.glimpses = Glimpses()
        self.packet_ms: list[float] = []
        self._coded = Gathering(Detector.BITSTREAM)
        self._glanced = Gathering(Detector.PIXELS)  # which the lips need too
        self._looked = Gathering(Detector.PIXELS)
        self._compared = Gathering(Detector.OPERATIONS)
        self._codec = codec
        reader = _READERS.get(codec)
        self._reader = self._coded.take(partial(reader, extradata)) if reader else None
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
        if at_ms is not None and not packet.is_discard:  # else it owes no frame
            self.packet_ms.append(at_ms)
            if packet.is_keyframe:
                self._key_ms.append(at_ms)
            else:
                self._coded_bytes[at_ms] = packet.size
        if packet.is_corrupt:
            self._sightings.append(Sighting(Sign.CORRUPT_PACKET, at_ms))
        self._coded.take(partial(self._read, packet, at_ms))

    def refused(self, at_ms: float | None, why: str) -> None:
        """The demuxer or the decoder refused a packet, or a frame had no time."""
        self._sightings.append(Sighting(Sign.DECODE_ERROR, at_ms, why))

    def frame(self, frame: VideoFrame, at_ms: float) -> None:
        """A frame as it came from the decoder, shown at `at_ms`."""
        self._shown_ms.add(at_ms)
        if frame.is_corrupt:
            self._sightings.append(Sighting(Sign.CORRUPT_FRAME, at_ms))
        self._glanced.take(partial(self.glimpses.feed, frame, at_ms))

    def picture(
        self, frame: VideoFrame, at_ms: float, made: NDArray[np.uint8], turned: int
    ) -> None:
        """A frame that was sampled, and the RGB picture that was made of it and turned."""
        self._looked.take(partial(self._look, frame, at_ms))
        self._compared.take(partial(self._compare, frame, at_ms, made, turned))

    def backward(self, at_ms: float) -> None:
        """A frame whose time does not move forward; it is not shown."""
        self._shown_ms.add(at_ms)
        self._sightings.append(Sighting(Sign.TIME_BACKWARD, at_ms))

    def report(
        self, end_ms: float, declared_ms: float | None, decoded_ms: float
    ) -> VideoStreamReport:
        """The stream as a whole, for `monitors.detectors.bitstream`."""
        signs = self._coded.take(self._whole_stream)
        return VideoStreamReport(
            codec=self._codec,
            packets=len(self.packet_ms),
            sightings=(*self._sightings, *(signs or ())),
            key_ms=tuple(sorted(self._key_ms)),
            end_ms=end_ms,
            declared_ms=declared_ms,
            decoded_ms=decoded_ms,
        )

    def findings(self, report: VideoStreamReport) -> Iterator[Finding]:
        """What the detectors of video say, once the stream has ended."""
        yield self._coded.examine(partial(bitstream.faults, report))
        pixels_judge = self._glanced.judging(self._looked.judging(self._judge_pixels))
        spent_s = self._glanced.spent_s + self._looked.spent_s
        yield examine(Detector.PIXELS, pixels_judge, spent_s)
        yield self._compared.examine(self._judge_operations)

    def lips(self, sound: NDArray[np.float32]) -> Finding:
        """The voice against the mouth, once the stream has ended. `sound`: as `sync.judge` has
        it."""
        judge = partial(sync.judge, self.glimpses, sound)
        return examine(Detector.LIP_SYNC, self._glanced.judging(judge))

    def _read(self, packet: Packet, at_ms: float | None) -> None:
        if self._reader is not None:
            anomalies = self._reader.feed(bytes(packet))
            self._sightings += [sighting_of(anomaly, at_ms) for anomaly in anomalies]
            if at_ms in self._coded_bytes:
                self._coded_bytes[at_ms] -= self._reader.padding

    def _look(self, frame: VideoFrame, at_ms: float) -> None:
        seen = planes(frame)
        if seen is None:
            self._unreadable = frame.format.name
            return
        self._frame_pixels = frame.width * frame.height
        self._looks.append(pixels.look(*seen, at_ms))

    def _compare(
        self, frame: VideoFrame, at_ms: float, made: NDArray[np.uint8], turned: int
    ) -> None:
        seen = planes(frame)
        if seen is None:
            self._unreadable = frame.format.name
            return
        if not operations.comparable(seen.y, seen.u, seen.depth, made, turned):
            return
        full_range = frame.color_range == _FULL_RANGE or frame.format.name.startswith("yuvj")
        kind = operations.colour_of(int(frame.colorspace), full_range), seen.depth
        self._made[kind].append((at_ms, operations.made(*seen, made, turned)))

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

    def _whole_stream(self) -> list[Sighting]:
        """What no packet shows alone."""
        return [*self._holes(), *pts_gaps(self.packet_ms)]

    def _holes(self) -> list[Sighting]:
        if self._codec not in FRAME_PER_PACKET:
            return []
        empty = sorted(set(self.packet_ms) - self._shown_ms)
        return [Sighting(Sign.HOLE, at_ms) for at_ms in empty]
