"""How much of the latency window an engine worked, from what it says of its busy seconds."""

from collections import deque

NEEDED = 0.5  # of the window must be seen, for a share that tells


class BusyShare:
    """One engine's. It starts again with the engine, whose counter then starts at 0."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, float]] = deque()  # (monotonic seconds, busy seconds)

    def add(self, now: float, busy_s: float) -> None:
        """What the engine says now; it counts from its start."""
        if self._seen and busy_s < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now, busy_s))
        while len(self._seen) > 1 and self._seen[1][0] <= now - self._window_s:
            self._seen.popleft()

    @property
    def value(self) -> float | None:
        """Busy over wall time; None: not seen for long enough."""
        if not self._seen:
            return None
        (began, before), (at, busy_s) = self._seen[0], self._seen[-1]
        if at - began < NEEDED * self._window_s:
            return None
        return min(1.0, (busy_s - before) / (at - began))
