"""Judges what the demuxer, the decoder and the headers said of a clip's video as it came in."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from monitors.contract import FaultFound
from monitors.detectors.bt1359 import ACCEPTABLE_MS
from monitors.detectors.frame_rate import is_constant
from monitors.detectors.syntax import Anomaly
from monitors.labels import Detector, Fault, Grade, Origin

EARLY_END_MS = ACCEPTABLE_MS[1]  # so much sound without its picture
CONSTANT_RATE_SHARE = 0.75  # of the steps between frames, to call a stream constant in rate
GAP_FRAMES = 1.75  # a step this long leaves a frame out: two would be exact
MOST_ORDER_BREAKS = 0.25  # of the packets; beyond it the encoder does not count in ones
_PLACES = 4  # that a sentence names


class Sign(StrEnum):
    """What one packet or frame showed. The value is the rule's name."""

    DECODE_ERROR = "decode_error"  # the demuxer or the decoder refused it
    CORRUPT_PACKET = "corrupt_packet"  # flagged by the demuxer
    CORRUPT_FRAME = "corrupt_frame"  # flagged by the decoder
    HOLE = "hole"  # a packet that owed a frame and gave none
    LOST_REFERENCE = "lost_reference"  # the frames' own count leaves one out
    BAD_SYNTAX = "bad_syntax"  # a header or unit that no encoder writes
    PTS_GAP = "pts_gap"  # a step that leaves a frame out, in a stream of constant rate
    TIME_BACKWARD = "time_backward"  # a frame whose time does not move forward


SOFT_SIGNS = frozenset({Sign.PTS_GAP, Sign.TIME_BACKWARD})  # many cameras skip a frame
_OF_ORDER = frozenset({Anomaly.FRAME_ORDER, Anomaly.NO_KEY_FRAME})


@dataclass(frozen=True)
class Sighting:
    """A sign, where on the clip's axis (None: no time stamp tells), and what it was in a word."""

    sign: Sign
    at_ms: float | None
    what: str = ""


@dataclass(frozen=True)
class Stretch:
    """From one time on the clip's axis until before another."""

    from_ms: float
    until_ms: float


@dataclass(frozen=True)
class VideoStreamReport:
    """What decoding one video stream brought to light. Times in milliseconds on the clip's axis.

    `declared_ms`: how long the stream, else the clip, should last; None where the container
    tells neither. `decoded_ms`: how long the same did.
    """

    codec: str
    packets: int
    sightings: tuple[Sighting, ...]
    key_ms: tuple[float, ...]  # of the packets that are key frames, sorted
    end_ms: float  # when the last frame leaves the screen
    declared_ms: float | None
    decoded_ms: float


def sighting_of(anomaly: Anomaly, at_ms: float | None) -> Sighting:
    """An anomaly in a packet's headers as a sign."""
    sign = Sign.LOST_REFERENCE if anomaly in _OF_ORDER else Sign.BAD_SYNTAX
    return Sighting(sign, at_ms, anomaly.value)


def pts_gaps(pts_ms: list[float]) -> list[Sighting]:
    """Steps that leave a frame out, in a stream whose other steps are all alike."""
    times = np.unique(np.asarray(pts_ms, np.float64))
    steps = np.diff(times)
    if len(steps) < 2 or not is_constant(steps, CONSTANT_RATE_SHARE):
        return []
    frame = float(np.median(steps))
    long = np.flatnonzero(steps > GAP_FRAMES * frame)
    return [
        Sighting(Sign.PTS_GAP, float(times[i]), f"{steps[i]:.0f} ms to the next frame")
        for i in long
    ]


def faults(stream: VideoStreamReport) -> tuple[FaultFound, ...]:
    """Damage that came in with the video. A missing frame alone is soft: many cameras skip."""
    return (*_signs(stream), *_early_end(stream))


def damaged(stream: VideoStreamReport) -> tuple[Stretch, ...]:
    """Where pictures are broken or missing: what is decoded after a damaged frame builds on it,
    until the next key frame."""
    places = sorted(s.at_ms for s in _counted(stream) if _hard(s) and s.at_ms is not None)
    end_ms = max([*places[-1:], stream.end_ms])
    found: list[Stretch] = []
    for at in places:
        if found and at < found[-1].until_ms:
            continue
        following = bisect_right(stream.key_ms, at)
        mended = stream.key_ms[following] if following < len(stream.key_ms) else end_ms
        if found and at == found[-1].until_ms:
            found[-1] = Stretch(found[-1].from_ms, mended)
        else:
            found.append(Stretch(at, mended))
    return tuple(found)


def _signs(stream: VideoStreamReport) -> Iterator[FaultFound]:
    counted = _counted(stream)
    where = _told(damaged(stream))
    for sign in Sign:
        seen = [sighting for sighting in counted if sighting.sign is sign]
        if not seen:
            continue
        whats = sorted({one.what for one in seen if one.what})
        sentence = f"{len(seen)} of {stream.packets} packets, {stream.codec}"
        if whats:
            sentence += f": {', '.join(whats[:_PLACES])}"
        soft = sign in SOFT_SIGNS
        yield _found(
            sign.value,
            Grade.SOFT if soft else Grade.HARD,
            sentence if soft or not where else f"{sentence}; pictures are damaged {where}",
            at_ms=min((one.at_ms for one in seen if one.at_ms is not None), default=None),
            value=float(len(seen)),
            limit=0.0,
            unit="packets",
        )


def _counted(stream: VideoStreamReport) -> tuple[Sighting, ...]:
    """All sightings, less the order of frames where the encoder does not count in ones."""
    breaks = sum(one.sign is Sign.LOST_REFERENCE for one in stream.sightings)
    if stream.codec != "av1" or breaks <= MOST_ORDER_BREAKS * stream.packets:
        return stream.sightings
    return tuple(one for one in stream.sightings if one.sign is not Sign.LOST_REFERENCE)


def _hard(sighting: Sighting) -> bool:
    return sighting.sign not in SOFT_SIGNS


def _told(stretches: tuple[Stretch, ...]) -> str:
    told = [f"from {s.from_ms:.0f} to {s.until_ms:.0f} ms" for s in stretches[:_PLACES]]
    more = len(stretches) - len(told)
    return ", ".join(told) + (f" and in {more} more stretches" if more else "")


def _early_end(stream: VideoStreamReport) -> Iterator[FaultFound]:
    if stream.declared_ms is None:
        return
    short = stream.declared_ms - stream.decoded_ms
    if short > EARLY_END_MS:
        yield _found(
            "early_end",
            Grade.HARD,
            f"{stream.decoded_ms:.0f} ms of the declared {stream.declared_ms:.0f} ms",
            at_ms=stream.end_ms,
            value=short,
            limit=EARLY_END_MS,
            unit="ms",
        )


def _found(
    rule: str, grade: Grade, detail: str, *, at_ms: float | None, value: float, limit: float,
    unit: str,
) -> FaultFound:  # fmt: skip
    return FaultFound(
        fault=Fault.VIDEO_CORRUPT,
        grade=grade,
        origin=Origin.INPUT,
        detector=Detector.BITSTREAM,
        rule=rule,
        detail=detail,
        at_ms=at_ms,
        value=value,
        limit=limit,
        unit=unit,
    )
