"""How much traffic there is, and whose, by the evidence log."""

from collections import Counter, deque
from collections.abc import Callable

from monitors.contract import Count, Evidence, Name, RequestFinished, Wire
from monitors.labels import Outcome

_RATE_WINDOW_S = 60.0
_SET_BACK_S = 1.0  # the log's clock only falls behind by so much where somebody sets it
_MOST = 100_000  # requests that are remembered


class Served(Wire, frozen=True):
    """Requests of the same while: of one resident, and of all."""

    one: Count
    all: Count


class Traffic:
    """Requests by the log's own time, up to now. `share_s`: over how long residents are compared.

    `clock`: monotonic seconds. What time it is by the log is told from its newest request, and how
    long ago that was read: when nobody comes any more, the windows empty.
    """

    def __init__(self, share_s: float, clock: Callable[[], float]) -> None:
        self._asked = _Lately(_RATE_WINDOW_S)
        self._served = _Lately(share_s)
        self._clock = clock
        self._newest = self._read_at = 0.0  # in the log's time; by our clock

    def take(self, entry: Evidence) -> None:
        """One more entry; an operator's requests, copies and what was turned away are none."""
        if not isinstance(entry.body, RequestFinished) or entry.operator or entry.mirror:
            return
        if entry.wall < self._newest - _SET_BACK_S:  # what came before cannot be dated any more
            self.forget()
        self._newest, self._read_at = entry.wall, self._clock()
        self._asked.take(entry.wall, entry.resident)
        if entry.body.outcome is not Outcome.REFUSED:
            self._served.take(entry.wall, entry.resident)

    def forget(self) -> None:
        """What was read cannot be dated any more."""
        self._asked.forget()
        self._served.forget()

    def per_second(self) -> float | None:
        """None unless requests have been seen over some time lately."""
        now = self._now
        self._asked.expire(now)
        first, count = self._asked.first, self._asked.counts.total()
        if first is None or count < 2 or now <= first:
            return None
        return (count - 1) / (now - first)

    def of(self, resident: Name) -> Served:
        """What a resident served of all, over the last `share_s`."""
        self._served.expire(self._now)
        counts = self._served.counts
        return Served(one=counts[resident], all=counts.total())

    @property
    def _now(self) -> float:
        """By the log."""
        return self._newest + self._clock() - self._read_at


class _Lately:
    """Requests by resident over a window of time."""

    def __init__(self, window_s: float) -> None:
        self.counts: Counter[Name] = Counter()
        self._window_s = window_s
        self._seen: deque[tuple[float, Name]] = deque()

    @property
    def first(self) -> float | None:
        return self._seen[0][0] if self._seen else None

    def take(self, at: float, resident: Name) -> None:
        self._seen.append((at, resident))
        self.counts[resident] += 1
        self.expire(at)

    def expire(self, now: float) -> None:
        while self._seen and (now - self._seen[0][0] > self._window_s or len(self._seen) > _MOST):
            _, gone = self._seen.popleft()
            self.counts[gone] -= 1

    def forget(self) -> None:
        self._seen.clear()
        self.counts.clear()
