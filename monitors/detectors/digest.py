"""Judges whether the bytes that came are those that the client says it sent (RFC 9530)."""

from monitors.contract import FaultFound
from monitors.labels import Detector, Fault, Grade, Modality, Origin


def fault_of(modality: Modality) -> Fault:
    """Pictures and video that came damaged are corrupt. A sound has no picture to be corrupt: what
    a damaged or cut-off upload loses of it is what is said."""
    return Fault.SPEECH_TRUNCATED if modality is Modality.AUDIO else Fault.VIDEO_CORRUPT


def faults(modality: Modality, algorithm: str, said: bytes, came: bytes) -> tuple[FaultFound, ...]:
    """A hard input fault where both digests differ: something between the client and here changed
    its media, though every bit of what is left may decode."""
    if said == came:
        return ()
    return (
        FaultFound(
            fault=fault_of(modality),
            grade=Grade.HARD,
            origin=Origin.INPUT,
            detector=Detector.BITSTREAM,
            rule="digest_mismatch",
            detail=f"{algorithm} of the bytes that came starts {came.hex()[:16]}, the client's "
            f"{said.hex()[:16]}",
        ),
    )
