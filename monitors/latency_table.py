"""Table 2: p50, p95 and p99 of each first output, and who passed the degrade line (S4.2)."""

import math
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from monitors.contract import Count, Wire
from monitors.labels import Milestone
from monitors.recent import Recent
from monitors.redlines import LatencyLines, RedLines

MOST = 100_000  # of one version and milestone: 3,333 a second for 30 s, in at most 5 MB
_QUANTILES = (0.50, 0.95, 0.99)

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
    """The first outputs of the last `latency.window_s` seconds, exact. Of more than `most` in them
    the newest, and every column is then of the shorter time that those span. `clock`: monotonic
    seconds."""

    def __init__(
        self, lines: RedLines, most: int = MOST, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lines = lines.latency
        self._most = most
        self._clock = clock
        self._series: dict[tuple[str, Milestone], _Series] = {}

    def observe(self, version: str, milestone: Milestone, seconds: float) -> None:
        """A first output came `seconds` after the last input byte it depends on."""
        if not (math.isfinite(seconds) and seconds >= 0.0):
            raise ValueError(f"a latency is a finite number of seconds from 0 up, not {seconds!r}")
        series = self._of(version, milestone)
        series.outputs.add(self._clock(), seconds)
        series.count += 1

    def overdue(self, version: str, milestone: Milestone) -> None:
        """A request passed the degrade line. Once per request, whether an output follows or not."""
        series = self._of(version, milestone)
        series.crossings.add(self._clock(), self._lines.degrade_s)
        series.over += 1

    def forget(self, version: str) -> None:
        """A version is here no more: it has no rows until its next first output."""
        self._series = {key: kept for key, kept in self._series.items() if key[0] != version}

    def rows(self, now: float | None = None) -> tuple[LatencyRow, ...]:
        """The table, by version and milestone in their own order, as it stood at `now`."""
        now = self._clock() if now is None else now
        order = list(Milestone)
        keys = sorted(self._series, key=lambda key: (key[0], order.index(key[1])))
        return tuple(self._series[key].row(*key, now) for key in keys)

    def recent_p99(self, version: str, now: float) -> float | None:
        """The worst milestone's p99 over the window, seconds; None without any request.

        A request that is past the line and has no output yet counts as infinitely late.
        """
        recent = [
            series.recent_p99(now) for (name, _), series in self._series.items() if name == version
        ]
        return max((p99 for p99 in recent if p99 is not None), default=None)

    def _of(self, version: str, milestone: Milestone) -> "_Series":
        key = (version, milestone)
        if key not in self._series:
            self._series[key] = _Series(self._lines, self._most)
        return self._series[key]


class _Series:
    def __init__(self, lines: LatencyLines, most: int) -> None:
        self.outputs = Recent(lines.window_s, most)
        self.crossings = Recent(lines.window_s, most)
        self.count = 0
        self.over = 0
        self._lines = lines

    def row(self, version: str, milestone: Milestone, now: float) -> LatencyRow:
        seconds, crossed = self._window(now)
        requests = _within(seconds, self._lines.degrade_s) + crossed
        slow = max(0, requests - _within(seconds, self._lines.first_packet_s))
        p50, p95, p99 = _quantiles(seconds, len(seconds), *_QUANTILES)
        return LatencyRow(
            version=version,
            milestone=milestone,
            count=self.count,
            over=self.over,
            requests=requests,
            p50_s=p50,
            p95_s=p95,
            p99_s=p99,
            over_share=crossed / requests if requests else None,
            slow_share=slow / requests if requests else None,
        )

    def recent_p99(self, now: float) -> float | None:
        seconds, crossed = self._window(now)
        late = len(seconds) - _within(seconds, self._lines.degrade_s)
        (p99,) = _quantiles(seconds, len(seconds) + max(0, crossed - late), 0.99)
        return p99

    def _window(self, now: float) -> tuple[NDArray[np.float64], int]:
        """Outputs of the window, and how many crossed the degrade line in it. Both of the same
        time: a share of counts over different times is of nothing."""
        since = max(
            now - self._lines.window_s, self.outputs.complete_from, self.crossings.complete_from
        )
        return self.outputs.since(since), len(self.crossings.since(since))


def _within(seconds: NDArray[np.float64], line_s: float) -> int:
    return int(np.count_nonzero(seconds <= line_s))


def _quantiles(seconds: NDArray[np.float64], of: int, *shares: float) -> list[float | None]:
    """The quantiles of `of` values: `seconds` in any order, and as many infinite ones as they
    lack. All None of nothing."""
    if not of:
        return [None] * len(shares)
    places = [_place(share, of) for share in shares]
    known = [place for place in places if place < len(seconds)]
    ordered = np.partition(seconds, known) if known else seconds
    return [float(ordered[p]) if p < len(seconds) else math.inf for p in places]


def _place(q: float, of: int) -> int:
    """Of the smallest value with at least the share `q` at or below it. Never interpolated, so it
    is always a latency that some request really had."""
    return max(math.ceil(q * of), 1) - 1
