"""The curriculum: clips grow from one second to sixteen, pictures from 80 pixels to 640 x 360."""

from dataclasses import dataclass

import numpy as np

from runtime.quality.scenes import Size

AUDIO_TOKENS = 13  # a second
PICTURE_TOKENS: dict[Size, int] = {  # a second
    (80, 80): 4,
    (80, 120): 6,
    (120, 160): 12,
    (160, 160): 16,
    (240, 320): 48,
    (360, 640): 144,
}
TEXT_TOKENS = 60
BATCH_TOKENS = 3000
MOST_DIALOGUES = 24
LONGEST_S = 16
EARLY, LATE = 400, 1000  # media tokens of one clip at most, before and after half-time


@dataclass(frozen=True)
class Lesson:
    """What one batch is drawn as."""

    seconds: int
    size: Size
    dialogues: int


def lesson(progress: float, rng: np.random.Generator, shortest: int = 2) -> Lesson:
    """`progress` in [0, 1] of the curriculum; at its end clips last `shortest` seconds or more."""
    seconds = _seconds(progress, rng, shortest)
    most = EARLY if progress < 0.5 else LATE
    sizes = [s for s, t in PICTURE_TOKENS.items() if seconds * (t + AUDIO_TOKENS) <= most]
    weights = np.array([1.0 / (PICTURE_TOKENS[size] + AUDIO_TOKENS) for size in sizes])
    size = sizes[rng.choice(len(sizes), p=weights / weights.sum())]
    tokens = seconds * (PICTURE_TOKENS[size] + AUDIO_TOKENS) + TEXT_TOKENS
    return Lesson(seconds, size, min(MOST_DIALOGUES, BATCH_TOKENS // tokens))


def _seconds(progress: float, rng: np.random.Generator, shortest: int) -> int:
    for until, longest in ((0.08, 1), (0.16, 2), (0.30, 4), (0.50, 8)):
        if progress < until:
            return int(rng.integers(1, longest + 1))
    return int(rng.integers(shortest, LONGEST_S + 1))
