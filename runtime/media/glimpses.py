"""A glimpse of every decoded frame: its luma in so few numbers that a whole clip fits.

Every frame passes here, so a glimpse costs some 20 us at any size: it looks at 4x4 points of
each cell.
"""

import numpy as np
from av import VideoFrame
from numpy.typing import NDArray

from runtime.media.planes import Samples, luma

ROWS, COLUMNS = 18, 32
MOST_FPS = 30.0  # of the frames that are kept; a faster clip is thinned out
MOST_FRAMES = 18_000  # ten minutes
_SLACK_MS = 5.0  # time stamps may be rounded
_POINTS = 4  # a side of a cell


class Glimpses:
    """Feed it frames in time order. What it keeps is bounded: 576 bytes a frame."""

    def __init__(self) -> None:
        self.unreadable = 0  # frames in a pixel format whose luma cannot be read
        self._times: list[float] = []
        self._grids = bytearray()
        self._size: tuple[int, int] | None = None
        self._rows = self._columns = np.zeros(0, np.intp)

    def feed(self, frame: VideoFrame, ms: float) -> None:
        """Takes a look at a frame shown at `ms`; one too many, or that cannot be read, is not
        kept."""
        if self._times and ms < self._times[-1] + 1000.0 / MOST_FPS - _SLACK_MS:
            return
        if len(self._times) >= MOST_FRAMES:
            return
        seen = luma(frame)
        if seen is None:
            self.unreadable += 1
            return
        self._times.append(ms)
        self._grids += self._grid(*seen).tobytes()

    @property
    def times_ms(self) -> NDArray[np.float64]:
        """When each frame that was kept is shown, `(n,)`, growing."""
        return np.array(self._times, np.float64)

    @property
    def grids(self) -> NDArray[np.uint8]:
        """Mean luma of the cells of each frame, `(n, 18, 32)`, as coded: 16 or 0 is black."""
        return np.frombuffer(bytes(self._grids), np.uint8).reshape(-1, ROWS, COLUMNS)

    def _grid(self, plane: Samples, depth: int) -> NDArray[np.uint8]:
        if self._size != plane.shape:
            self._size = plane.shape[0], plane.shape[1]
            self._rows = _middles(ROWS * _POINTS, plane.shape[0])
            self._columns = _middles(COLUMNS * _POINTS, plane.shape[1])
        points = plane.take(self._rows, 0).take(self._columns, 1).astype(np.uint32)
        bands = points.reshape(ROWS, _POINTS, COLUMNS * _POINTS)
        bands = bands[:, 0] + bands[:, 1] + bands[:, 2] + bands[:, 3]
        cells = bands.reshape(ROWS, COLUMNS, _POINTS)
        total = cells[..., 0] + cells[..., 1] + cells[..., 2] + cells[..., 3]
        return (total // _POINTS**2 >> (depth - 8)).astype(np.uint8)


def _middles(count: int, length: int) -> NDArray[np.intp]:
    """Evenly spread positions on a side of this length."""
    return ((2 * np.arange(count) + 1) * length // (2 * count)).astype(np.intp)
