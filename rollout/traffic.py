"""How much traffic there is, and whose, by the evidence log."""

from collections import Counter, deque

from monitors.contract import Count, Evidence, Name, RequestFinished, Wire
from monitors.labels import Outcome

_RATE_WINDOW_S = 60.0
_MOST = 100_000  # requests that are remembered


class Served(Wire, frozen=True):
    """Requests of the same while: of one resident, and of all."""

    one: Count
    all: Count


class Traffic:
    """Requests by the log's own time. `share_s`: over how long residents are compared."""

    def __init__(self, share_s: float) -> None:
        self._ends: deque[float] = deque(maxlen=_MOST)
        self._lately = _Lately(share_s)

    def take(self, entry: Evidence) -> None:
        """One more entry; an operator's requests, copies and what was turned away are none."""
        if not isinstance(entry.body, RequestFinished) or entry.operator or entry.mirror:
            return
        self._ends.append(entry.wall)
        while entry.wall - self._ends[0] > _RATE_WINDOW_S:
            self._ends.popleft()
        if entry.body.outcome is not Outcome.REFUSED:
            self._lately.take(entry.wall, entry.resident)

    def per_second(self) -> float | None:
        """None until requests have been seen over some time."""
        if len(self._ends) < 2:
            return None
        span = self._ends[-1] - self._ends[0]
        return (len(self._ends) - 1) / span if span > 0.0 else None

    def of(self, resident: Name) -> Served:
        """What a resident served of all, over the last `share_s`."""
        counts = self._lately.counts
        return Served(one=counts[resident], all=counts.total())


class _Lately:
    """Requests by resident over a window that ends with the newest of them."""

    def __init__(self, window_s: float) -> None:
        self.counts: Counter[Name] = Counter()
        self._window_s = window_s
        self._seen: deque[tuple[float, Name]] = deque()

    def take(self, at: float, resident: Name) -> None:
        self._seen.append((at, resident))
        self.counts[resident] += 1
        while at - self._seen[0][0] > self._window_s or len(self._seen) > _MOST:
            _, gone = self._seen.popleft()
            self.counts[gone] -= 1
