"""What the sound of one answer shows: where it starts and ends, how it ends, its holes and joints.

Measured on hops of 10 ms. Levels are dB of full scale, or of the answer's own speech level.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BELOW_SPEECH_DB = 32.0  # a hop this far under the speech level is a pause
HOLE_EDGE = 650  # of 32,767: a jump to or from silence this high is no fading
CLIPPED = 32_700  # of 32,767: a sample this large has no room left
CLICK_RATIO = 4.0  # how much further a joint bends than anything near it
CLICK_STEP = 0.02  # of full scale: below it nobody hears a joint
_HOP_S = 0.010
_NEAR = 48  # samples on each side of a joint, 2 ms at 24 kHz
_SCALE = 1.0 / 32768.0

Pcm = NDArray[np.int16]
_Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Stretch:
    """A piece of the answer, in seconds from its start."""

    at_s: float
    seconds: float


@dataclass(frozen=True)
class Sound:
    """`level_db`: of full scale. `end_db`: of the speech level, the loudest hop of the last 20 ms.
    `speech`: from the first sound to the last. `gap`: the longest pause inside it; `hole`:
    the longest run of exact zeros that a wave breaks off into. `clipped_share`: of all samples.
    `clicks`: joints that are heard, in seconds."""

    seconds: float
    level_db: float
    end_db: float
    speech: Stretch
    gap: Stretch
    hole: Stretch
    clipped_share: float
    clicks: tuple[float, ...]

    @property
    def tail_s(self) -> float:
        """Silence after the last sound."""
        return max(0.0, self.seconds - self.speech.at_s - self.speech.seconds)


def measure(pcm: Pcm, rate: int, joints: Sequence[int] = ()) -> Sound:
    """Features of mono sound; `joints`: where packets meet, in samples. Raises `ValueError` where
    there is no sample."""
    if not len(pcm):
        raise ValueError("no samples, no sound")
    hop = round(rate * _HOP_S)
    wave = pcm.astype(np.float32) * np.float32(_SCALE)
    levels = _levels_db(wave, hop)
    level = float(np.percentile(levels, 90))
    sounding = np.flatnonzero(levels > level - BELOW_SPEECH_DB)
    first, last = int(sounding[0]), int(sounding[-1])
    speech = Stretch(first * _HOP_S, min((last + 1) * _HOP_S, len(pcm) / rate) - first * _HOP_S)
    return Sound(
        seconds=len(pcm) / rate,
        level_db=level,
        end_db=float(levels[-2:].max()) - level,
        speech=speech,
        gap=_longest_gap(sounding),
        hole=_longest_hole(pcm, rate, hop),
        clipped_share=_clipped(pcm),
        clicks=tuple(at / rate for at in _clicks(wave, joints)),
    )


def _levels_db(wave: _Floats, hop: int) -> NDArray[np.float64]:
    """Level of each hop; the last may be short."""
    whole = len(wave) // hop
    hops = wave[: whole * hop].reshape(whole, hop)
    power = np.einsum("ij,ij->i", hops, hops).astype(np.float64) / hop
    rest = wave[whole * hop :]
    if len(rest):
        power = np.append(power, np.dot(rest, rest) / len(rest))
    return 10.0 * np.log10(power + 1e-10)


def _longest_gap(sounding: NDArray[np.intp]) -> Stretch:
    steps = np.diff(sounding)
    if not len(steps):
        return Stretch(0.0, 0.0)
    longest = int(steps.argmax())
    return Stretch(float(sounding[longest] + 1) * _HOP_S, float(steps[longest] - 1) * _HOP_S)


def _longest_hole(pcm: Pcm, rate: int, hop: int) -> Stretch:
    """Only runs that span a whole hop are looked for: shorter ones are no hole. Zeros that begin
    and end softly are the pause of a voice without noise."""
    silent = ~pcm[: len(pcm) // hop * hop].reshape(-1, hop).any(axis=1)
    longest = Stretch(0.0, 0.0)
    edges = np.flatnonzero(np.diff(silent, prepend=False, append=False))
    for start, stop in edges.reshape(-1, 2):
        if start == 0 or stop * hop >= len(pcm):
            continue
        first = start * hop - _trailing_zeros(pcm[(start - 1) * hop : start * hop])
        last = stop * hop + _trailing_zeros(pcm[stop * hop : (stop + 1) * hop][::-1])
        if last == len(pcm) or max(abs(int(pcm[first - 1])), abs(int(pcm[last]))) < HOLE_EDGE:
            continue
        if (last - first) / rate > longest.seconds:
            longest = Stretch(float(first) / rate, float(last - first) / rate)
    return longest


def _trailing_zeros(pcm: Pcm) -> int:
    sounding = np.flatnonzero(pcm)
    return len(pcm) - 1 - int(sounding[-1]) if len(sounding) else len(pcm)


def _clipped(pcm: Pcm) -> float:
    if max(int(pcm.max()), -int(pcm.min())) < CLIPPED:
        return 0.0
    return float(np.count_nonzero((pcm >= CLIPPED) | (pcm <= -CLIPPED))) / len(pcm)


def _clicks(wave: _Floats, joints: Sequence[int]) -> list[int]:
    """Joints where the wave bends far more than anywhere within 2 ms of them."""
    inside = [at for at in joints if _NEAR + 2 <= at <= len(wave) - _NEAR - 2]
    if not inside:
        return []
    near = wave[np.array(inside)[:, None] + np.arange(-_NEAR - 1, _NEAR + 1)]
    bends = np.abs(np.diff(near, n=2, axis=1))  # column j: around sample at - _NEAR + j
    joint = bends[:, _NEAR - 1 : _NEAR + 1].max(axis=1)
    bends[:, _NEAR - 2 : _NEAR + 2] = 0.0
    usual = np.sort(bends, axis=1)[:, -3]
    heard = (joint > CLICK_STEP) & (joint > CLICK_RATIO * usual)
    return [at for at, is_heard in zip(inside, heard, strict=True) if is_heard]
