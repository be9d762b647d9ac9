"""Judges the voice against the mouth: does something in the picture darken as the voice sounds?

An open mouth is dark, so the part of the picture where the mouth is follows the loudness of the
voice, and the lag at which it follows best is how late the sound is. Nothing here knows a face:
the part is found by how well it follows. The best of many parts always follows a little, at some
lag, so that alone says nothing. What tells is that one lag stands out from all others, which are
as many draws of the same chance with the same picture and the same voice.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from monitors.contract import FaultFound
from monitors.detectors.bt1359 import ACCEPTABLE_MS, DETECTABLE_MS, beyond
from monitors.detectors.finding import Abstained, Verdict
from monitors.labels import Detector, Fault, Grade, Origin

STEP_MS = 40.0
SHORTEST_MS = 4000.0  # in less, chance finds a lag as good as the true one
WINDOW_MS = 20_000.0  # a longer clip is judged in parts
FURTHEST_MS = 2000.0  # an offset beyond it cannot be told
SLACK_MS = 20.0  # how far off an estimate may be

_SLOW_FRAMES = 25  # what changes over more than a second is no speech
_LEAST_LUMA = 1.0  # standard deviation, grey levels: what varies by less does not move
_LEAST_DB = 12.0  # between loud and quiet moments of speech
_LEAST_LEVEL_DB = -55.0  # of the loud ones, re full scale
_RANGE_DB = 35.0  # what is quieter than the loudest moment by more is silence
_NEAR_FRAMES = 8  # lags so near to the best one are its own slopes

_CERTAIN_LEAD = 4.5  # 3,600 voices beside pictures not theirs: 3.8 at most, within `FURTHEST_MS`
_LIKELY_LEAD = 3.8  # worth showing

_ALIKE = 0.7  # of the best fit
_LARGEST_MOUTH = 0.1  # of the picture: a lit frame around whoever speaks is more
_AROUND = 3  # cells; a face moves around its mouth, a screen around a meter does not
_STILL_SHARE = 0.02  # of the moments: a cell that changes less often stands still
_TOO_WELL = 0.93  # no mouth follows its voice so well: 0.88 at most
_MOST_FIT = 0.999  # Fisher's scale has no end at 1

Signal = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LipSignals:
    """Sound and picture of one clip, every `STEP_MS` from time 0 on.

    `level_db` `(n,)`: loudness re full scale, around each moment. `luma` `(n, rows, columns)`: grey
    levels of the picture on screen at it. `fps`: how many pictures a second there really were.
    """

    level_db: Signal
    luma: NDArray[np.uint8]
    fps: float


@dataclass(frozen=True)
class Estimate:
    """How far the voice is behind the mouth, ms (early negative), and how sure that is.

    `fit`: correlation at that lag. `lead`: how far it is above the best fit at any other lag, on
    Fisher's scale, in units of its error if every moment were a draw of its own. They are not, and
    the best part was chosen, so a lead has no probability by itself: it was calibrated.
    """

    offset_ms: float
    fit: float
    lead: float


def judge(signals: LipSignals) -> Verdict:
    """Hard beyond BT.1359 acceptance where it is certain; soft beyond what viewers detect, or
    where it is only likely. Abstains where no part of the clip can tell."""
    steps = len(signals.level_db)
    if steps * STEP_MS < SHORTEST_MS:
        return Abstained(f"shorter than {SHORTEST_MS / 1000:.0f} s")
    if signals.fps < 12.0:
        return Abstained(f"{signals.fps:.0f} pictures a second are too few to follow lips")
    parts = max(1, round(steps * STEP_MS / WINDOW_MS))
    edges = [round(i * steps / parts) for i in range(parts + 1)]
    told = [_part(signals, start, stop) for start, stop in pairwise(edges)]
    reasons = [part for part in told if isinstance(part, Abstained)]
    if len(reasons) == len(told):
        return reasons[0]
    return tuple(fault for part in told if not isinstance(part, Abstained) for fault in part)


def estimate(level_db: Signal, luma: NDArray[np.uint8]) -> Estimate | Abstained:
    """The offset of one stretch. `level_db` `(n,)`, `luma` `(n, rows, columns)`."""
    quiet, loud = np.percentile(level_db, (10.0, 95.0))
    if loud < _LEAST_LEVEL_DB or loud - quiet < _LEAST_DB:
        return Abstained("no voice: the sound does not rise and fall as speech does")
    moving, places = _moving_parts(luma)
    if not moving.shape[1]:
        return Abstained("nothing moves in the picture")
    heard = _steady(_fast(np.maximum(level_db, level_db.max() - _RANGE_DB)[:, None]))
    fits = _correlations(heard[:, 0], moving)
    found = _standing_out(fits, parts=(luma.shape[1] - 1) * (luma.shape[2] - 1))
    if isinstance(found, Abstained):
        return found
    told, part = found
    if told.fit > _TOO_WELL:
        return Abstained("what follows the voice follows it too well: no mouth")
    if _stands_alone(luma, int(places[part])):
        return Abstained("what follows the voice moves in a picture that stands still: no mouth")
    return told


def _part(signals: LipSignals, start: int, stop: int) -> Verdict:
    found = estimate(signals.level_db[start:stop], signals.luma[start:stop])
    if isinstance(found, Abstained):
        return found
    if found.lead < _LIKELY_LEAD:
        return Abstained("nothing in the picture follows the voice well enough")
    if abs(found.offset_ms) > min(FURTHEST_MS, (stop - start) * STEP_MS / 4):
        return Abstained("what follows the voice best does so too far from it")
    return _faults(found, start * STEP_MS, certain=found.lead >= _CERTAIN_LEAD)


def _faults(found: Estimate, at_ms: float, *, certain: bool) -> tuple[FaultFound, ...]:
    towards_zero = np.sign(found.offset_ms) * min(SLACK_MS, abs(found.offset_ms))
    surely = found.offset_ms - float(towards_zero)
    unfit = certain and beyond(surely, ACCEPTABLE_MS) is not None
    limits = ACCEPTABLE_MS if unfit else DETECTABLE_MS
    limit = beyond(surely, limits)
    if limit is None:
        return ()
    return (
        FaultFound(
            fault=Fault.LIP_DESYNC,
            grade=Grade.HARD if unfit else Grade.SOFT,
            origin=Origin.INPUT,
            detector=Detector.LIP_SYNC,
            rule="lips_apart" if unfit else "lips_maybe_apart",
            detail=f"the voice comes {found.offset_ms:+.0f} ms from the mouth; "
            f"{limits[0]:+.0f} to {limits[1]:+.0f} allowed; fit {found.fit:.2f}, "
            f"{found.lead:.1f} errors above any other",
            at_ms=at_ms,
            value=found.offset_ms,
            limit=limit,
            unit="ms",
        ),
    )


def _stands_alone(luma: NDArray[np.uint8], place: int) -> bool:
    """Whether nothing moves around one part of the picture."""
    row, column = divmod(place, luma.shape[2] - 1)
    top, left = max(0, row - _AROUND), max(0, column - _AROUND)
    near = luma[:, top : row + 2 + _AROUND, left : column + 2 + _AROUND]
    around = np.ones(near.shape[1:], dtype=bool)
    # The part, and the cells that it touches: pictures are scaled, and edges run over.
    around[max(0, row - 1 - top) : row - top + 3, max(0, column - 1 - left) : column - left + 3] = (
        False
    )
    changed = (near[1:, around] != near[:-1, around]).mean(0)
    return bool((changed < _STILL_SHARE).mean() > 0.5)


def _moving_parts(luma: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """How dark each part of the picture is, `(n, parts)`, slow changes apart, and which part of
    the picture each is. Parts are of 2x2 cells and overlap, so that a mouth between two is whole
    in a third. Those that stand still are left out."""
    cells = luma.astype(np.float32)
    rows = cells[:, :-1] + cells[:, 1:]
    parts = (rows[:, :, :-1] + rows[:, :, 1:]).reshape(len(cells), -1) * -0.25
    varied = _steady(_fast(parts))
    places = np.flatnonzero(varied.std(0) > _LEAST_LUMA)
    return varied[:, places], places


def _fast(signals: NDArray[np.floating]) -> NDArray[np.float32]:
    """`(n, k)` less its mean over a second around each moment."""
    count, half = len(signals), _SLOW_FRAMES // 2
    sums = np.concatenate([np.zeros((1, signals.shape[1])), np.cumsum(signals, 0, np.float64)])
    first = np.maximum(0, np.arange(count) - half)
    last = np.minimum(count, np.arange(count) + half + 1)
    return (signals - (sums[last] - sums[first]) / (last - first)[:, None]).astype(np.float32)


def _steady(signals: NDArray[np.float32]) -> NDArray[np.float32]:
    """`(n, k)` smoothed over three moments: syllables are slower."""
    smooth = signals.copy()
    smooth[1:-1] = (signals[:-2] + signals[1:-1] + signals[2:]) / 3.0
    return smooth


def _correlations(heard: NDArray[np.float32], moving: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of the voice with each part, `(lags, parts)`: at lag k the voice is k steps late; negative
    lags stand at the end, as the stretch is taken to go round."""
    spectrum = np.fft.rfft(heard / np.linalg.norm(heard))
    parts = np.fft.rfft(moving / np.linalg.norm(moving, axis=0), axis=0)
    fits = np.fft.irfft(spectrum[:, None] * parts.conj(), len(heard), axis=0)
    return fits.astype(np.float32, copy=False)


def _standing_out(fits: NDArray[np.float32], parts: int) -> tuple[Estimate, int] | Abstained:
    """The lag whose best part fits best, and which part that is, by either sign: what brightens
    with the voice, a level meter say, must not be taken for a mouth that darkens between its
    beats. `parts`: of the whole picture, of which a mouth is a small share."""
    count = len(fits)
    either = np.abs(fits)
    best = either.max(1)
    lag = int(best.argmax())
    part = int(either[lag].argmax())
    if fits[lag, part] < 0:
        return Abstained("what follows the voice brightens with it: no mouth")
    if (fits[lag] > _ALIKE * fits[lag, part]).sum() > _LARGEST_MOUTH * parts:
        return Abstained("too much of the picture follows the voice: no mouth")
    apart = np.abs((np.arange(count) - lag + count // 2) % count - count // 2)
    others = float(best[apart > _NEAR_FRAMES].max())
    before, peak, after = (float(fits[(lag + by) % count, part]) for by in (-1, 0, 1))
    bend = before - 2.0 * peak + after
    between = 0.5 * (before - after) / bend if bend < 0 else 0.0
    signed = lag - count if lag > count // 2 else lag
    apart_z = np.arctanh(min(peak, _MOST_FIT)) - np.arctanh(min(others, _MOST_FIT))
    return Estimate((signed + between) * STEP_MS, peak, float(apart_z) * count**0.5), part
