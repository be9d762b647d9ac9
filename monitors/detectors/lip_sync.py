"""Judges the offset of sound against picture as the model saw them on its own clock (S2.2)."""

from monitors.contract import FaultFound
from monitors.detectors.timeline import ACCEPTABLE_MS, DETECTABLE_MS
from monitors.labels import Detector, Fault, Grade, Origin


def faults(av_offset_ms: float | None) -> tuple[FaultFound, ...]:
    """Beyond BT.1359 acceptance hard, beyond what viewers detect soft.

    `av_offset_ms`: audio minus video, early negative; None when both were not present.
    """
    if av_offset_ms is None or _within(av_offset_ms, DETECTABLE_MS):
        return ()
    acceptable = _within(av_offset_ms, ACCEPTABLE_MS)
    early, late = DETECTABLE_MS if acceptable else ACCEPTABLE_MS
    return (
        FaultFound(
            fault=Fault.LIP_DESYNC,
            grade=Grade.SOFT if acceptable else Grade.HARD,
            origin=Origin.PIPELINE,
            detector=Detector.TIMELINE,
            rule="noticeable_offset" if acceptable else "unacceptable_offset",
            detail=f"audio {av_offset_ms:+.0f} ms from video; limits {early:+.0f} to {late:+.0f}",
        ),
    )


def _within(offset_ms: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= offset_ms <= limits[1]
