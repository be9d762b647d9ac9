"""When counters last grew, for whoever only reads them now and then."""

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Growth(Generic[K]):
    """Notes counters at each look. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._counts: Mapping[K, int] | None = None  # at the last look; None: there was none
        self._grew_at: dict[K, float] = {}
        self._since: float | None = None

    def note(self, counts: Mapping[K, int], now: float) -> None:
        """What is counted by now. At the first look nobody can tell when it was."""
        if self._counts is None:
            self._since = now
        else:
            for key, count in counts.items():
                if count != self._counts.get(key, 0):  # fewer: who counts was started again
                    self._grew_at[key] = now
        self._counts = counts
        self._grew_at = {key: at for key, at in self._grew_at.items() if key in counts}

    def lost_sight(self) -> None:
        """The counters could not be read: the next look is a first one."""
        self._counts = self._since = None

    def grew(self, key: K, now: float, within_s: float) -> bool:
        """Whether a look within the last seconds found more than the one before."""
        at = self._grew_at.get(key)
        return at is not None and now - at < within_s

    def watched(self, now: float) -> float:
        """For how long every look could read the counters, seconds."""
        return 0.0 if self._since is None else now - self._since
