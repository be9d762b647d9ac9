"""Table 2: p50, p95 and p99 of each first output, and who passed the degrade line (S4.2)."""

import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from operator import itemgetter
from typing import TypeVar

from monitors.contract import Count, Wire
from monitors.labels import Milestone
from monitors.redlines import LatencyLines, RedLines

T = TypeVar("T")


MEASURED_FROM: dict[Milestone, str] = {
    Milestone.FIRST_TOKEN: "last input byte to first text leaving the socket",
    Milestone.FIRST_AUDIO_PACKET: "last input byte to first sound leaving the socket",
    Milestone.FIRST_VIDEO_FRAME: "last input byte to its first key frame being prefilled",
}


class LatencyRow(Wire, frozen=True):
    """One version and milestone. `count` and `over` are of all time; the rest is of the last
    `latency.window_s` seconds, as the recording rules have it. `None`: nothing came in them."""

    version: str
    milestone: Milestone
    count: Count  # outputs that came
    over: Count  # requests past the degrade line, with or without their output
    requests: Count  # outputs within the degrade line, and requests that passed it
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    over_share: float | None  # of `requests`: past the degrade line
    slow_share: float | None  # of `requests`: without output by the first-packet line


class LatencyTable:
    """The first outputs of the last `latency.window_s` seconds, exact; of more than `ring` in them
    the newest. `clock`: monotonic seconds."""

    def __init__(
        self, lines: RedLines, ring: int = 10_000, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lines = lines.latency
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

    def rows(self, now: float | None = None) -> tuple[LatencyRow, ...]:
        """The table, by version and milestone in their own order, as it stood at `now`."""
        now = self._clock() if now is None else now
        order = list(Milestone)
        keys = sorted(self._series, key=lambda key: (key[0], order.index(key[1])))
        return tuple(self._series[key].row(*key, now, self._lines) for key in keys)

    def recent_p99(self, version: str, now: float, window_s: float) -> float | None:
        """The worst milestone's p99 over the last `window_s`, seconds; None without any request.

        A request that is past the line and has no output yet counts as infinitely late.
        """
        recent = [
            series.recent_p99(now - window_s, self._lines.degrade_s)
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


class _Series:
    def __init__(self, ring: int) -> None:
        self.values: deque[tuple[float, float]] = deque(maxlen=ring)  # (observed at, seconds)
        self.crossings: deque[float] = deque(maxlen=ring)
        self.count = 0
        self.over = 0

    def row(
        self, version: str, milestone: Milestone, now: float, lines: LatencyLines
    ) -> LatencyRow:
        ordered, crossed = self._since(now - lines.window_s)
        requests = bisect_right(ordered, lines.degrade_s) + crossed
        slow = max(0, requests - bisect_right(ordered, lines.first_packet_s))
        return LatencyRow(
            version=version,
            milestone=milestone,
            count=self.count,
            over=self.over,
            requests=requests,
            p50_s=quantile(ordered, 0.50),
            p95_s=quantile(ordered, 0.95),
            p99_s=quantile(ordered, 0.99),
            over_share=crossed / requests if requests else None,
            slow_share=slow / requests if requests else None,
        )

    def recent_p99(self, since: float, line_s: float) -> float | None:
        ordered, crossed = self._since(since)
        without_output = crossed - (len(ordered) - bisect_right(ordered, line_s))
        return quantile(ordered + [math.inf] * without_output, 0.99)

    def _since(self, since: float) -> tuple[list[float], int]:
        """Outputs observed since then, in order, and how many crossed the degrade line."""
        seconds = sorted(value for _, value in _newest(self.values, since, itemgetter(0)))
        return seconds, sum(1 for _ in _newest(self.crossings, since, float))


def _newest(ring: deque[T], since: float, at: Callable[[T], float]) -> Iterator[T]:
    """What came since then, newest first: a ring holds far more than a window."""
    return takewhile(lambda entry: at(entry) >= since, reversed(ring))


def quantile(ordered: Sequence[float], q: float) -> float | None:
    """The smallest value with at least the share `q` at or below it; None of nothing.

    Never interpolated, so it is always a latency that some request really had.
    """
    if not ordered:
        return None
    return ordered[max(math.ceil(q * len(ordered)), 1) - 1]
