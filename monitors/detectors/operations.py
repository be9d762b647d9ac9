"""Did our own operations leave the pixels alone? Block means before and after tell.

Twice on a frame's way: scaled and turned into RGB (`made`, `differences`), and sent from the
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
from monitors.detectors.places import evenly_spread
from monitors.labels import Detector, Fault, Grade, Origin

MAX_MEAN = 1.5  # grey levels, over all numbers of a signature
MAX_WORST = 10.0  # grey levels, of any one number
PICTURE_MEAN, PICTURE_WORST = 1.2, 8.0  # the same of `altered`; clean ones stay under 0.8 and 5
BLOCKS = 8  # per side
_LUMA = np.array([77, 150, 29], np.int32)  # BT.601, of 256
_BLUE = np.array([-43, -85, 128], np.int32)
_RED = np.array([128, -107, -21], np.int32)
_SAFE_ROWS = 257  # of 255 each, in sixteen bits
LEAST_SIDE = 2 * BLOCKS  # of a picture that can be compared,
_POINTS = 8 * BLOCKS  # per side, that are looked at
LEAST_MIXED_SIDE = _POINTS  # and of one whose rows were mixed
_ROUNDED_DOWN = np.array((1.5, 0, 0), np.float32)  # levels of luma: swscale cuts fractions off
_CLIP_SLACK = 2.0  # what clipping takes is told by some points
_SHAPE = _POINTS, _POINTS

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
    rows, columns = evenly_spread(height, _POINTS), evenly_spread(width, _POINTS)
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


class Made(NamedTuple):
    """Numbers of a decoded frame and of the picture made of it: block means of the coded planes
    and of the RGB picture, both `(8, 8, 3)`, and 64x64 points of the planes `(2, 64, 64, 3)`:
    luma with the chroma of its own place, and of a place that scaling may mix into it. `edges`:
    for each plane, how much of a block scaling may mix with what lies around it."""

    coded: Means
    points: Samples
    got: Means
    depth: int
    edges: tuple[float, ...]


def comparable(y: Samples, u: Samples, depth: int, picture: NDArray[np.uint8], turned: int) -> bool:
    """Whether `made` takes a picture: where rows were mixed, small blocks show little else."""
    in_rows = _row_by_row(y, u, depth, np.rot90(picture, -(turned // 90)))
    least = LEAST_SIDE if in_rows else LEAST_MIXED_SIDE
    return min(*picture.shape[:2], *y.shape, *u.shape) >= least


def made(
    y: Samples, u: Samples, v: Samples, depth: int, picture: NDArray[np.uint8], turned: int
) -> Made:
    """Gathers the numbers of one frame, planes of `depth` bits, and its RGB picture `(height,
    width, 3)`. `turned`: degrees by which the frame had to be turned to stand upright.

    Raises `ValueError` where a side is too short to have blocks that tell something.
    """
    if not comparable(y, u, depth, picture, turned):
        raise ValueError(f"{picture.shape[1]}x{picture.shape[0]} is too small to be compared")
    lying = np.rot90(picture, -(turned // 90))
    rows = evenly_spread(y.shape[0], _POINTS) if _row_by_row(y, u, depth, lying) else None
    of_chroma = None if rows is None else rows * u.shape[0] // y.shape[0]
    coded = np.stack([_means(y, rows), _means(u, of_chroma), _means(v, of_chroma)], axis=-1)
    of_luma, *places = _scattered(y.shape, u.shape, lying.shape[:2], rows is not None)
    points = [np.stack((y[of_luma], u[place], v[place]), axis=-1) for place in places]
    edges = tuple(_edges_share(*plane.shape) if rows is None else 0.0 for plane in (y, u, v))
    return Made(coded, np.stack(points), _means(lying, rows), depth, edges)


def _edges_share(height: int, width: int) -> float:
    """A picture drawn anew in about its own size gives up to a quarter of a sample across each
    edge of a block. Samples there differ by twice what points differ from their mean: of each
    axis, two edges make that one sample's worth."""
    return BLOCKS / height + BLOCKS / width


def _row_by_row(y: Samples, u: Samples, depth: int, picture: NDArray[np.uint8]) -> bool:
    """Whether each row of the picture was made of one row of every plane, so that a few rows
    tell enough; elsewhere swscale mixes rows."""
    return depth == 8 and picture.shape[:2] == y.shape and y.shape[0] == 2 * u.shape[0]


def differences(pictures: Sequence[Made], colour: Colour) -> list[Difference]:
    """How far each picture is from the frame it was made of; all of one depth."""
    if not pictures:
        return []
    eight_bits = np.float32(1 << pictures[0].depth - 8)
    levels = _levels(np.stack([one.coded for one in pictures]) / eight_bits, colour)
    points = np.stack([one.points for one in pictures]).astype(np.float32) / eight_bits
    points = _levels(points, colour)
    down, up = _clipping(points, colour)
    mixed = _mixed(points, np.array([one.edges for one in pictures], np.float32))
    got = np.stack([one.got for one in pictures]) @ _matrices(colour)[0].T
    apart = np.maximum(levels + down - _ROUNDED_DOWN - got, got - levels - up) - mixed
    apart = np.maximum(apart, 0).reshape(len(pictures), -1)
    return [Difference(float(one.mean()), float(one.max())) for one in apart]


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


_Place = tuple[NDArray[np.intp], NDArray[np.intp]]  # rows, columns


@lru_cache
def _scattered(
    luma: tuple[int, int], chroma: tuple[int, int], picture: tuple[int, int], in_rows: bool
) -> tuple[_Place, _Place, _Place]:
    """Places in a plane of luma and, twice, in one of chroma, each `(64, 64)`; see `Made`.

    A place is drawn at random in each of as many cells, anew in each process: no pattern can
    keep in step with them, and nobody can draw one that hides from them. `in_rows`: only in the
    rows that are compared.
    """
    random = np.random.default_rng()
    of_luma: list[NDArray[np.intp]] = []
    own: list[NDArray[np.intp]] = []
    mixed: list[NDArray[np.intp]] = []
    for cells, full, half, scaled in zip(np.indices(_SHAPE), luma, chroma, picture, strict=True):
        place = ((cells + random.random(_SHAPE)) * full / _POINTS).astype(np.intp)
        if in_rows and not of_luma:
            place = np.broadcast_to(evenly_spread(full, _POINTS)[:, None], _SHAPE)
        reach = -(-full // scaled)  # samples of chroma
        step = random.integers(-reach, reach, _SHAPE, endpoint=True)
        of_luma.append(place)
        own.append(place * half // full)
        mixed.append(np.clip(own[-1] + step, 0, half - 1))
    return (of_luma[0], of_luma[1]), (own[0], own[1]), (mixed[0], mixed[1])


def _means(plane: Samples, rows: NDArray[np.intp] | None) -> Means:
    """Block means `(8, 8)` of a plane, or `(8, 8, channels)` of a picture; of these rows of it,
    or of all. Blocks may end inside a sample, so that they are the same at every size."""
    height, width = int(plane.shape[0]), int(plane.shape[1])
    if rows is None:
        ends, parts = _edges(height)
        sums = np.stack([_sum_of_rows(plane[top:end]) for top, end in pairwise(ends)])
        if parts.any():
            sums = _shared(sums.astype(np.float32), plane[ends[1:-1]], parts)
        deep = height / BLOCKS
    else:
        seen = plane[rows].reshape(BLOCKS, -1, *plane.shape[1:])
        sums = seen.sum(1, dtype=np.uint16 if plane.dtype == np.uint8 else np.uint32)
        deep = len(rows) / BLOCKS
    ends, parts = _edges(width)
    totals: Means = np.add.reduceat(sums, ends[:-1], axis=1, dtype=np.float32)
    if parts.any():
        totals = _shared(totals.swapaxes(0, 1), sums[:, ends[1:-1]].swapaxes(0, 1), parts)
        totals = totals.swapaxes(0, 1)
    return np.divide(totals, np.float32(deep * width / BLOCKS), dtype=np.float32)


@lru_cache
def _edges(length: int) -> tuple[NDArray[np.intp], Means]:
    """Where the blocks of a side begin and end, in whole samples, and how much of the sample
    at each inner edge is still the block's before it."""
    ends = np.arange(BLOCKS + 1) * length
    return ends // BLOCKS, (ends[1:-1] % BLOCKS / BLOCKS).astype(np.float32)


def _shared(blocks: Means, at_edges: NDArray[Any], parts: Means) -> Means:
    """Sums of blocks along the first axis, each with its part of the samples at its edges."""
    given: Means = at_edges * parts.reshape(-1, *[1] * (at_edges.ndim - 1))
    blocks[:-1] += given
    blocks[1:] -= given
    return blocks


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


def _clipping(points: Means, colour: Colour) -> tuple[Means, Means]:
    """What clipping may take from and add to each block mean `(n, 8, 8, 3)`; `points` `(n, 2,
    64, 64, 3)` in levels. Mixing points before they are clipped never takes more of a colour at
    one end of its range than clipping each; what both ends take may cancel out, so each counts
    alone. An edge may hide between points: a block may have as much of it as its neighbours."""
    matrix, inverse = _matrices(colour)
    gains, losses = np.maximum(matrix, 0).T, np.minimum(matrix, 0).T
    rgb = points @ inverse.T
    down = np.zeros((len(points), BLOCKS, BLOCKS, 3), np.float32)
    up = down.copy()
    wild = (rgb.min((1, 2, 3, 4)) < 0) | (rgb.max((1, 2, 3, 4)) > 255)
    for one in np.flatnonzero(wild):
        under = _in_blocks(np.maximum(-rgb[one], 0))
        over = _in_blocks(np.maximum(rgb[one] - 255, 0))
        up[one] = _around(under @ gains - over @ losses).max(0) * _CLIP_SLACK
        down[one] = _around(under @ losses - over @ gains).min(0) * _CLIP_SLACK
    return down, up


def _mixed(points: Means, edges: Means) -> Means:
    """What scaling may mix into each block mean `(n, 8, 8, 3)`: so much of how far its points
    usually are from their mean. `edges` `(n, 3)`."""
    mixed = np.zeros((len(points), BLOCKS, BLOCKS, 3), np.float32)
    for one in np.flatnonzero(edges.any(1)):
        own = points[one, 0]
        variance = _in_blocks(np.square(own)) - np.square(_in_blocks(own))
        mixed[one] = np.sqrt(np.maximum(variance, 0)) * edges[one]
    return mixed


def _in_blocks(points: Means) -> Means:
    """Block means `(..., 8, 8, 3)` of points `(..., 64, 64, 3)`; rows first, which is quick."""
    sums = points.reshape(*points.shape[:-3], BLOCKS, 8, -1).sum(-2)
    totals: Means = sums.reshape(*sums.shape[:-1], BLOCKS, 8, 3).sum(-2)
    return np.divide(totals, np.float32(64), dtype=np.float32)


def _around(blocks: Means) -> Means:
    """Each block and its neighbours, along the first axis; beyond the picture there is nothing."""
    padded = np.pad(blocks, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return np.concatenate(
        [padded[:, i : i + BLOCKS, j : j + BLOCKS] for i in range(3) for j in range(3)]
    )
