"""Judges what the demuxer and the decoder said of a clip's video stream as it came in."""

from dataclasses import dataclass

from monitors.contract import FaultFound
from monitors.labels import Detector, Fault, Grade, Origin

EARLY_END_MS = 185.0


@dataclass(frozen=True)
class VideoStreamReport:
    """What decoding one video stream brought to light. Counts, and times in milliseconds."""

    codec: str
    packets: int
    frames: int
    decode_errors: int  # packets the demuxer or the decoder refused
    corrupt_packets: int  # flagged by the demuxer
    corrupt_frames: int  # flagged by the decoder
    holes: int | None  # packets that owed a frame and gave none; None: the codec hides frames
    pts_gaps: int  # steps that leave a frame out, in a stream of constant rate
    backward: int  # frames whose time does not move forward
    declared_ms: float | None  # of the stream, else of the clip; None: the container tells neither
    decoded_ms: float  # of the same


def faults(stream: VideoStreamReport) -> tuple[FaultFound, ...]:
    """Damage that came in with the video. A missing frame alone is soft: many cameras skip."""
    found = [
        _found(rule, Grade.HARD, f"{count} of {stream.packets} packets, {stream.codec}")
        for rule, count in (
            ("decode_error", stream.decode_errors),
            ("corrupt_packet", stream.corrupt_packets),
            ("corrupt_frame", stream.corrupt_frames),
            ("hole", stream.holes or 0),
        )
        if count
    ]
    if stream.backward:
        found.append(_found("time_backward", Grade.SOFT, f"{stream.backward} frames"))
    if stream.pts_gaps:
        found.append(_found("pts_gap", Grade.SOFT, f"{stream.pts_gaps} gaps at constant rate"))
    return (*found, *_early_end(stream))


def _early_end(stream: VideoStreamReport) -> tuple[FaultFound, ...]:
    if stream.declared_ms is None or stream.declared_ms - stream.decoded_ms <= EARLY_END_MS:
        return ()
    detail = f"{stream.decoded_ms:.0f} ms of the declared {stream.declared_ms:.0f} ms"
    return (_found("early_end", Grade.HARD, detail),)


def _found(rule: str, grade: Grade, detail: str) -> FaultFound:
    return FaultFound(
        fault=Fault.VIDEO_CORRUPT,
        grade=grade,
        origin=Origin.INPUT,
        detector=Detector.BITSTREAM,
        rule=rule,
        detail=detail,
    )
