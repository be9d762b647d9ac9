"""A glimpse of every decoded frame: its luma in so few numbers that a whole clip fits.

Every frame passes here, so a frame costs some 40 us at any size: 2x4 points of each cell are
picked at once, and averaged for many frames together.
"""

import numpy as np
from av import VideoFrame
from numpy.typing import NDArray

from monitors.detectors.places import evenly_spread
from runtime.media.planes import Samples, luma

ROWS, COLUMNS = 18, 32
MOST_FPS = 30.0  # of the frames that are kept; a faster clip is thinned out
MOST_FRAMES = 18_000  # ten minutes
_SLACK_MS = 5.0  # time stamps may be rounded
_DOWN, _ACROSS = 2, 4  # points of a cell
_TOGETHER = 64  # frames

Points = NDArray[np.uint16]


class Glimpses:
    """Feed it frames in time order. What it keeps is bounded: 576 bytes a frame."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._grids = bytearray()
        self._size: tuple[int, ...] | None = None
        self._rows = self._columns = np.zeros(0, np.intp)
        self._points: Points = np.zeros((_TOGETHER, ROWS * _DOWN, COLUMNS * _ACROSS), np.uint16)
        self._waiting = 0  # frames among the points

    def feed(self, frame: VideoFrame, ms: float) -> None:
        """Takes a look at a frame shown at `ms`; one too many, or that cannot be read, is not
        kept."""
        if self._times and ms < self._times[-1] + 1000.0 / MOST_FPS - _SLACK_MS:
            return
        if len(self._times) >= MOST_FRAMES:
            return
        seen = luma(frame)
        if seen is None:
            return
        self._times.append(ms)
        self._pick(*seen)

    @property
    def times_ms(self) -> NDArray[np.float64]:
        """When each frame that was kept is shown, `(n,)`, growing."""
        return np.array(self._times, np.float64)

    @property
    def grids(self) -> NDArray[np.uint8]:
        """Mean luma of the cells of each frame, `(n, 18, 32)`, as coded: 16 or 0 is black."""
        self._settle()
        return np.frombuffer(bytes(self._grids), np.uint8).reshape(-1, ROWS, COLUMNS)

    def _pick(self, plane: Samples, depth: int) -> None:
        if self._size != plane.shape:
            self._size = plane.shape
            self._rows = evenly_spread(plane.shape[0], ROWS * _DOWN)
            self._columns = evenly_spread(plane.shape[1], COLUMNS * _ACROSS)
        points = plane[self._rows].take(self._columns, 1)
        self._points[self._waiting] = points if depth == 8 else points >> (depth - 8)
        self._waiting += 1
        if self._waiting == _TOGETHER:
            self._settle()

    def _settle(self) -> None:
        """Averages the points of the frames that wait."""
        cells = self._points[: self._waiting].reshape(-1, ROWS, _DOWN, COLUMNS, _ACROSS)
        self._grids += (cells.sum((2, 4)) // (_DOWN * _ACROSS)).astype(np.uint8).tobytes()
        self._waiting = 0
