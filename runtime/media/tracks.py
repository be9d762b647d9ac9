"""One stream of a clip at a time: packets in, samples on the millisecond axis out."""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from av import AudioFrame, VideoFrame
from av.audio.stream import AudioStream
from av.error import FFmpegError
from av.packet import Packet
from av.video.stream import VideoStream
from numpy.typing import NDArray

from monitors.detectors.bitstream import VideoStreamReport
from runtime.media.clock import GridSampler, Sample, to_ms
from runtime.media.fidelity import Fidelity
from runtime.media.limits import Guard

FRAME_PER_PACKET = frozenset({"h264", "vp9", "av1"})  # others may hide frames legally
CONSTANT_RATE_SHARE = 0.75  # of the steps between frames, to call a stream constant in rate
RATE_SLACK_MS = 1.5  # containers may round time stamps to milliseconds
GAP_FRAMES = 1.75  # a step this long leaves a frame out: two would be exact
SOUND_SLACK_MS = 60.0  # a time stamp this far off the sample count moves the sound

Pixels = NDArray[np.uint8]


class Track:
    """What every stream has: its place on the axis, its limits, its errors."""

    def __init__(self, stream: VideoStream | AudioStream, origin_ms: float, guard: Guard) -> None:
        self.index = stream.index
        self.codec = stream.codec_context.codec.canonical_name
        self.errors = 0  # packets and frames that gave nothing
        self.start_ms: float | None = None  # of the first decoded frame
        self._time_base = stream.time_base or Fraction(1, 1000)
        self._origin_ms = origin_ms
        self._guard = guard

    def _at(self, pts: int) -> float:
        """Where on the axis a time stamp is. Raises `MediaError` beyond the longest clip, or when
        decoding has taken too long."""
        self._guard.in_time()
        ms = to_ms(pts, self._time_base) - self._origin_ms
        self._guard.length(ms / 1000.0)
        return ms


class VideoTrack(Track):
    """Decodes a video stream; keeps only the frames that stand for a grid point."""

    def __init__(
        self,
        stream: VideoStream,
        origin_ms: float,
        guard: Guard,
        fidelity: Fidelity,
        fps: float,
    ) -> None:
        super().__init__(stream, origin_ms, guard)
        self._stream = stream
        self._fidelity = fidelity
        self._size: tuple[int, int] | None = None
        self._sampler: GridSampler[VideoFrame] = GridSampler(1000.0 / fps)
        self._frame_ms = 1000.0 / float(stream.average_rate or fps)
        self._declared_ms = None if stream.duration is None else self._span(stream.duration)
        self._frame_times: list[float] = []
        self._decoded = 0
        self._corrupt_packets = 0
        self._corrupt_frames = 0
        self._backward = 0
        self.pts_ms: list[float] = []  # of the packets
        self.samples: list[Sample[Pixels]] = []

    def feed(self, packet: Packet | None) -> None:
        """Decodes one packet, or with None what the decoder still holds; damage is counted.

        Raises `MediaError` beyond a limit.
        """
        if packet is not None and packet.size and not packet.is_discard:
            self._count(packet)
        try:
            frames = self._stream.decode(packet)
        except FFmpegError:
            self.errors += 1
            return
        for frame in frames:
            self._take(frame)

    def finish(self) -> None:
        """Settles the samples until the last frame leaves the screen."""
        self._guard.length(self.end_ms / 1000.0)
        self._keep(self._sampler.finish(self.end_ms))

    @property
    def end_ms(self) -> float:
        """When the last frame leaves the screen."""
        return self._frame_times[-1] + self._frame_ms if self._frame_times else 0.0

    def report(self, clip_ms: tuple[float | None, float]) -> VideoStreamReport:
        """What decoding brought to light.

        `clip_ms`: how long the whole clip should last and did, for containers that do not tell
        how long each stream should.
        """
        own_ms = self._declared_ms, self.end_ms - (self.start_ms or 0.0)
        declared_ms, decoded_ms = clip_ms if self._declared_ms is None else own_ms
        return VideoStreamReport(
            codec=self.codec,
            packets=len(self.pts_ms),
            frames=len(self._frame_times),
            decode_errors=self.errors,
            corrupt_packets=self._corrupt_packets,
            corrupt_frames=self._corrupt_frames,
            holes=self._holes(),
            pts_gaps=_gaps(self.pts_ms),
            backward=self._backward,
            declared_ms=declared_ms,
            decoded_ms=decoded_ms,
        )

    def _count(self, packet: Packet) -> None:
        self._corrupt_packets += packet.is_corrupt
        if packet.pts is not None:
            self.pts_ms.append(self._at(packet.pts))

    def _span(self, duration: int) -> float:
        return to_ms(duration, self._time_base)

    def _take(self, frame: VideoFrame) -> None:
        self._decoded += 1
        self._guard.frames(self._decoded)
        self._corrupt_frames += frame.is_corrupt
        if frame.pts is None:
            self.errors += 1
            return
        ms = self._at(frame.pts)
        if self._frame_times and ms <= self._frame_times[-1]:
            self._backward += 1
            return
        self._guard.pixels(frame.width, frame.height)
        if self.start_ms is None:
            self.start_ms = ms
        self._frame_ms = self._span(frame.duration) or self._frame_ms
        self._frame_times.append(ms)
        self._keep(self._sampler.feed(frame, ms))

    def _keep(self, samples: Iterator[Sample[VideoFrame]]) -> None:
        for sample in samples:
            frame = sample.frame
            self._size = self._size or self._fidelity.size(frame.width, frame.height)
            pixels = self._fidelity.picture(frame, self._size)
            self._guard.unpacked(pixels.nbytes * (len(self.samples) + 1))
            self.samples.append(Sample(pixels, sample.shown_ms, sample.grid_ms))

    def _holes(self) -> int | None:
        if self.codec not in FRAME_PER_PACKET:
            return None
        return len(set(self.pts_ms) - set(self._frame_times))


class AudioTrack(Track):
    """Decodes an audio stream to one mono sound that keeps its place on the axis."""

    def __init__(self, stream: AudioStream, origin_ms: float, guard: Guard) -> None:
        super().__init__(stream, origin_ms, guard)
        self._stream = stream
        self._hz = stream.codec_context.sample_rate
        self._pieces: list[NDArray[np.float32]] = []
        self._samples = 0  # at the stream's own rate
        self.pts_ms: list[float] = []  # of the decoded frames
        self.frame_ms: list[float] = []  # how long each sounds

    def feed(self, packet: Packet | None) -> None:
        """Decodes one packet, or with None what the decoder still holds; damage is counted.

        Raises `MediaError` beyond a limit.
        """
        try:
            frames = self._stream.decode(packet)
        except FFmpegError:
            self.errors += 1
            return
        for frame in frames:
            self._take(frame)

    @property
    def end_ms(self) -> float:
        """When the last sample ends."""
        return self._samples * 1000.0 / self._hz

    def sound(self, fidelity: Fidelity) -> NDArray[np.float32]:
        """Everything from time 0 on, float32 mono at 16 kHz, silence where nothing sounded."""
        if not self._pieces:
            return np.zeros(0, np.float32)
        return fidelity.sound(np.concatenate(self._pieces), self._hz)

    def _take(self, frame: AudioFrame) -> None:
        pcm = _mono(frame)
        if pcm is None or frame.pts is None or frame.sample_rate != self._hz:
            self.errors += 1
            return
        ms = self._at(frame.pts)
        if self.start_ms is None:
            self.start_ms = ms
        self.pts_ms.append(ms)
        self.frame_ms.append(frame.samples * 1000.0 / self._hz)
        self._place(pcm, round(ms * self._hz / 1000.0))

    def _place(self, pcm: NDArray[np.float32], position: int) -> None:
        """Appends sound at its position: a hole is filled with silence, an overlap is cut."""
        shift = position - self._samples
        if abs(shift) * 1000.0 / self._hz < SOUND_SLACK_MS and self._pieces:
            shift = 0
        if shift > 0:
            self._append(np.zeros(shift, np.float32))
        self._append(pcm[max(0, -shift) :])

    def _append(self, pcm: NDArray[np.float32]) -> None:
        self._pieces.append(pcm)
        self._samples += len(pcm)


def _mono(frame: AudioFrame) -> NDArray[np.float32] | None:
    """Mean of all channels, float32 within -1..1; None for a sample format numpy cannot hold."""
    try:
        array = frame.to_ndarray()
    except ValueError:
        return None
    channels = frame.layout.nb_channels
    planes = array if frame.format.is_planar else array.reshape(-1, channels).T
    if planes.dtype.kind == "f":
        return np.clip(np.nan_to_num(planes.mean(0, dtype=np.float32)), -1.0, 1.0)
    middle = 128 if planes.dtype.kind == "u" else 0
    scale = 2.0 ** (8 * planes.dtype.itemsize - 1)
    return ((planes.mean(0, dtype=np.float64) - middle) / scale).astype(np.float32)


def _gaps(pts_ms: list[float]) -> int:
    """Steps that leave a frame out, in a stream whose other steps are all alike."""
    steps = np.diff(np.unique(pts_ms))
    if len(steps) < 2:
        return 0
    frame = float(np.median(steps))
    alike = np.abs(steps - frame) <= max(RATE_SLACK_MS, 0.1 * frame)
    return int((steps > GAP_FRAMES * frame).sum()) if alike.mean() >= CONSTANT_RATE_SHARE else 0
