"""Judges how much of a clip's sound its decoder could not read."""

from dataclasses import dataclass

from monitors.contract import FaultFound
from monitors.labels import Detector, Fault, Grade, Origin

HARD_SHARE = 0.02  # a word is lost somewhere; less is a click or two
HARD_PACKETS = 3  # a tag behind the last one is often taken for one or two


@dataclass(frozen=True)
class SoundReport:
    """`packets` that came; `lost_ms`: the times of those that gave no sound, on the clip's axis.
    None: it has none."""

    packets: int
    lost_ms: tuple[float | None, ...]


def faults(report: SoundReport) -> tuple[FaultFound, ...]:
    """One input fault for all of it: hard from a share on, soft below."""
    lost = len(report.lost_ms)
    if not lost:
        return ()
    share = lost / max(lost, report.packets)
    first = next((at for at in report.lost_ms if at is not None), None)
    where = "" if first is None else f", first at {first:.0f} ms"
    return (
        FaultFound(
            fault=Fault.SPEECH_TRUNCATED,
            grade=Grade.HARD if share >= HARD_SHARE and lost >= HARD_PACKETS else Grade.SOFT,
            origin=Origin.INPUT,
            detector=Detector.BITSTREAM,
            rule="sound_unreadable",
            detail=f"{lost} of {report.packets} packets of sound could not be read{where}",
            at_ms=first,
            value=share * 100.0,
            limit=HARD_SHARE * 100.0,
            unit="%",
        ),
    )
