"""Checks a clip's time stamps: did its sound and picture share one clock before we had them?

Times are milliseconds on the clip's own axis. An offset is audio minus video: early is
negative. Limits of sync are those of ITU-R BT.1359-1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitors.contract import FaultFound
from monitors.labels import Detector, Fault, Grade, Origin

DETECTABLE_MS = (-45.0, 125.0)  # BT.1359-1: half of all viewers notice beyond it
ACCEPTABLE_MS = (-90.0, 185.0)  # BT.1359-1: beyond it the programme is not fit to air
AUDIO_GAP_MS = 90.0
AUDIO_OVERLAP_MS = 45.0
VIDEO_GAP_MS = 185.0
GRID_TOLERANCE_MS = 90.0
CLOCK_DRIFT = 0.02  # seconds of samples against seconds of time stamps
UNEVEN_END_MS = 150.0  # clean files end this unevenly
LENGTH_MISMATCH_MS = 400.0
RATE_PAIRS = ((44.1, 48.0), (25.0, 30.0), (24.0, 30.0), (24.0, 25.0), (16.0, 24.0), (8.0, 16.0))
RATE_TOLERANCE = 0.006

Milliseconds = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClipTimeline:
    """Times of one clip in stream order; arrays are empty where the stream is missing.

    `video_pts` are the packets', sorted. `audio_pts` are the decoded frames', and `audio_ms[i]`
    is how long frame i sounds by its sample count: a container may stretch durations over a
    gap. The starts are those of the first decoded frames, after priming was dropped.
    `sampled_ms[i]` is the time of the frame that was taken for the grid point `grid_ms[i]`.
    """

    video_pts: Milliseconds
    audio_pts: Milliseconds
    audio_ms: Milliseconds
    video_start: float | None
    audio_start: float | None
    sampled_ms: Milliseconds
    grid_ms: Milliseconds


def faults(clip: ClipTimeline) -> tuple[FaultFound, ...]:
    """All that is wrong with the clip's clocks, input faults first, then our own sampling."""
    return (*input_faults(clip), *grid_faults(clip))


def input_faults(clip: ClipTimeline) -> tuple[FaultFound, ...]:
    """What the client's clip brought with it. A clip of one stream alone cannot be out of sync."""
    if clip.video_start is None or clip.audio_start is None:
        return ()
    if min(len(clip.video_pts), len(clip.audio_pts)) < 2:
        return ()
    return (*_start(clip), *_audio_joints(clip), *_video_gap(clip), *_rate(clip))


def grid_faults(clip: ClipTimeline) -> tuple[FaultFound, ...]:
    """Whether the frames we sampled stand where the model is told they do (S2.2)."""
    if not len(clip.grid_ms):
        return ()
    error = np.abs(clip.sampled_ms - clip.grid_ms)
    worst = int(error.argmax())
    if error[worst] <= GRID_TOLERANCE_MS:
        return ()
    detail = (
        f"the frame for {clip.grid_ms[worst]:.0f} ms is of {clip.sampled_ms[worst]:.0f} ms; "
        f"at most {GRID_TOLERANCE_MS:.0f} ms apart"
    )
    return (
        FaultFound(
            fault=Fault.LIP_DESYNC,
            grade=Grade.HARD,
            origin=Origin.PIPELINE,
            detector=Detector.TIMELINE,
            rule="grid_error",
            detail=detail,
        ),
    )


def _found(rule: str, detail: str, grade: Grade = Grade.HARD) -> FaultFound:
    return FaultFound(
        fault=Fault.LIP_DESYNC,
        grade=grade,
        origin=Origin.INPUT,
        detector=Detector.TIMELINE,
        rule=rule,
        detail=detail,
    )


def _start(clip: ClipTimeline) -> tuple[FaultFound, ...]:
    offset = (clip.audio_start or 0.0) - (clip.video_start or 0.0)
    early, late = ACCEPTABLE_MS
    if early <= offset <= late:
        return ()
    detail = f"audio starts {offset:+.0f} ms from video; acceptable {early:+.0f} to {late:+.0f}"
    return (_found("start_offset", detail),)


def _audio_joints(clip: ClipTimeline) -> tuple[FaultFound, ...]:
    ends = clip.audio_pts + clip.audio_ms
    gaps = clip.audio_pts[1:] - ends[:-1]
    found: list[FaultFound] = []
    for rule, joints, limit in (
        ("audio_gap", gaps, AUDIO_GAP_MS),
        ("audio_overlap", -gaps, AUDIO_OVERLAP_MS),
    ):
        worst = int(joints.argmax())
        if joints[worst] > limit:
            detail = f"{joints[worst]:.0f} ms at {ends[worst]:.0f} ms; at most {limit:.0f}"
            found.append(_found(rule, detail))
    return tuple(found)


def _video_gap(clip: ClipTimeline) -> tuple[FaultFound, ...]:
    steps = np.diff(clip.video_pts)
    worst = int(steps.argmax())
    gap = float(steps[worst] - np.median(steps))
    if gap <= VIDEO_GAP_MS:
        return ()
    at = clip.video_pts[worst]
    detail = f"{gap:.0f} ms more than a frame after {at:.0f} ms; at most {VIDEO_GAP_MS:.0f}"
    return (_found("video_gap", detail),)


def _rate(clip: ClipTimeline) -> tuple[FaultFound, ...]:
    """A wrong clock: packets that lie closer or wider than they sound, or a mislabelled rate."""
    steps = np.diff(clip.audio_pts)
    drift = float(np.median(steps) / max(float(np.median(clip.audio_ms)), 1e-3)) - 1.0
    if abs(drift) > CLOCK_DRIFT:
        return (_found("audio_clock", f"time stamps run {drift:+.1%} off the sample count"),)
    audio_end = float(clip.audio_pts[-1] + clip.audio_ms[-1])
    video_end = float(clip.video_pts[-1] + np.median(np.diff(clip.video_pts)))
    uneven = audio_end - video_end
    if abs(uneven) <= UNEVEN_END_MS:
        return ()
    ratio = (audio_end - (clip.audio_start or 0.0)) / (video_end - (clip.video_start or 0.0))
    for a, b in RATE_PAIRS:
        if min(abs(ratio * a / b - 1.0), abs(ratio * b / a - 1.0)) < RATE_TOLERANCE:
            detail = f"sound lasts {ratio:.3f} of the picture: {a:g} taken for {b:g}, or reverse"
            return (_found("rate_mislabel", detail),)
    if abs(uneven) <= LENGTH_MISMATCH_MS:
        return ()
    detail = f"audio ends {uneven:+.0f} ms from video"
    return (_found("length_mismatch", detail, Grade.SOFT),)
