"""The TMRoPE axis: milliseconds of a clip -> position ids, the same for sound and pictures.

S2.2: the sample clock and the frame clock are aligned in milliseconds first, then become
positions. Each position is rounded from its own true time, so the error is at most half a unit
at the first frame of every temporal grid and at every audio token, and never adds up.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from runtime.model.features import TOKENS_PER_WINDOW, Grid

Positions = NDArray[np.int64]  # (3, tokens): time, height, width

TOKEN_MS = 80.0  # an audio token folds 8 mel frames of 10 ms
WINDOW_MS = 1000.0


def text_positions(start: int, tokens: int) -> Positions:
    """A run of text: one step each, equal on all three axes."""
    return np.tile(np.arange(start, start + tokens, dtype=np.int64), (3, 1))


def audio_times_ms(start_ms: float, tokens: int) -> NDArray[np.float64]:
    """When each token of an audio slice begins, in milliseconds of its clip."""
    window, within = np.divmod(np.arange(tokens), TOKENS_PER_WINDOW)
    return start_ms + WINDOW_MS * window + TOKEN_MS * within


def audio_positions(base: int, start_ms: float, tokens: int, units_per_s: float) -> Positions:
    """Tokens of one audio slice of a clip whose time 0 sits at `base`."""
    at = base + _units(audio_times_ms(start_ms, tokens), units_per_s)
    return np.tile(at, (3, 1))


def video_positions(
    base: int, pts_ms: Sequence[float], grid: Grid, merge: int, units_per_s: float
) -> Positions:
    """Tokens of one video slice. `pts_ms`: true time of the first frame of each temporal grid."""
    t, rows, columns = grid[0], grid[1] // merge, grid[2] // merge
    time = base + _units(np.asarray(pts_ms, dtype=np.float64), units_per_s)
    return np.stack(
        [
            np.repeat(time, rows * columns),
            np.tile(np.repeat(np.arange(rows), columns), t) + base,
            np.tile(np.arange(columns), t * rows) + base,
        ]
    ).astype(np.int64)


def _units(times_ms: NDArray[np.float64], units_per_s: float) -> NDArray[np.int64]:
    return np.rint(times_ms * units_per_s / 1000.0).astype(np.int64)


def to_ms(units: int | float, units_per_s: float) -> float:
    """What a distance on the position axis means in milliseconds."""
    return units * 1000.0 / units_per_s
