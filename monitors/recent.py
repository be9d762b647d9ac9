"""The newest values of a window of time, in bounded memory, for whoever counts or orders them."""

import logging
import math

import numpy as np
from numpy.typing import NDArray

_SPARE = 256

log = logging.getLogger(__name__)


class Recent:
    """Values of at least the last `window_s` seconds; of more than `most` the newest."""

    def __init__(self, window_s: float, most: int) -> None:
        self._window_s = window_s
        self._most = most
        self._times = np.empty(_SPARE)
        self._values = np.empty(_SPARE)
        self._first = self._end = 0  # what is kept lies between
        self.complete_from = -math.inf  # since then nothing was dropped for want of room

    def add(self, now: float, value: float) -> None:
        """Take a value. `now`: seconds, never less than before."""
        if self._end == len(self._times):
            self._make_room(now - self._window_s)
        self._times[self._end], self._values[self._end] = now, value
        self._end += 1
        if self._end - self._first > self._most:
            self._first += 1
            self._cut(now)

    def since(self, since: float) -> NDArray[np.float64]:
        """The values from `since` on, in the order they came: a view until the next `add`."""
        kept = self._times[self._first : self._end]
        return self._values[self._first + int(np.searchsorted(kept, since)) : self._end]

    @property
    def room(self) -> int:
        """How many values there is memory for now."""
        return len(self._times)

    def _cut(self, now: float) -> None:
        oldest = float(self._times[self._first])
        if oldest > now - self._window_s >= self.complete_from:
            log.warning(
                "more than %d values in %g s: counted over %.3g s",
                self._most, self._window_s, now - oldest,
            )  # fmt: skip
        self.complete_from = oldest

    def _make_room(self, oldest: float) -> None:
        """Drop what is older, and leave as much room as the rest takes: a value moves once or
        twice in all."""
        kept = self._times[self._first : self._end]
        self._first += int(np.searchsorted(kept, oldest))
        live = slice(self._first, self._end)
        size = self._end - self._first
        times, values = np.empty(2 * size + _SPARE), np.empty(2 * size + _SPARE)
        times[:size], values[:size] = self._times[live], self._values[live]
        self._times, self._values = times, values
        self._first, self._end = 0, size
