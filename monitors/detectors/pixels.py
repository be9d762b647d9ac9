"""Judges decoded frames by what they show: green, grey, leaning, frozen, and softer signs.

Some frames are looked at closely (`look`), of every frame a glimpse is kept: its luma in 18x32
cells. No reference is needed, so only what no camera makes is hard. Luma and chroma are judged
as coded, in eight bits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from monitors.contract import FaultFound
from monitors.detectors.places import evenly_spread
from monitors.labels import Detector, Fault, Grade, Origin

MOST_GREEN = 0.02  # of the area: luma and chroma of 0 are no colour at all
MOST_GREY = 0.15  # of the rows, all of one exact mid grey: what a decoder fills in
MOST_LEAN = 0.5  # of the rows that fit their neighbour only when moved
LEAST_LEAN = 6  # samples a row; a drawing may lean by less
MOST_STILL = 20  # frames alike though their packets are those of a moving picture
MOVED_BEFORE, OF_STEPS = 3, 10  # steps that moved, of those before, where a picture freezes
STILL_BYTES = 100  # a packet of a still picture has at most so many,
STILL_PIXELS_A_BYTE = 2500  # or one for so many pixels,
STILL_SHARE = 0.25  # or this share of one that moved before: what stands still is still refined
MOST_MOSAIC = 0.1  # of the block edges, jumps that the picture has nowhere else
MOST_SMEAR = 0.4  # of the rows, copies of their neighbour
SUDDEN_BLACK_FALL = 25.0  # grey levels from one frame to the next
_LIKE_ITSELF = 0.5  # correlation of a row moved
_BLACK, _FLAT = 24.0, 3.0
_SAME_SCENE = 16.0  # grey levels between frames, where nothing was cut
_FILLED = 4.0  # grey levels between a picture and what fills it
_ROWS, _COLUMNS = 45, 80
_JUMP = 24  # grey levels

Samples = NDArray[np.uint8 | np.uint16]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Look:
    """What one frame shows. Shares of its area or rows, 0 to 1."""

    at_ms: float
    green: float
    grey: float
    lean: float
    mosaic: float
    smear: float
    print: int  # equal for equal luma


@dataclass(frozen=True, eq=False)
class Glanced:
    """Every frame of a clip: when it is shown `(n,)`, its luma cells `(n, rows, columns)`, and
    how many bytes it was coded in `(n,)`, NaN where that is unknown or tells nothing of motion,
    as in a key frame; `pixels` of a frame."""

    times_ms: NDArray[np.float64]
    grids: Bytes
    coded_bytes: NDArray[np.float64]
    pixels: int


# ---------------------------------------------------------------- one frame
def look(y: Samples, u: Samples, v: Samples, depth: int, at_ms: float) -> Look:
    """Looks closely at one frame: its planes, of `depth` bits."""
    rows, columns = (
        evenly_spread(side, min(count, side))
        for side, count in zip(u.shape, (_ROWS, _COLUMNS), strict=True)
    )
    blue, red = (_eight(_points(plane, rows, columns), depth) for plane in (u, v))
    down, across = -(-y.shape[0] // u.shape[0]), -(-y.shape[1] // u.shape[1])
    luma = _eight(_points(y, rows * down, columns * across), depth)
    return Look(
        at_ms=at_ms,
        green=_green(luma, blue, red),
        grey=_grey(luma, blue, red),
        lean=_lean(y),
        mosaic=_mosaic(y[::16], depth),
        smear=_smear(y),
        print=crc32(luma.tobytes()),
    )


def _points(plane: Samples, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Samples:
    taken: Samples = plane[rows]  # take() would copy a plane that has a margin
    return taken.take(columns, 1)


def _eight(samples: Samples, depth: int) -> Bytes:
    return samples.astype(np.uint8) if depth == 8 else (samples >> (depth - 8)).astype(np.uint8)


def _green(luma: Bytes, blue: Bytes, red: Bytes) -> float:
    dark = luma <= 4
    return float((dark & (blue <= 8) & (red <= 8)).mean()) if dark.any() else 0.0


def _grey(luma: Bytes, blue: Bytes, red: Bytes) -> float:
    middle = _is_mid_grey(luma)
    if not middle.any():
        return 0.0
    middle &= _is_mid_grey(blue) & _is_mid_grey(red)
    return float((middle.mean(1) > 0.985).mean())


def _is_mid_grey(samples: Bytes) -> NDArray[np.bool_]:
    return samples - np.uint8(127) <= 2  # wraps round: 127 to 129


def _lean(y: Samples) -> float:
    """The share of rows that fit the row below best when moved, all by the same distance, and the
    next but one when moved twice as far. The rows of an interlaced picture do not, and a pattern
    that fits at many distances tells nothing."""
    height, width = int(y.shape[0]), int(y.shape[1])
    length = 1 << min(8, width.bit_length() - 1)
    if height < 48 or length < 64:
        return 0.0
    last = height - height // 12 - 3
    rows: NDArray[np.intp] = np.linspace(height // 12, last, 16).astype(np.intp)
    above, below = (y[at, :length].astype(np.float32) for at in (rows, rows + 1))
    if (
        np.abs(above - below).mean()
        < 0.6 * np.abs(above[:, LEAST_LEAN:] - above[:, :-LEAST_LEAN]).mean()
    ):
        return 0.0  # as in most pictures: the row below is nearer than what stands beside
    upper, lower = _centred(above), _centred(below)
    power = np.sqrt((upper * upper).sum(1) * (lower * lower).sum(1)) + 1e-3
    rough = power > 30.0 * length
    fit = (upper * lower).sum(1) / power
    if rough.sum() < 6 or np.median(fit[rough]) > 0.9:
        return 0.0
    fits = _fits(upper[rough], lower[rough])
    mean = fits.mean(0)
    best = int(mean.argmax())
    if min(best, length - best) < LEAST_LEAN or _repeats(upper[rough]):
        return 0.0
    next_but_one = _fits(upper[rough], _centred(y[rows + 2, :length].astype(np.float32))[rough])
    twice = next_but_one[:, np.arange(2 * best - 2, 2 * best + 3) % length].max(1)
    near = fits[:, [0, 1, 2, -1, -2]].max(1)
    leans = (fits[:, best] > near + 0.05) & (twice > next_but_one[:, [0, 1, 2, -1, -2]].max(1))
    return float(leans.mean())


def _fits(upper: NDArray[np.float32], lower: NDArray[np.float32]) -> NDArray[np.float64]:
    """Correlation of centred rows with others, by how far these are moved round."""
    length = upper.shape[1]
    power = np.sqrt((upper * upper).sum(1) * (lower * lower).sum(1)) + 1e-3
    spectrum = np.fft.rfft(upper) * np.conj(np.fft.rfft(lower))
    return np.fft.irfft(spectrum, n=length) / power[:, None]


def _repeats(rows: NDArray[np.float32]) -> bool:
    """Whether rows fit themselves again when moved, as stripes do: then nothing tells how far."""
    fit = _fits(rows, rows).mean(0)
    peaks = (fit >= np.roll(fit, 1)) & (fit >= np.roll(fit, -1))
    peaks[0] = False
    return bool((fit[peaks] > _LIKE_ITSELF).any())


def _centred(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows - rows.mean(1, keepdims=True)


def _mosaic(rows: Samples, depth: int) -> float:
    """How much oftener brightness jumps between blocks of 16 than elsewhere along the rows."""
    edges: NDArray[np.intp] = np.arange(16, int(rows.shape[1]) - 8, 16)
    if not len(edges):
        return 0.0
    whole: Samples = rows.copy()
    columns = np.concatenate((edges, edges - 4, edges + 5))
    step = whole.take(columns, 1).astype(np.int16) - whole.take(columns - 1, 1)
    jumps = np.abs(step) > (_JUMP << (depth - 8))
    between, inside, beside = jumps.mean(0).reshape(3, -1).mean(1)
    return max(0.0, float(between - 0.5 * (inside + beside)))


def _smear(y: Samples) -> float:
    upper, lower = y[:-1:8, ::4], y[1::8, ::4]
    count = min(len(upper), len(lower))
    if not count or upper.shape[1] < 2:
        return 0.0
    upper, lower = upper[:count], lower[:count]
    copied = (upper == lower).mean(1) > 0.98
    if not copied.any():
        return 0.0
    rough = np.abs(np.diff(upper[copied].astype(np.int32), axis=1)).mean(1) > 2
    return float(rough.sum() / count)


# ---------------------------------------------------------------- one clip
def faults(looks: Sequence[Look], glanced: Glanced) -> tuple[FaultFound, ...]:
    """Damage in the decoded pictures of a clip, each rule once, where it is first seen."""
    return (
        *_over(
            "green", "area that is no colour", MOST_GREEN, ((one.at_ms, one.green) for one in looks)
        ),
        *_over("grey", "rows filled in grey", MOST_GREY, _grey_onsets(looks, glanced)),
        *_over(
            "lean",
            "rows that fit when moved",
            MOST_LEAN,
            ((one.at_ms, one.lean) for one in looks),
            Grade.SOFT if all(one.lean > MOST_LEAN for one in looks) else Grade.HARD,
        ),
        *_freeze(looks, glanced),
        *_soft(looks),
        *_sudden_black(glanced),
    )


def _over(
    rule: str,
    of_what: str,
    limit: float,
    shares: Iterator[tuple[float, float]],
    grade: Grade = Grade.HARD,
) -> Iterator[FaultFound]:
    over = [(at_ms, share) for at_ms, share in shares if share > limit]
    if over:
        worst = max(share for _, share in over)
        detail = f"{worst:.0%} {of_what}, in {len(over)} frames; at most {limit:.0%}"
        yield _found(rule, detail, over[0][0], worst, limit, "ratio", grade)


def _grey_onsets(looks: Sequence[Look], glanced: Glanced) -> Iterator[tuple[float, float]]:
    """Looks with grey rows that came over a picture whose rest went on: a slide or a wall is
    grey from its first frame, and all of the picture changes with it."""
    grey = [one for one in looks if one.grey > MOST_GREY]
    if not grey:
        return
    flat: NDArray[np.bool_] = np.all(_is_mid_grey(glanced.grids), axis=2)
    for one in grey:
        if _came_over(glanced, flat, one.at_ms):
            yield one.at_ms, one.grey


def _came_over(glanced: Glanced, flat: NDArray[np.bool_], at_ms: float) -> bool:
    """`flat`: which rows of cells of each frame are all grey, `(n, rows)`."""
    at = int(np.searchsorted(glanced.times_ms, at_ms, side="right")) - 1
    if at < 1:
        return False
    filled: NDArray[np.bool_] = flat[at]
    before = np.flatnonzero(~np.all(flat[: at + 1, filled], axis=1))
    if not filled.any() or filled.all() or not len(before):
        return False
    last = int(before[-1])
    then, now = (glanced.grids[i].astype(np.float32) for i in (last, last + 1))
    change = np.abs(now - then)
    rest_went_on = float(change[~filled].mean()) < max(
        _SAME_SCENE, 1.5 * _usual(glanced, last, filled)
    )
    return rest_went_on and float(change[filled].mean()) > _FILLED


def _usual(glanced: Glanced, last: int, filled: NDArray[np.bool_]) -> float:
    """How much the rest of the picture changed from frame to frame up to `last`."""
    rest = glanced.grids[max(0, last - 5) : last + 1, ~filled].astype(np.float32)
    if len(rest) < 2:
        return 0.0
    return float(np.median(np.abs(np.diff(rest, axis=0)).mean((1, 2))))


def _freeze(looks: Sequence[Look], glanced: Glanced) -> Iterator[FaultFound]:
    """Frames alike while their packets stay as large as those of a picture that moves.

    Where nothing moved before, an encoder may only fill up its rate: that shows, and is not hard.
    """
    if len(glanced.grids) <= MOST_STILL:
        return
    alike = (glanced.grids[1:] == glanced.grids[:-1]).all((1, 2))
    ends = np.flatnonzero(~np.concatenate(([False], alike, [False])))
    least = max(float(STILL_BYTES), glanced.pixels / STILL_PIXELS_A_BYTE)
    for start, end in pairwise(ends):  # frames start to end - 1 are alike
        sizes = glanced.coded_bytes[start + 1 : end]
        if end - start <= MOST_STILL or np.isnan(sizes).all():
            continue
        before = slice(max(0, start - 1 - OF_STEPS), max(0, start - 1))
        moved = glanced.coded_bytes[1:][before][~alike[before]]
        limit = least
        if not np.isnan(moved).all():
            limit = max(least, STILL_SHARE * float(np.nanmedian(moved)))
        size = float(np.nanmedian(sizes))
        first, last = glanced.times_ms[start], glanced.times_ms[end - 1]
        prints = {one.print for one in looks if first <= one.at_ms <= last}
        if size > limit and len(prints) <= 1:
            detail = (
                f"{end - start} frames alike until {last:.0f} ms in packets of {size:.0f} bytes; "
                f"a still picture takes {limit:.0f}"
            )
            grade = Grade.HARD if len(moved) >= MOVED_BEFORE else Grade.SOFT
            yield _found("freeze", detail, float(first), size, limit, "bytes", grade)
            return


def _soft(looks: Sequence[Look]) -> Iterator[FaultFound]:
    """Signs that a cut or a drawing can show too."""
    for then, now in pairwise(looks):
        if now.mosaic > max(MOST_MOSAIC, 3 * then.mosaic):
            detail = f"{now.mosaic:.0%} more jumps between blocks than inside"
            yield _found("mosaic", detail, now.at_ms, now.mosaic, MOST_MOSAIC, "ratio", Grade.SOFT)
            break
    for then, now in pairwise(looks):
        if now.smear > MOST_SMEAR and then.smear < 0.05:
            detail = f"{now.smear:.0%} of the rows copy their neighbour"
            yield _found("smear", detail, now.at_ms, now.smear, MOST_SMEAR, "ratio", Grade.SOFT)
            break


def _sudden_black(glanced: Glanced) -> Iterator[FaultFound]:
    if len(glanced.grids) < 2:
        return
    cells = glanced.grids.reshape(len(glanced.grids), -1)
    mean = cells.mean(1, dtype=np.float32)
    fall = mean[:-1] - mean[1:]
    candidates = np.flatnonzero((mean[1:] < _BLACK) & (fall > SUDDEN_BLACK_FALL)) + 1
    black = [int(i) for i in candidates if cells[i].std() < _FLAT]
    if black:
        first = black[0]
        at_ms, fell = float(glanced.times_ms[first]), float(fall[first - 1])
        detail = f"black within a frame, {len(black)} times; {fell:.0f} grey levels"
        yield _found("sudden_black", detail, at_ms, fell, SUDDEN_BLACK_FALL, "levels", Grade.SOFT)


def _found(
    rule: str, detail: str, at_ms: float, value: float, limit: float, unit: str,
    grade: Grade = Grade.HARD,
) -> FaultFound:  # fmt: skip
    return FaultFound(
        fault=Fault.VIDEO_CORRUPT,
        grade=grade,
        origin=Origin.INPUT,
        detector=Detector.PIXELS,
        rule=rule,
        detail=f"{detail}, first at {at_ms:.0f} ms",
        at_ms=at_ms,
        value=value,
        limit=limit,
        unit=unit,
    )
