"""Checks a clip's time stamps: did its sound and picture share one clock before we had them?

Times are milliseconds on the clip's own axis. An offset is audio minus video: early is
negative. Limits of sync are those of ITU-R BT.1359-1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from monitors.contract import FaultFound
from monitors.detectors import wrong_rate
from monitors.detectors.bt1359 import ACCEPTABLE_MS, DETECTABLE_MS, beyond
from monitors.detectors.finding import Abstained, Verdict
from monitors.detectors.frame_rate import RATE_SLACK_MS, is_constant
from monitors.labels import Detector, Fault, Grade, Origin

SLICE_MS = 2000.0  # S2.1
AUDIO_GAP_MS = 90.0
AUDIO_OVERLAP_MS = 45.0
VIDEO_GAP_MS = ACCEPTABLE_MS[1]  # what a picture that stands still lets the sound run ahead
GRID_TOLERANCE_MS = 90.0
CLOCK_DRIFT = 0.02  # seconds of samples against seconds of time stamps
LENGTH_MISMATCH_MS = 400.0  # clean files end this unevenly

_CONSTANT_SHARE = 0.9  # of the steps between frames are alike, in a stream of constant rate
_PAUSE_PERCENTILE, _PAUSE_TIMES = 95.0, 4.0  # a gap, in a stream of varying rate
_SHARED_MS = 100.0  # so near to each other, gaps of both streams are one pause
_SETTLED_FRAMES = 5  # at the end of a slice, that tell where its sound stands
_ENDS_MS = 50.0  # padding, and how long the last frame stays: ends so near to each other are alike
_QUIET, _QUIET_SHARE = 0.01, 0.1  # of full scale, and of the loud frames: no voice
_LOUD_PERCENTILE = 95.0

Milliseconds = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClipTimeline:
    """Times of one clip in stream order; arrays are empty where the stream is missing.

    `video_pts` are the packets', sorted. `audio_pts` are the decoded frames', and `audio_ms[i]`
    is how long frame i sounds by its sample count: a container may stretch durations over a
    gap; `audio_peak[i]` is how loud it gets, of full scale. `video_start` is the first
    packet's, as what cannot be decoded was in step too; `audio_start` is that of the first decoded
    frame, after priming was dropped.
    `sampled_ms[i]` is when the frame that was taken for the grid point `grid_ms[i]` came on screen
    by its own time stamp, `sampled_until_ms[i]` when the next one took its place.
    """

    video_pts: Milliseconds
    audio_pts: Milliseconds
    audio_ms: Milliseconds
    audio_peak: NDArray[np.float64]
    video_start: float | None
    audio_start: float | None
    sampled_ms: Milliseconds
    sampled_until_ms: Milliseconds
    grid_ms: Milliseconds


@dataclass(frozen=True)
class _SliceOffset:
    """Where the sound stands at the end of one slice: `offset_ms` from the picture."""

    at_ms: float
    offset_ms: float


def judge(clip: ClipTimeline) -> Verdict:
    """Abstains on a sound that is alone: there is nothing that it could be out of step with."""
    if _clocks(clip) is None and not len(clip.grid_ms):
        return Abstained("there is no picture beside the sound, or none of any length")
    return faults(clip)


def faults(clip: ClipTimeline) -> tuple[FaultFound, ...]:
    """All that is wrong with the clip's clocks, input faults first, then our own sampling."""
    return (*input_faults(clip), *grid_faults(clip))


def input_faults(clip: ClipTimeline) -> tuple[FaultFound, ...]:
    """What the client's clip brought with it. A clip of one stream alone cannot be out of sync."""
    clocks = _clocks(clip)
    if clocks is None:
        return ()
    return (
        *clocks.start(),
        *clocks.sound_joints(),
        *clocks.slices(),
        *clocks.picture_gap(),
        *clocks.rates(),
    )


def grid_faults(clip: ClipTimeline) -> tuple[FaultFound, ...]:
    """Whether the frames we sampled were on screen where the model is told they are (S2.2)."""
    if not len(clip.grid_ms):
        return ()
    error = np.maximum(clip.sampled_ms - clip.grid_ms, clip.grid_ms - clip.sampled_until_ms)
    worst = int(error.argmax())
    if error[worst] <= GRID_TOLERANCE_MS:
        return ()
    at = float(clip.grid_ms[worst])
    return (
        _found(
            "grid_error",
            f"the frame for {at:.0f} ms was shown from {clip.sampled_ms[worst]:.0f} to "
            f"{clip.sampled_until_ms[worst]:.0f} ms; at most {GRID_TOLERANCE_MS:.0f} ms apart",
            at_ms=at,
            value=float(error[worst]),
            limit=GRID_TOLERANCE_MS,
            origin=Origin.PIPELINE,
        ),
    )


def _clocks(clip: ClipTimeline) -> "_Clocks | None":
    if clip.video_start is None or clip.audio_start is None:
        return None
    if min(len(clip.video_pts), len(clip.audio_pts)) < 2:
        return None
    return _Clocks(clip, clip.video_start, clip.audio_start)


@dataclass(frozen=True, eq=False)
class _Clocks:
    """Both streams of one clip, and what is derived of their time stamps."""

    clip: ClipTimeline
    video_start: float
    audio_start: float

    # ------------------------------------------------------------ derived
    @cached_property
    def offset(self) -> float:
        return self.audio_start - self.video_start

    @cached_property
    def grown(self) -> float:
        """How much further the sound is from the picture where both end than where they start."""
        picture = float(self.clip.video_pts[-1]) + self.frame_ms
        return float(self.ends[-1]) - picture - self.offset

    @cached_property
    def ends(self) -> Milliseconds:
        """When each frame of sound ends by its samples."""
        return self.clip.audio_pts + self.clip.audio_ms

    @cached_property
    def gaps(self) -> Milliseconds:
        """Between frames of sound; an overlap is negative."""
        return self.clip.audio_pts[1:] - self.ends[:-1]

    @cached_property
    def steps(self) -> Milliseconds:
        return np.diff(self.clip.video_pts)

    @cached_property
    def frame_ms(self) -> float:
        return float(np.median(self.steps))

    @cached_property
    def constant(self) -> bool:
        """Whether the picture has one frame rate, apart from gaps."""
        return is_constant(self.steps, _CONSTANT_SHARE)

    @cached_property
    def stills(self) -> NDArray[np.intp]:
        """Steps of the picture that are a gap in it: of any length in a stream that pauses often,
        a recorded screen say, they are none."""
        limit = VIDEO_GAP_MS
        if not self.constant:
            usual = float(np.percentile(self.steps, _PAUSE_PERCENTILE))
            limit = max(limit, _PAUSE_TIMES * usual)
        return np.flatnonzero(self.steps - self.frame_ms > limit)

    @cached_property
    def pauses(self) -> dict[int, int]:
        """Gaps of the sound that the picture makes too, as after a recorder's pause: sound joint
        -> picture step. Both go on in step."""
        found: dict[int, int] = {}
        for step in np.flatnonzero(self.steps - self.frame_ms > AUDIO_GAP_MS):
            near = np.abs(self.ends[:-1] - self.clip.video_pts[step]) <= _SHARED_MS
            alike = np.abs(self.gaps - (self.steps[step] - self.frame_ms)) <= _SHARED_MS
            for joint in np.flatnonzero(near & alike & (self.gaps > AUDIO_GAP_MS)):
                found[int(joint)] = int(step)
        return found

    @cached_property
    def holes(self) -> NDArray[np.intp]:
        """Joints where sound is missing but goes on at its true time: lost packets, or silence
        that an encoder left out. Had all that follows moved instead, the sound would end later."""
        wide = np.flatnonzero(self.gaps > AUDIO_GAP_MS)
        wide = wide[~np.isin(wide, list(self.pauses))]
        moved = abs(self.grown - float(self.gaps[wide].sum())) <= _ENDS_MS
        return wide[:0] if moved else wide

    @cached_property
    def slip(self) -> Milliseconds:
        """How far each frame of sound stands from where the samples before it end."""
        apart = self.gaps.copy()
        apart[list(self.pauses)] = 0.0
        apart[self.holes] = 0.0
        return np.concatenate([[0.0], np.cumsum(apart)])

    def offsets(self) -> Iterator[_SliceOffset]:
        """Audio minus video at the end of every slice, by its time stamps against its samples:
        what sounds later or earlier than these say has slipped against a picture that went on."""
        slices = np.floor(self.clip.audio_pts / SLICE_MS + 1e-9)
        for index in np.unique(slices):
            settled = self.slip[slices == index][-_SETTLED_FRAMES:]
            yield _SliceOffset(float(index) * SLICE_MS, self.offset + float(np.median(settled)))

    # ------------------------------------------------------------ rules
    def start(self) -> Iterator[FaultFound]:
        """A stream that starts later may have nothing to show before, as a camera that warms up:
        it was moved for certain where it ends as much later too."""
        limit = beyond(self.offset, ACCEPTABLE_MS)
        if limit is not None:
            early, late = ACCEPTABLE_MS
            moved = abs(self.grown) <= _ENDS_MS
            yield _found(
                "start_offset",
                f"audio starts {self.offset:+.0f} ms from video and ends "
                f"{self.offset + self.grown:+.0f} ms from it; "
                f"acceptable {early:+.0f} to {late:+.0f}",
                Grade.HARD if moved else Grade.SOFT,
                at_ms=max(self.audio_start, self.video_start),
                value=self.offset,
                limit=limit,
            )

    def sound_joints(self) -> Iterator[FaultFound]:
        """Silence that was left out is no loss: it shows, where the sound before it was silent."""
        alone = np.delete(np.arange(len(self.gaps)), list(self.pauses))
        if not len(alone):
            return
        for rule, joints, limit in (
            ("audio_gap", self.gaps, AUDIO_GAP_MS),
            ("audio_overlap", -self.gaps, AUDIO_OVERLAP_MS),
        ):
            wide = alone[joints[alone] > limit]
            heard = wide[~self._left_out(wide)]
            grade, of = (Grade.HARD, heard) if len(heard) else (Grade.SOFT, wide)
            if len(of):
                worst = int(of[joints[of].argmax()])
                at = float(self.ends[worst])
                detail = f"{joints[worst]:.0f} ms at {at:.0f} ms; at most {limit:.0f}"
                yield _found(rule, detail, grade, at_ms=at, value=float(joints[worst]), limit=limit)

    def _left_out(self, joints: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which joints an encoder may have made that sends nothing while nobody speaks."""
        peak = self.clip.audio_peak
        quiet = max(_QUIET, _QUIET_SHARE * float(np.percentile(peak, _LOUD_PERCENTILE)))
        return np.isin(joints, self.holes) & (peak[joints] <= quiet)

    def slices(self) -> Iterator[FaultFound]:
        """The first slice whose sound has slipped too far; a bad start has its own rule."""
        by = self.offset if beyond(self.offset, ACCEPTABLE_MS) is not None else 0.0
        slipped = [_SliceOffset(s.at_ms, s.offset_ms - by) for s in self.offsets()]
        for grade, limits in ((Grade.HARD, ACCEPTABLE_MS), (Grade.SOFT, DETECTABLE_MS)):
            bad = [s for s in slipped if beyond(s.offset_ms, limits) is not None]
            moved = [s for s in bad if abs(s.offset_ms + by - self.offset) > RATE_SLACK_MS]
            if moved:
                worst = max(moved, key=lambda s: abs(s.offset_ms))
                yield _found(
                    "slice_offset",
                    f"audio has slipped {moved[0].offset_ms:+.0f} ms from video by the slice at "
                    f"{moved[0].at_ms:.0f} ms, {worst.offset_ms:+.0f} ms at worst; "
                    f"{limits[0]:+.0f} to {limits[1]:+.0f} allowed",
                    grade,
                    at_ms=moved[0].at_ms,
                    value=worst.offset_ms,
                    limit=beyond(worst.offset_ms, limits),
                )
                return

    def picture_gap(self) -> Iterator[FaultFound]:
        """A screen on which nothing happens, or a camera that skips, stands still and goes on at
        its true time: hard where what follows was moved, so that the picture ends later."""
        shared = set(self.pauses.values())
        if shared:
            at = float(self.clip.video_pts[min(shared)])
            longest = max(float(self.steps[step]) - self.frame_ms for step in shared)
            yield _found(
                "shared_pause",
                f"sound and picture pause together, first at {at:.0f} ms: {len(shared)} times, "
                f"{longest:.0f} ms at most",
                Grade.SOFT,
                at_ms=at,
                value=longest,
                limit=AUDIO_GAP_MS,
            )
        alone = [int(step) for step in self.stills if int(step) not in shared]
        if alone:
            worst = max(alone, key=lambda step: self.steps[step])
            at, gap = float(self.clip.video_pts[worst]), float(self.steps[worst]) - self.frame_ms
            detail = f"{gap:.0f} ms more than a frame after {at:.0f} ms; at most {VIDEO_GAP_MS:.0f}"
            missing = float((self.steps[alone] - self.frame_ms).sum())
            grade = Grade.HARD if abs(self.grown + missing) <= _ENDS_MS else Grade.SOFT
            yield _found("video_gap", detail, grade, at_ms=at, value=gap, limit=VIDEO_GAP_MS)

    def rates(self) -> Iterator[FaultFound]:
        """A wrong clock: packets that lie closer or wider than they sound, or a mislabelled rate.

        A rate that is wrong from end to end shows in the lengths alone, so it can be told from an
        uneven end only by how well it is explained.
        """
        lasting = float(np.median(self.clip.audio_ms))
        drift = float(np.median(np.diff(self.clip.audio_pts)) / max(lasting, 1e-3)) - 1.0
        if abs(drift) > CLOCK_DRIFT:
            yield _found(
                "audio_clock",
                f"time stamps run {drift:+.1%} off the sample count",
                at_ms=_unfit_from(drift),
                value=drift * 100.0,
                limit=CLOCK_DRIFT * 100.0,
                unit="%",
            )
        elif self._whole():
            yield from self._lengths()

    def _whole(self) -> bool:
        """Whether both streams go on from end to end, so that their lengths say something."""
        slipped = beyond(float(self.slip[-1]), DETECTABLE_MS) is not None
        return not (slipped or len(self.stills) or len(self.holes) or self.pauses)

    def _lengths(self) -> Iterator[FaultFound]:
        sound = float(self.clip.audio_ms.sum())
        picture = float(self.clip.video_pts[-1]) + self.frame_ms - self.video_start
        uneven = sound - picture
        if not self.constant and uneven > 0:
            return  # how long the last frame stays is not known
        span, frames = float(np.ptp(self.clip.video_pts)), len(self.clip.video_pts)
        timed = self.constant and min(sound, picture, span) > 0
        found = wrong_rate.explained(sound, picture, frames, span) if timed else None
        if found is not None and beyond(uneven, ACCEPTABLE_MS) is not None:
            rule, why = found
            grade = Grade.HARD if abs(uneven) > LENGTH_MISMATCH_MS else Grade.SOFT
            detail = f"sound lasts {sound:.0f} ms, the picture {picture:.0f} ms: {why}"
            yield _found(
                rule,
                detail,
                grade,
                at_ms=_unfit_from(uneven / picture),
                value=uneven,
                limit=beyond(uneven, ACCEPTABLE_MS),
            )
        elif abs(uneven) > LENGTH_MISMATCH_MS:
            yield _found(
                "length_mismatch",
                f"sound lasts {sound:.0f} ms, the picture {picture:.0f} ms",
                Grade.SOFT,
                at_ms=min(sound, picture),
                value=uneven,
                limit=LENGTH_MISMATCH_MS if uneven > 0 else -LENGTH_MISMATCH_MS,
            )


def _unfit_from(drift: float) -> float:
    """When a clock that is off by this share has come too far from the other, ms."""
    return ACCEPTABLE_MS[drift > 0] / drift


def _found(
    rule: str,
    detail: str,
    grade: Grade = Grade.HARD,
    *,
    at_ms: float | None = None,
    value: float | None = None,
    limit: float | None = None,
    unit: str = "ms",
    origin: Origin = Origin.INPUT,
) -> FaultFound:
    return FaultFound(
        fault=Fault.LIP_DESYNC,
        grade=grade,
        origin=origin,
        detector=Detector.TIMELINE,
        rule=rule,
        detail=detail,
        at_ms=at_ms,
        value=value,
        limit=limit,
        unit=unit if value is not None else "",
    )
