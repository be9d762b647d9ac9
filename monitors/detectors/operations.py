"""Did our own operations leave the pixels alone? Block means before and after tell.

Twice on a frame's way: scaled and turned into RGB (`Before`, `altered`), and sent from the
gateway to the engine (`signature`, `compare`). The same picture gives the same numbers, whatever
it shows; a swapped plane, a wrong stride, range or turn, or a lost part does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitors.contract import FaultFound
from monitors.labels import Detector, Fault, Grade, Origin

MAX_MEAN = 1.5  # grey levels, over all numbers of a signature
MAX_WORST = 10.0  # grey levels, of any one number
PICTURE_MEAN, PICTURE_WORST = 1.2, 8.0  # the same of `altered`; clean ones stay under 0.8 and 5
BLOCKS = 8  # per side
_LUMA = np.array([77, 150, 29], np.int32)  # BT.601, of 256
_BLUE = np.array([-43, -85, 128], np.int32)
_RED = np.array([128, -107, -21], np.int32)
_SAFE_ROWS = 257  # of 255 each, in sixteen bits
LEAST_SIDE = 2 * BLOCKS  # of a picture that can be compared
_ROUNDED_DOWN = np.array((1.5, 0, 0), np.float32)  # levels of luma: swscale cuts fractions off
_CLIP_SLACK = 2.0  # what clipping takes is told by few points

Samples = NDArray[np.uint8 | np.uint16]
Means = NDArray[np.float32]


class Difference(NamedTuple):
    """Distance of two signatures in grey levels: over all numbers, and of the worst one."""

    mean: float
    worst: float


# ---------------------------------------------------------------- from the gateway to the engine
def signature(frames: NDArray[np.uint8]) -> tuple[int, ...]:
    """8x8 luma block means and two chroma means of every frame; 66 integers a frame, in order.

    `frames`: RGB `(n, height, width, 3)`. Looks at 64x64 points of each frame, so it costs the
    same at any size. Raises `ValueError` on another shape or type.
    """
    if frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != np.uint8:
        raise ValueError(f"want uint8 (n, height, width, 3), got {frames.dtype} {frames.shape}")
    n, height, width = frames.shape[:3]
    points = frames[:, _spread(height)[:, None], _spread(width)].astype(np.int32)
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


def arrival_faults(mean: float, worst: float | None = None) -> tuple[FaultFound, ...]:
    """Verdict on the frames that reached the engine; `worst` is None where only the mean was
    carried."""
    if mean <= MAX_MEAN and (worst is None or worst <= MAX_WORST):
        return ()
    told = "unknown" if worst is None else f"{worst:.1f}"
    detail = f"sent and received differ: mean {mean:.2f} (at most {MAX_MEAN:g}), "
    return (
        _found("pixels_changed", f"{detail}worst {told} (at most {MAX_WORST:g})", mean, MAX_MEAN),
    )


# ---------------------------------------------------------------- from decoded frame to picture
@dataclass(frozen=True)
class Colour:
    """How YUV means colour: the weights of red and blue in luma, and whether 0 is black."""

    red: float
    blue: float
    full_range: bool


_WEIGHTS = {1: (0.2126, 0.0722), 7: (0.212, 0.087), 9: (0.2627, 0.0593)}
_USUAL = 0.299, 0.114  # BT.601, also where nothing is said


def colour_of(matrix: int, full_range: bool) -> Colour:
    """`matrix`: the code of ITU-T H.273, 8.3 (1 is BT.709, 9 BT.2020)."""
    return Colour(*_WEIGHTS.get(matrix, _USUAL), full_range)


class Before(NamedTuple):
    """Block means of a decoded frame `(8, 8, 3)`, luma and chroma as the picture should have
    them in grey levels: at least and at most, for RGB cannot show every YUV and clips it."""

    least: Means
    most: Means


def before(y: Samples, u: Samples, v: Samples, depth: int, colour: Colour, kept: bool) -> Before:
    """The signature of a decoded frame. `kept`: the picture will have the frame's own size.

    Raises `ValueError` for a frame too small to have blocks.
    """
    rows = _rows(y.shape[0], kept)
    of_chroma = None if rows is None else rows * u.shape[0] // y.shape[0]
    coded = np.stack([_means(y, rows), _means(u, of_chroma), _means(v, of_chroma)], axis=-1)
    levels = _levels(coded / np.float32(1 << depth - 8), colour)
    down, up = _clipped(y, u, v, depth, colour)
    return Before(levels + down - _ROUNDED_DOWN, levels + up)


def altered(
    sent: Before, picture: NDArray[np.uint8], turned: int, colour: Colour, kept: bool
) -> Difference:
    """How far an RGB picture `(height, width, 3)` is from the frame it was made of.

    `turned`: degrees by which the frame had to be turned to stand upright.
    """
    lying = np.rot90(picture, -(turned // 90))
    got = _means(lying, _rows(lying.shape[0], kept)) @ _matrices(colour)[0].T
    apart = np.maximum(np.maximum(sent.least - got, got - sent.most), 0)
    return Difference(float(apart.mean()), float(apart.max()))


def picture_faults(seen: Sequence[tuple[float, Difference]]) -> tuple[FaultFound, ...]:
    """Verdict on the pictures made of a clip's frames: when each is shown, how far it is off."""
    off = [(at_ms, d) for at_ms, d in seen if d.mean > PICTURE_MEAN or d.worst > PICTURE_WORST]
    if not off:
        return ()
    at_ms, first = off[0]
    detail = (
        f"{len(off)} of {len(seen)} pictures are not the frames they were made of; at "
        f"{at_ms:.0f} ms mean {first.mean:.2f} (at most {PICTURE_MEAN:g}), worst "
        f"{first.worst:.1f} (at most {PICTURE_WORST:g}) grey levels"
    )
    return (_found("picture_altered", detail, first.mean, PICTURE_MEAN, at_ms),)


def _found(
    rule: str, detail: str, value: float, limit: float, at_ms: float | None = None
) -> FaultFound:
    return FaultFound(
        fault=Fault.VIDEO_CORRUPT,
        grade=Grade.HARD,
        origin=Origin.PIPELINE,
        detector=Detector.OPERATIONS,
        rule=rule,
        detail=detail,
        at_ms=at_ms,
        value=value,
        limit=limit,
        unit="levels",
    )


def _rows(height: int, kept: bool) -> NDArray[np.intp] | None:
    """Rows that are looked at: all where the size changes, else eight of each block."""
    return _spread(height) if kept else None


def _spread(length: int, a_block: int = 8) -> NDArray[np.intp]:
    """Evenly spread positions on a side, so many in each block."""
    points = a_block * BLOCKS
    return (2 * np.arange(points) + 1) * length // (2 * points)


def _means(plane: Samples, rows: NDArray[np.intp] | None) -> Means:
    """Block means `(8, 8)` of a plane, or `(8, 8, channels)` of a picture; of these rows of it,
    or of all."""
    height, width = int(plane.shape[0]), int(plane.shape[1])
    if min(height, width) < LEAST_SIDE:
        raise ValueError(f"{width}x{height} is too small to have {BLOCKS}x{BLOCKS} blocks")
    edges: NDArray[np.intp] = np.arange(BLOCKS + 1) * width // BLOCKS
    if rows is None:
        bounds: NDArray[np.intp] = np.arange(BLOCKS + 1) * height // BLOCKS
        bands = [plane[top:end] for top, end in pairwise(bounds)]
        sums, deep = np.stack([_sum_of_rows(band) for band in bands]), np.diff(bounds)
    else:
        seen = plane[rows].reshape(BLOCKS, -1, *plane.shape[1:])
        sums, deep = seen.sum(1, dtype=np.uint32), np.full(BLOCKS, len(rows) // BLOCKS)
    totals: Means = np.add.reduceat(sums, edges[:-1], axis=1, dtype=np.float32)
    counts: Means = (deep[:, None] * np.diff(edges)).astype(np.float32)
    return np.divide(totals, counts if plane.ndim == 2 else counts[..., None], dtype=np.float32)


def _sum_of_rows(band: Samples) -> NDArray[np.uint16 | np.uint32]:
    """Over the first axis. Numpy is quick at this where a row is one run of small numbers."""
    wide = np.uint16 if band.dtype == np.uint8 and len(band) <= _SAFE_ROWS else np.uint32
    if band.ndim == 3 and band.flags.c_contiguous:
        return band.reshape(len(band), -1).sum(0, dtype=wide).reshape(band.shape[1:])
    return band.sum(0, dtype=wide)


def _levels(coded: Means, colour: Colour) -> Means:
    """Coded luma and chroma `(..., 3)` to grey levels: black 0, white 255, no colour 0."""
    if colour.full_range:
        return coded - np.array((0, 128, 128), np.float32)
    scale = np.array((255 / 219, 255 / 224, 255 / 224), np.float32)
    return (coded - np.array((16, 128, 128), np.float32)) * scale


@lru_cache
def _matrices(colour: Colour) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """RGB to luma, blue and red difference, and back."""
    luma = np.array((colour.red, 1 - colour.red - colour.blue, colour.blue))
    blue = (np.array((0, 0, 1)) - luma) / (2 * (1 - colour.blue))
    red = (np.array((1, 0, 0)) - luma) / (2 * (1 - colour.red))
    matrix = np.stack((luma, blue, red))
    return matrix.astype(np.float32), np.linalg.inv(matrix).astype(np.float32)


def _clipped(y: Samples, u: Samples, v: Samples, depth: int, colour: Colour) -> tuple[Means, Means]:
    """What clipping may take from and add to each block mean `(8, 8, 3)`. So few points tell it
    that an edge may hide between them: a block has as much of it as its neighbours."""
    points = np.stack(
        [p[_spread(p.shape[0], 4)].take(_spread(p.shape[1], 4), 1) for p in (y, u, v)], -1
    )
    matrix, inverse = _matrices(colour)
    rgb = _levels(points.astype(np.float32) / np.float32(1 << depth - 8), colour) @ inverse.T
    lost = np.clip(rgb, 0, 255) - rgb
    nothing = np.zeros((BLOCKS, BLOCKS, 3), np.float32)
    if not lost.any():
        return nothing, nothing
    change = (lost @ matrix.T).reshape(BLOCKS, 4, BLOCKS, 4, 3).mean((1, 3)) * _CLIP_SLACK
    around = np.pad(change, ((1, 1), (1, 1), (0, 0)))
    near = np.stack([around[i : i + BLOCKS, j : j + BLOCKS] for i in range(3) for j in range(3)])
    return np.minimum(near.min(0), 0), np.maximum(near.max(0), 0)
