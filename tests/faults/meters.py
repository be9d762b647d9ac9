"""Screens with a voice and no mouth, on which something dark follows the sound: a level meter, or
an icon that pulses. How late it does so is the meter's own affair, and no fault of the clip."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.faults import talking_head
from tests.support import media
from tests.support.media import Pcm

SIZE, FPS = (320, 180), 25
PAPER, INK = 235, 20


@dataclass(frozen=True)
class Screen:
    """`late_ms`: how far the meter is behind the sound; `decay`: how slowly it falls, a frame."""

    seed: int
    late_ms: float
    decay: float = 0.0
    icon: bool = False
    seconds: float = 8.0

    def sound(self) -> Pcm:
        """Mono at `CLIP_HZ`."""
        return talking_head.voice(self.seed, self.seconds, ("en", "zh")[self.seed % 2])

    def film(self) -> bytes:
        """The picture, as a file."""
        levels = self._levels()
        return media.video_file(
            (self._picture(level) for level in levels),
            [round(i * 1000 / FPS) for i in range(len(levels))],
            None,
            size=SIZE,
            fps=FPS,
        )

    def _levels(self) -> list[float]:
        heard = talking_head.loudness(self.sound(), round(self.seconds * FPS))
        shown: list[float] = []
        for level in np.roll(heard, round(self.late_ms * FPS / 1000)):
            shown.append(max(float(level), shown[-1] * self.decay if shown else 0.0))
        return shown

    def _picture(self, level: float) -> NDArray[np.uint8]:
        picture = np.full((SIZE[1], SIZE[0], 3), PAPER, np.uint8)
        top, left = 20 + self.seed * 7 % 120, 20 + self.seed * 31 % 220
        if self.icon:
            picture[top : top + 18, left : left + 20] = round(PAPER - (PAPER - INK) * level)
        else:
            picture[top : top + 12, left : left + round(50 * level)] = INK
        return picture


def screens(count: int) -> Iterator[Screen]:
    """So many, meters and icons in turn, quick and slow, 0 to 400 ms late."""
    for seed in range(count):
        late_ms = float(np.random.default_rng(seed).uniform(0.0, 400.0))
        yield Screen(seed, late_ms, (0.0, 0.9)[seed // 2 % 2], icon=bool(seed % 2))
