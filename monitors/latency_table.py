"""Table 2: p50, p95 and p99 of each first output, and who passed the degrade line (S4.2)."""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

from monitors.contract import Count, Wire
from monitors.labels import Milestone
from monitors.redlines import RedLines


class LatencyRow(Wire, frozen=True):
    """One version and milestone. Quantiles are of the ring; `count` and `over` of all time."""

    version: str
    milestone: Milestone
    count: Count
    p50_s: float | None  # None: nothing was observed yet
    p95_s: float | None
    p99_s: float | None
    over: Count  # requests past the degrade line, with or without their output


class LatencyTable:
    """The last `ring` values of each first output, exact. `clock`: monotonic seconds."""

    def __init__(
        self, lines: RedLines, ring: int = 2_000, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._line_s = lines.latency.degrade_s
        self._ring = ring
        self._clock = clock
        self._series: dict[tuple[str, Milestone], _Series] = {}

    def observe(self, version: str, milestone: Milestone, seconds: float) -> None:
        """A first output came `seconds` after the last input byte it depends on."""
        if not (math.isfinite(seconds) and seconds >= 0.0):
            raise ValueError(f"a latency is a finite number of seconds from 0 up, not {seconds!r}")
        series = self._of(version, milestone)
        series.values.append((self._clock(), seconds))
        series.count += 1

    def overdue(self, version: str, milestone: Milestone) -> None:
        """A request passed the degrade line. Once per request, whether an output follows or not."""
        series = self._of(version, milestone)
        series.crossings.append(self._clock())
        series.over += 1

    def rows(self) -> tuple[LatencyRow, ...]:
        """The table, by version and milestone in their own order."""
        order = list(Milestone)
        keys = sorted(self._series, key=lambda key: (key[0], order.index(key[1])))
        return tuple(self._row(version, milestone) for version, milestone in keys)

    def recent_p99(self, version: str, now: float, window_s: float) -> float | None:
        """The worst milestone's p99 over the last `window_s`, seconds; None without any request.

        A request that is past the line and has no output yet counts as infinitely late.
        """
        recent = [
            series.recent_p99(now - window_s, self._line_s)
            for (name, _), series in self._series.items()
            if name == version
        ]
        return max((p99 for p99 in recent if p99 is not None), default=None)

    def forget(self, version: str) -> None:
        """Drop a version that is gone for good."""
        self._series = {key: s for key, s in self._series.items() if key[0] != version}

    def _of(self, version: str, milestone: Milestone) -> "_Series":
        key = (version, milestone)
        if key not in self._series:
            self._series[key] = _Series(self._ring)
        return self._series[key]

    def _row(self, version: str, milestone: Milestone) -> LatencyRow:
        series = self._series[version, milestone]
        ordered = sorted(seconds for _, seconds in series.values)
        return LatencyRow(
            version=version,
            milestone=milestone,
            count=series.count,
            p50_s=quantile(ordered, 0.50),
            p95_s=quantile(ordered, 0.95),
            p99_s=quantile(ordered, 0.99),
            over=series.over,
        )


class _Series:
    def __init__(self, ring: int) -> None:
        self.values: deque[tuple[float, float]] = deque(maxlen=ring)  # (observed at, seconds)
        self.crossings: deque[float] = deque(maxlen=ring)
        self.count = 0
        self.over = 0

    def recent_p99(self, since: float, line_s: float) -> float | None:
        seconds = [value for at, value in self.values if at >= since]
        crossed = sum(at >= since for at in self.crossings)
        without_output = crossed - sum(value > line_s for value in seconds)
        return quantile(sorted(seconds) + [math.inf] * without_output, 0.99)


def quantile(ordered: Sequence[float], q: float) -> float | None:
    """The smallest value with at least the share `q` at or below it; None of nothing.

    Never interpolated, so it is always a latency that some request really had.
    """
    if not ordered:
        return None
    return ordered[max(math.ceil(q * len(ordered)), 1) - 1]
