"""The millisecond axis (S2.2): time stamps to milliseconds, the sampling grid, slice bounds."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

from monitors.detectors.timeline import GRID_TOLERANCE_MS

Frame = TypeVar("Frame")


def to_ms(pts: int, time_base: Fraction) -> float:
    """A time stamp in milliseconds."""
    return pts * time_base.numerator * 1000 / time_base.denominator


def slice_index(ms: float, slice_ms: float) -> int:
    """Which slice a time falls into. A hair before a bound (float error) counts as on it."""
    return math.floor(ms / slice_ms + 1e-9)


@dataclass(frozen=True)
class Sample(Generic[Frame]):
    """The frame that stands for the grid point `grid_ms`; `shown_ms` is the time that the model
    is told of it: its own where that is near, else the point, when it still was on screen.
    """

    frame: Frame
    shown_ms: float
    grid_ms: float


class GridSampler(Generic[Frame]):
    """Picks from frames in time order the one for each point of a regular grid, by time stamp.

    The grid begins with the first frame. A point gets the frame on screen at that time, or the
    next one where it comes nearer and within tolerance. A frame that stays on screen is picked
    again: it is what a viewer sees.
    """

    def __init__(self, grid_ms: float) -> None:
        self.grid_ms = grid_ms
        self._start_ms = 0.0
        self._settled = 0  # grid points
        self._shown: tuple[Frame, float] | None = None

    def feed(self, frame: Frame, ms: float) -> Iterator[Sample[Frame]]:
        """Takes the next frame; yields the samples it settles. `ms` must grow."""
        if self._shown is None:
            self._start_ms = ms
        while (point := self._point()) <= ms:
            yield self._pick(frame, ms, point)
            self._settled += 1
        self._shown = frame, ms

    def finish(self, end_ms: float) -> Iterator[Sample[Frame]]:
        """The samples left until the last frame leaves the screen at `end_ms`.

        A point so near to the end that it could as well lie behind it is left out.
        """
        while self._shown is not None and (point := self._point()) < end_ms - GRID_TOLERANCE_MS:
            yield _held(*self._shown, point)
            self._settled += 1

    def _point(self) -> float:
        return self._start_ms + self._settled * self.grid_ms

    def _pick(self, frame: Frame, ms: float, point: float) -> Sample[Frame]:
        if self._shown is None:
            return Sample(frame, ms, point)
        nearer = ms - point < point - self._shown[1]
        if nearer and ms - point <= GRID_TOLERANCE_MS:
            return Sample(frame, ms, point)
        return _held(*self._shown, point)


def _held(frame: Frame, ms: float, point: float) -> Sample[Frame]:
    """A frame on screen at `point`: its own time when that is near, else it is shown then."""
    return Sample(frame, ms if point - ms <= GRID_TOLERANCE_MS else point, point)
