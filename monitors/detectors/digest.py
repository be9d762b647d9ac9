"""Judges whether the bytes that came are those that the client says it sent (RFC 9530)."""

from monitors.contract import FaultFound
from monitors.labels import Detector, Fault, Grade, Modality, Origin


def faults(modality: Modality, algorithm: str, said: bytes, came: bytes) -> tuple[FaultFound, ...]:
    """A hard input fault where both digests differ: something between the client and here changed
    its media, though every bit of what is left may decode.

    Pictures and video are corrupt then. A sound has no picture to be corrupt: what a damaged or
    cut-off upload loses of it is what is said.
    """
    if said == came:
        return ()
    sound = modality is Modality.AUDIO
    return (
        FaultFound(
            fault=Fault.SPEECH_TRUNCATED if sound else Fault.VIDEO_CORRUPT,
            grade=Grade.HARD,
            origin=Origin.INPUT,
            detector=Detector.BITSTREAM,
            rule="digest_mismatch",
            detail=f"{algorithm} of the bytes that came starts {came.hex()[:16]}, the client's "
            f"{said.hex()[:16]}",
        ),
    )
