"""Judges where a clip's tokens stand on the model's own clock, against their true times (S2.2)."""

from collections.abc import Iterator

from monitors.contract import FaultFound, Wire
from monitors.detectors.bt1359 import ACCEPTABLE_MS, DETECTABLE_MS, beyond
from monitors.labels import Detector, Fault, Grade, Modality, Origin

_ROUNDING_MS = 0.01  # of floating point


class ClockError(Wire, frozen=True):
    """The worst of all tokens that have a time: the first of each temporal grid of video, and every
    one of audio. Milliseconds; `unit_ms` is one step of the position axis.

    `error_ms`: where the token stands, minus its true time `at_ms` on its clip's axis. As it is
    the worst of a whole prompt, an error that adds up as a clip goes on shows in it too.
    """

    unit_ms: float
    error_ms: float
    at_ms: float
    modality: Modality


def faults(av_offset_ms: float | None, worst: ClockError | None) -> tuple[FaultFound, ...]:
    """Beyond BT.1359 acceptance hard; beyond what viewers detect, or what rounding explains, soft.

    `av_offset_ms`: audio minus video over a clip, early negative. None: there was nothing to
    measure.
    """
    return (*_offset(av_offset_ms), *_position(worst))


def _offset(offset_ms: float | None) -> Iterator[FaultFound]:
    if offset_ms is None or beyond(offset_ms, DETECTABLE_MS) is None:
        return
    accepted = beyond(offset_ms, ACCEPTABLE_MS) is None
    early, late = limits = DETECTABLE_MS if accepted else ACCEPTABLE_MS
    yield _found(
        "noticeable_offset" if accepted else "unacceptable_offset",
        Grade.SOFT if accepted else Grade.HARD,
        f"audio {offset_ms:+.0f} ms from video; limits {early:+.0f} to {late:+.0f}",
        value=offset_ms,
        limit=beyond(offset_ms, limits),
    )


def _position(worst: ClockError | None) -> Iterator[FaultFound]:
    """No token may stand further from its time than half a step of the axis."""
    if worst is None or abs(worst.error_ms) <= worst.unit_ms / 2 + _ROUNDING_MS:
        return
    early_sound = worst.error_ms if worst.modality is Modality.AUDIO else -worst.error_ms
    yield _found(
        "position_error",
        Grade.SOFT if beyond(early_sound, ACCEPTABLE_MS) is None else Grade.HARD,
        f"{worst.modality} of {worst.at_ms:.0f} ms stands {worst.error_ms:+.0f} ms from its time; "
        f"half a step of {worst.unit_ms:.1f} ms is allowed",
        at_ms=worst.at_ms,
        value=worst.error_ms,
        limit=worst.unit_ms / 2 if worst.error_ms > 0 else -worst.unit_ms / 2,
    )


def _found(
    rule: str,
    grade: Grade,
    detail: str,
    *,
    at_ms: float | None = None,
    value: float,
    limit: float | None,
) -> FaultFound:
    return FaultFound(
        fault=Fault.LIP_DESYNC,
        grade=grade,
        origin=Origin.PIPELINE,
        detector=Detector.TIMELINE,
        rule=rule,
        detail=detail,
        at_ms=at_ms,
        value=value,
        limit=limit,
        unit="ms",
    )
