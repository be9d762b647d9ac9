"""Media bytes to slices in time order, with a report of what was wrong with them.

One call decodes one item in the calling thread. A damaged stream that still yields frames is
decoded and the damage reported; what yields nothing is refused with a `MediaError`.
"""

import io
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import av
import numpy as np
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.error import FFmpegError
from av.stream import Disposition
from av.video.stream import VideoStream
from numpy.typing import NDArray

from monitors.contract import FaultFound
from monitors.detectors import bitstream, operations, sound_damage
from monitors.detectors import timeline as clocks
from monitors.detectors.finding import Finding, Gathering, Verdict, examine, joined
from monitors.detectors.sound_damage import SoundReport
from monitors.labels import Detector
from monitors.redlines import SchedulerLines
from runtime.media.audio_track import AudioTrack
from runtime.media.fidelity import Fidelity
from runtime.media.image import decode_image
from runtime.media.limits import Guard, MediaError, MediaLimits, MediaProblem
from runtime.media.slices import AudioSlice, Signature, Slice, VideoSlice, cut, image_slice
from runtime.media.video_track import VideoTrack

__all__ = ["Clip", "DecodeReport", "Kind", "MediaError", "MediaProblem", "decode"]

# Self-contained formats only: a playlist could name files or addresses of this machine.
CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,mpegts,avi,wav,mp3,flac,ogg,aac"
SAMPLE_RATES = range(4_000, 192_001)
PRIMING_MS = 100.0  # an encoder's samples before time 0 last less; they are cut away

Kind = Literal["audio", "video", "image"]


@dataclass(frozen=True, eq=False)
class DecodeReport:
    """What decoding brought to light, for the detectors. None: the item has no such stream."""

    container: str
    sound: SoundReport | None = None
    video: bitstream.VideoStreamReport | None = None
    findings: tuple[Finding, ...] = ()
    """Damage the client's clip brought with it (origin input), and errors of our own sampling
    (origin pipeline); one finding of each detector that had something to examine."""

    @property
    def faults(self) -> tuple[FaultFound, ...]:
        """All that the detectors found."""
        return tuple(fault for finding in self.findings for fault in finding.faults)


@dataclass(frozen=True, eq=False)
class Clip:
    """One decoded item: its slices in time order, each video slice before its sound."""

    slices: tuple[Slice, ...]
    report: DecodeReport
    duration_ms: float  # 0 of a still picture

    @property
    def has_audio(self) -> bool:
        return any(isinstance(piece, AudioSlice) for piece in self.slices)

    @property
    def has_video(self) -> bool:
        return any(isinstance(piece, VideoSlice) for piece in self.slices)

    @property
    def digest(self) -> str:
        """Names the whole item: the digest of its last slice, which chains all before it."""
        return self.slices[-1].digest


def decode(
    data: bytes,
    *,
    kind: Kind,
    limits: MediaLimits,
    fidelity: Fidelity,
    param: str,
    fps: float = 2.0,
    lines: SchedulerLines | None = None,
) -> Clip:
    """Decodes a whole file of a client.

    `kind` is what the item was sent as: "audio" takes the sound alone, "video" needs frames and
    takes sound where there is some. `fps` is how often video is sampled, `lines` how long slices
    are (S2.1). `param` names the item in the request. Blocks; call it in a thread.

    Raises `MediaError` for what cannot be used or is beyond `limits`.
    """
    guard = Guard(limits, param)
    if kind == "image":
        picture, name = decode_image(data, guard, fidelity)
        return Clip((image_slice(picture),), DecodeReport(name), duration_ms=0.0)
    try:
        return _decode(data, kind, guard, fidelity, fps, lines or SchedulerLines())
    except FFmpegError as err:
        raise guard.refusal(MediaProblem.UNSUPPORTED, f"cannot be decoded here: {err}") from err


def _decode(
    data: bytes, kind: Kind, guard: Guard, fidelity: Fidelity, fps: float, lines: SchedulerLines
) -> Clip:
    with _open(data, guard) as container:
        video = _video_track(container, guard, fidelity, fps) if kind == "video" else None
        audio = _audio_track(container, guard, needed=kind == "audio")
        _read(container, video, audio)
        report = _report(container, video, audio)
    samples = () if video is None else video.samples
    sound = np.zeros(0, np.float32) if audio is None else audio.sound(fidelity)
    if video is not None:
        lips = video.inspection.lips(sound)
        report = replace(report, findings=(*report.findings, lips))
    if not len(samples if kind == "video" else sound):
        refused = guard.refusal(MediaProblem.NO_FRAMES, f"no {kind} could be decoded from it")
        refused.findings = report.findings
        raise refused
    signing = Gathering(Detector.OPERATIONS)

    def sign(frames: NDArray[np.uint8]) -> Signature:
        return signing.take(partial(operations.signature, frames)) or ()

    slices = tuple(cut(samples, sound, 1000.0 / fps, lines, sign))
    if signing.failed is not None:
        unsigned = Finding(Detector.OPERATIONS, signing.failed, signing.spent_s)
        report = replace(report, findings=joined(*report.findings, unsigned))
    return Clip(slices, report, duration_ms=_end_ms(video, audio))


def _open(data: bytes, guard: Guard) -> InputContainer:
    try:
        container = av.open(
            io.BytesIO(data),
            mode="r",
            container_options={"format_whitelist": CONTAINERS},
            metadata_errors="replace",
        )
    except (FFmpegError, ValueError) as err:
        raise guard.refusal(
            MediaProblem.NOT_MEDIA,
            "cannot be read as audio or video: it is another kind of file, or cut off",
        ) from err
    declared_ms = _declared_ms(container)
    if declared_ms is not None:
        guard.length(declared_ms / 1000.0)
    return container


def _video_track(
    container: InputContainer, guard: Guard, fidelity: Fidelity, fps: float
) -> VideoTrack:
    cover = Disposition.attached_pic
    streams = [one for one in container.streams.video if not one.disposition & cover]
    if not streams:
        raise guard.refusal(MediaProblem.NO_STREAM, "has no video stream")
    stream = streams[0]
    _prepare(stream, guard)
    guard.pixels(stream.codec_context.width, stream.codec_context.height)
    return VideoTrack(stream, _origin_ms(container), guard, fidelity, fps)


def _audio_track(container: InputContainer, guard: Guard, needed: bool) -> AudioTrack | None:
    streams = container.streams.audio
    if not streams:
        if needed:
            raise guard.refusal(MediaProblem.NO_STREAM, "has no audio stream")
        return None
    stream = streams[0]
    _prepare(stream, guard)
    hz = stream.codec_context.sample_rate
    if hz not in SAMPLE_RATES:
        raise guard.refusal(
            MediaProblem.UNSUPPORTED,
            f"has sound at {hz} Hz; {SAMPLE_RATES[0]} to {SAMPLE_RATES[-1]} Hz are taken",
        )
    return AudioTrack(stream, _origin_ms(container), guard)


def _prepare(stream: VideoStream | AudioStream, guard: Guard) -> None:
    if stream.codec_context is None:
        raise guard.refusal(
            MediaProblem.UNSUPPORTED, f"has a {stream.type} stream in a codec unknown here"
        )
    # Threaded decoding can deadlock with Python's logging, and many clips share few cores.
    stream.codec_context.thread_count = 1


def _origin_ms(container: InputContainer) -> float:
    """Time 0 of the millisecond axis: where the earliest stream starts, priming aside.

    Far below 0 it is a start like any other: a transport stream's clock goes round, and what came
    before that is given negative times.
    """
    start_ms = (container.start_time or 0) * 1000.0 / av.time_base
    return 0.0 if -PRIMING_MS <= start_ms < 0.0 else start_ms


def _declared_ms(container: InputContainer) -> float | None:
    """How long the clip should last. Matroska counts that from time 0, wherever the clip starts."""
    if container.duration is None:
        return None
    declared_ms = container.duration * 1000.0 / av.time_base
    return (
        declared_ms - _origin_ms(container) if "matroska" in container.format.name else declared_ms
    )


def _read(container: InputContainer, video: VideoTrack | None, audio: AudioTrack | None) -> None:
    """Feeds every packet to its track. A file that breaks off is read as far as it goes."""
    tracks = {track.index: track for track in (video, audio) if track is not None}
    try:
        for packet in container.demux([container.streams[index] for index in tracks]):
            tracks[packet.stream.index].feed(packet)
    except FFmpegError:
        for track in tracks.values():
            track.broke_off()
    if video is not None:
        video.finish()


def _end_ms(video: VideoTrack | None, audio: AudioTrack | None) -> float:
    return max(track.end_ms for track in (video, audio) if track is not None)


def _report(
    container: InputContainer, video: VideoTrack | None, audio: AudioTrack | None
) -> DecodeReport:
    clip_ms = _declared_ms(container), _end_ms(video, audio)
    stream = None if video is None else video.report(clip_ms)
    clock = examine(Detector.TIMELINE, partial(_judge_clocks, video, audio))
    seen = () if video is None or stream is None else video.inspection.findings(stream)
    heard = () if audio is None else (_judge_sound(audio.report),)
    return DecodeReport(
        container=container.format.name,
        sound=None if audio is None else audio.report,
        video=stream,
        findings=joined(clock, *seen, *heard),
    )


def _judge_sound(report: SoundReport) -> Finding:
    return examine(Detector.BITSTREAM, partial(sound_damage.faults, report))


def _judge_clocks(video: VideoTrack | None, audio: AudioTrack | None) -> Verdict:
    return clocks.judge(_timeline(video, audio))


def _timeline(video: VideoTrack | None, audio: AudioTrack | None) -> clocks.ClipTimeline:
    samples = [] if video is None else video.samples
    shown = np.array([] if video is None else video.shown_ms)
    taken = np.array([] if video is None else video.taken_ms)
    pictures = [] if video is None or video.start_ms is None else sorted(video.pts_ms)
    return clocks.ClipTimeline(
        video_pts=np.array(pictures),
        audio_pts=np.array([] if audio is None else audio.pts_ms),
        audio_ms=np.array([] if audio is None else audio.frame_ms),
        audio_peak=np.array([] if audio is None else audio.peak),
        video_start=pictures[0] if pictures else None,
        audio_start=None if audio is None else audio.start_ms,
        sampled_ms=taken,
        sampled_until_ms=np.append(shown, np.inf)[np.searchsorted(shown, taken, "right")],
        grid_ms=np.array([sample.grid_ms for sample in samples]),
    )
