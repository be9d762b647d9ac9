"""What is said of media that could not be decoded at all: its request is refused."""

from monitors.contract import FaultFound
from monitors.detectors.digest import fault_of
from monitors.labels import Detector, Grade, Modality, Origin


def faults(modality: Modality, problem: str, *, damaged: bool) -> tuple[FaultFound, ...]:
    """One input fault, `problem` in its words: hard where the bytes are damaged or cut off, soft
    where they may be whole, but nothing here can use them."""
    return (
        FaultFound(
            fault=fault_of(modality),
            grade=Grade.HARD if damaged else Grade.SOFT,
            origin=Origin.INPUT,
            detector=Detector.BITSTREAM,
            rule="refused",
            detail=problem,
        ),
    )
