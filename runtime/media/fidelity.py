"""The media rung at work: pixels scaled down, sound limited in band (S2.5, S4.2).

Nothing is ever scaled up: a smaller clip passes through. Eight kilohertz saves bandwidth, not
tokens, because the mel front end always wants 16 kHz.
"""

from dataclasses import dataclass

import numpy as np
import soxr
from av import VideoFrame
from numpy.typing import NDArray

from monitors.contract import MediaRung
from monitors.redlines import LadderLines

MODEL_HZ = 16_000


@dataclass(frozen=True)
class Fidelity:
    """What media may be at most: the short side of a picture, or a square, and the audio band."""

    short_side: int
    square: bool
    audio_hz: int

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height after the transform: even, at least 2, never larger than before.

        A square rung stretches (S2.5: 160x160); the others keep the shape. "360p" is the short
        side, so that a phone's upright clip keeps as much as a lying one.
        """
        if self.square:
            return _even(min(width, self.short_side)), _even(min(height, self.short_side))
        scale = min(1.0, self.short_side / min(width, height))
        return _even(width * scale), _even(height * scale)

    def picture(
        self, frame: VideoFrame, size: tuple[int, int], turned: int = 0
    ) -> NDArray[np.uint8]:
        """RGB `(height, width, 3)` of a decoded frame at `size` (width, height), area-averaged.

        `turned`: degrees by which a phone's clip says it must be turned to stand upright; then
        the sides swap.
        """
        scaled = frame.reformat(size[0], size[1], format="rgb24", interpolation="AREA")
        upright = np.rot90(scaled.to_ndarray(), turned // 90)
        return np.ascontiguousarray(upright, np.uint8)

    def sound(self, pcm: NDArray[np.float32], hz: int) -> NDArray[np.float32]:
        """Mono sound of rate `hz` at 16 kHz, with nothing left above half of `audio_hz`."""
        band = min(hz, self.audio_hz)
        limited = _resample(_resample(pcm, hz, band), band, MODEL_HZ)
        length = round(len(pcm) * MODEL_HZ / hz)  # the same on every rung, to the sample
        return np.pad(limited[:length], (0, max(0, length - len(limited))))


def fidelity_of(rung: MediaRung, ladder: LadderLines) -> Fidelity:
    """The transform of one rung of the ladder."""
    match rung:
        case MediaRung.FULL:
            return Fidelity(ladder.full_height, square=False, audio_hz=MODEL_HZ)
        case MediaRung.P360_8K:
            return Fidelity(ladder.degraded_height, False, ladder.degraded_audio_hz)
        case MediaRung.P160_8K:
            return Fidelity(ladder.floor_side, True, ladder.degraded_audio_hz)


def _even(pixels: float) -> int:
    return max(2, round(pixels) // 2 * 2)


def _resample(pcm: NDArray[np.float32], hz: int, to_hz: int) -> NDArray[np.float32]:
    """Band-limited resampling; `soxr` HQ has an anti-aliasing filter, its QQ has none."""
    return pcm if hz == to_hz else soxr.resample(pcm, hz, to_hz, quality="HQ").astype(np.float32)
