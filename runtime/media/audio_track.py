"""The sound of a clip: packets in, one mono sound on the millisecond axis out."""

import numpy as np
from av import AudioFrame
from av.audio.stream import AudioStream
from av.error import FFmpegError
from av.packet import Packet
from numpy.typing import NDArray

from monitors.detectors.sound_damage import SoundReport
from runtime.media.fidelity import Fidelity
from runtime.media.limits import Guard
from runtime.media.track import Track

SOUND_SLACK_MS = 60.0  # a time stamp this far off the sample count moves the sound


class AudioTrack(Track):
    """Decodes an audio stream to one mono sound that keeps its place on the axis."""

    def __init__(self, stream: AudioStream, origin_ms: float, guard: Guard) -> None:
        super().__init__(stream, origin_ms, guard)
        self._packets = 0
        self._lost_ms: list[float | None] = []  # of packets and frames that gave nothing
        self._stream = stream
        self._hz = stream.codec_context.sample_rate
        self._pieces: list[NDArray[np.float32]] = []
        self._samples = 0  # at the stream's own rate
        self.pts_ms: list[float] = []  # of the decoded frames
        self.frame_ms: list[float] = []  # how long each sounds
        self.peak: list[float] = []  # how loud each gets, of full scale

    def feed(self, packet: Packet | None) -> None:
        """Decodes one packet, or with None what the decoder still holds; damage is counted.

        Raises `MediaError` beyond a limit.
        """
        at_ms = None
        if packet is not None and packet.size:
            self._packets += 1
            at_ms = None if packet.pts is None else self._at(packet.pts)
        try:
            frames = self._stream.decode(packet)
        except FFmpegError:
            self._lost_ms.append(at_ms)
            return
        for frame in frames:
            self._take(frame)

    def broke_off(self) -> None:
        """The demuxer could read no further."""
        self._lost_ms.append(self.end_ms)
        self.feed(None)

    @property
    def report(self) -> SoundReport:
        """What could not be read."""
        return SoundReport(self._packets, tuple(self._lost_ms))

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
        ms = None if frame.pts is None else self._at(frame.pts)
        if pcm is None or ms is None or frame.sample_rate != self._hz:
            self._lost_ms.append(ms)
            return
        if self.start_ms is None:
            self.start_ms = ms
        self.pts_ms.append(ms)
        self.frame_ms.append(frame.samples * 1000.0 / self._hz)
        self.peak.append(float(np.abs(pcm).max(initial=0.0)))
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
