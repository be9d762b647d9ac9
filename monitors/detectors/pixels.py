"""Did the pixels that left the gateway reach the engine? Block means before and after tell.

The sender takes a `signature` of the frames it sends, the receiver one of those it got; the
same pixels give the same numbers, and a swapped plane, a wrong stride or a lost row does not.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitors.contract import FaultFound
from monitors.labels import Detector, Fault, Grade, Origin

MAX_MEAN = 1.5  # grey levels, over all numbers of a signature
MAX_WORST = 10.0  # grey levels, of any one number
BLOCKS = 8  # per side
_POINTS = 8 * BLOCKS  # sample points per side
_LUMA = np.array([77, 150, 29], np.int32)  # BT.601, of 256
_BLUE = np.array([-43, -85, 128], np.int32)
_RED = np.array([128, -107, -21], np.int32)


class Difference(NamedTuple):
    """Distance of two signatures in grey levels: over all numbers, and of the worst one."""

    mean: float
    worst: float


def signature(frames: NDArray[np.uint8]) -> tuple[int, ...]:
    """8x8 luma block means and two chroma means of every frame; 66 integers a frame, in order.

    `frames`: RGB `(n, height, width, 3)`. Looks at 64x64 points of each frame, so it costs the
    same at any size. Raises `ValueError` on another shape or type.
    """
    if frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != np.uint8:
        raise ValueError(f"want uint8 (n, height, width, 3), got {frames.dtype} {frames.shape}")
    n, height, width = frames.shape[:3]
    rows = (2 * np.arange(_POINTS) + 1) * height // (2 * _POINTS)
    columns = (2 * np.arange(_POINTS) + 1) * width // (2 * _POINTS)
    points = frames[:, rows[:, None], columns].astype(np.int32)
    luma = (points @ _LUMA >> 8).reshape(n, BLOCKS, 8, BLOCKS, 8).mean((2, 4))
    colour = points.mean((1, 2))
    chroma = np.stack((colour @ _BLUE, colour @ _RED), axis=1) / 256 + 128
    numbers: NDArray[Any] = np.concatenate((luma.reshape(n, -1), chroma), axis=1)
    return tuple(int(x) for x in np.rint(numbers).astype(np.int64).ravel())


def compare(sent: tuple[int, ...], received: tuple[int, ...]) -> Difference:
    """How far apart two signatures are. Frames lost or added are the worst there is."""
    if len(sent) != len(received):
        return Difference(255.0, 255.0)
    if not sent:
        return Difference(0.0, 0.0)
    apart = np.abs(np.subtract(sent, received))
    return Difference(float(apart.mean()), float(apart.max()))


def faults(mean: float, worst: float | None = None) -> tuple[FaultFound, ...]:
    """Verdict on a `Difference`; `worst` is None where only the mean was carried."""
    if mean <= MAX_MEAN and (worst is None or worst <= MAX_WORST):
        return ()
    told = "unknown" if worst is None else f"{worst:.1f}"
    return (
        FaultFound(
            fault=Fault.VIDEO_CORRUPT,
            grade=Grade.HARD,
            origin=Origin.PIPELINE,
            detector=Detector.OPERATIONS,
            rule="pixels_changed",
            detail=f"grey levels apart: mean {mean:.2f} (at most {MAX_MEAN:g}), "
            f"worst {told} (at most {MAX_WORST:g})",
        ),
    )
