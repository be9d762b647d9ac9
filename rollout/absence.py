"""For how long A has been seen not to be ready."""

from collections.abc import Callable


class Absence:
    """`clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: float | None = None

    def seconds(self, ready: bool | None) -> float:
        """Until now, given how it was seen last; 0 where it is ready or has not been seen."""
        if ready is not False:
            self._since = None
            return 0.0
        if self._since is None:
            self._since = self._clock()
        return self._clock() - self._since
