"""What is to be expected one rung better, from what a version's tables and engine tell (ADR 31)."""

import math
from dataclasses import dataclass, field, replace

from monitors.cache_table import GB
from monitors.contract import MediaRung, Wire
from monitors.latency_table import LatencyRow
from monitors.redlines import LadderLines, RedLines
from monitors.tables import Lines, Tables

SPAN_S = 10.0  # of each such span, no more than the highest load is remembered
_MOST_S = 86_400.0  # that a load is remembered
_WIDE = 16 / 9
# Of a request's work, what grows with its pixels; only where the worsening could not be measured.
_PIXELS_SHARE = 0.5


class Load(Wire, frozen=True):
    """One look at a version. None is unknown.

    `p99_s`: of the slowest first output of the latency window; `busy_share`: of that window, how
    much the engine worked; `per_s`: requests a second in it; `live_gb`: KV that is held, GB, and
    `native_gb` the same in the native format.
    """

    p99_s: float | None = None
    busy_share: float | None = None
    per_s: float | None = None
    live_gb: float | None = None
    native_gb: float | None = None

    @property
    def work_s(self) -> float | None:
        """Engine seconds of one request."""
        if self.busy_share is None or not self.per_s:
            return None
        return self.busy_share / self.per_s

    def told(self) -> str:
        """What is known, in words."""
        known = (
            ("p99 {:.0f} ms", None if self.p99_s is None else 1000 * self.p99_s),
            ("{:.1f} requests/s", self.per_s),
            ("{:.0%} busy", self.busy_share),
            ("{:.3g} GB live", self.live_gb),
        )
        return ", ".join(form.format(value) for form, value in known if value is not None)


def load_of(
    version: str,
    tables: Tables | None,
    min_count: int,
    *,
    busy_share: float | None = None,
    native_bytes: int | None = None,
) -> Load:
    """What the tables say of a version now, and its engine of its work and its live KV. Of fewer
    than `min_count` requests there is no p99: of so few the rule itself says nothing."""
    native_gb = None if native_bytes is None else native_bytes / GB
    if tables is None:
        return Load(busy_share=busy_share, native_gb=native_gb)
    rows = [row for row in tables.latency if row.version == version and row.requests]
    held = next((row for row in tables.cache_summary if row.version == version), None)
    p99s = [_p99(row, tables.lines) for row in rows if row.requests >= min_count]
    return Load(
        p99_s=max((p99_s for p99_s in p99s if p99_s is not None), default=None),
        busy_share=busy_share,
        per_s=max((row.requests for row in rows), default=0) / tables.windows.latency_s,
        live_gb=None if held is None else held.gpu_mem_gb,
        native_gb=native_gb,
    )


def _p99(row: LatencyRow, lines: Lines) -> float | None:
    """Requests that hang have no latency yet: they are as late as the line at least."""
    hang = row.over_share is not None and row.over_share > lines.degrade_exceedance
    return max(row.p99_s or 0.0, lines.degrade_s) if hang else row.p99_s


# ---------------------------------------------------------------- what was
@dataclass(frozen=True)
class History:
    """The loads of a version: the newest, the newest of enough requests to have a p99 (`told`, at
    `told_at`), and those that no later one has come up to."""

    at: float | None = None
    newest: Load = field(default_factory=Load)
    told_at: float | None = None
    told: Load = field(default_factory=Load)
    peaks: tuple[tuple[float, float], ...] = ()  # (wall seconds, requests a second), ever lower

    def noted(self, at: float, load: Load, keep_s: float) -> "History":
        """With one more look. What lies ahead of it is forgotten: the clock was set back."""
        peaks = tuple(peak for peak in self.peaks if at - keep_s < peak[0] <= at)
        if load.per_s:
            peaks = tuple(peak for peak in peaks if peak[1] > load.per_s)
            if not peaks or at - peaks[-1][0] >= SPAN_S:
                peaks = (*peaks, (at, load.per_s))
        noted = replace(self, at=at, newest=load, peaks=peaks)
        return noted if load.p99_s is None else replace(noted, told_at=at, told=load)

    def knowing(self, at: float, per_s: float, keep_s: float) -> "History":
        """With a load that was so at a time, in whatever order such are told."""
        if any(when >= at and other >= per_s for when, other in self.peaks):
            return self
        kept = (peak for peak in self.peaks if at - keep_s < peak[0])
        others = [peak for peak in kept if peak[0] > at or peak[1] > per_s]
        return replace(self, peaks=tuple(sorted((*others, (at, per_s)))))

    def peak(self, now: float, memory_s: float) -> float | None:
        """The most requests a second of the last `memory_s`."""
        return max((per_s for at, per_s in self.peaks if now - at <= memory_s), default=None)


def kept_s(lines: LadderLines) -> float:
    """How long a load must be remembered for the most patient ladder, seconds; a day at most."""
    return min(lines.memory_s * lines.max_dwell_s / lines.dwell_s, _MOST_S)


# ---------------------------------------------------------------- what will be
def p99_ahead(load: Load, work_ratio: float, peak_per_s: float | None) -> float | None:
    """The p99 once a request takes `work_ratio` times the work, at the load of the peak. None is
    unknown, infinite is a queue that never ends.

    As a queue has it: waiting grows by the work of those ahead, and by 1 / (1 - utilisation).
    """
    if load.p99_s is None or load.busy_share is None or not load.per_s:
        return None
    growth = max(1.0, (peak_per_s or 0.0) / load.per_s)
    idle, idle_ahead = 1.0 - load.busy_share, 1.0 - work_ratio * growth * load.busy_share
    if idle_ahead <= 0.0:
        return math.inf
    return load.p99_s * work_ratio * max(idle, 0.0) / idle_ahead


def busy_ahead(load: Load, peak_per_s: float | None) -> float | None:
    """The utilisation at the load of the peak."""
    if load.busy_share is None or not load.per_s:
        return load.busy_share
    return load.busy_share * max(1.0, (peak_per_s or 0.0) / load.per_s)


def live_gb_at(load: Load, peak_per_s: float | None) -> float | None:
    """Live KV at the load of the peak, GB, in the format that it has now: as KV comes back after
    admission, it is asked for itself then."""
    if load.live_gb is None or not load.per_s:
        return load.live_gb
    return load.live_gb * max(1.0, (peak_per_s or 0.0) / load.per_s)


def live_gb_ahead(load: Load) -> float | None:
    """Live KV once it is native again, GB; at least what it is now, where the engine does not say
    how much of it is quantised."""
    return load.live_gb if load.native_gb is None else load.native_gb


def pixel_ratio(rung: MediaRung, lines: LadderLines) -> float:
    """How many times the pixels of a rung the next better one has. 1 for full fidelity."""
    degraded = lines.degraded_height**2 * _WIDE
    match rung:
        case MediaRung.FULL:
            return 1.0
        case MediaRung.P360_8K:
            return max(1.0, lines.full_height**2 * _WIDE / degraded)
        case MediaRung.P160_8K:
            return max(1.0, degraded / lines.floor_side**2)


def assumed_ratio(rung: MediaRung, lines: LadderLines) -> float:
    """The work ratio of the next better rung where it could not be measured."""
    return 1.0 + _PIXELS_SHARE * (pixel_ratio(rung, lines) - 1.0)


def measured_ratio(before: Load, after: Load, rung: MediaRung, lines: LadderLines) -> float | None:
    """The work ratio as a worsening to `rung` showed it: no less than 1 and no more than the
    pixels have it. None: not known."""
    if before.work_s is None or not after.work_s:
        return None
    return min(max(1.0, before.work_s / after.work_s), pixel_ratio(rung, lines))


@dataclass(frozen=True)
class Forecast:
    """What a part would do one rung better, against its line. None is unknown."""

    value: float | None
    limit: float
    what: str  # with the value in it, as people read it

    @property
    def crosses(self) -> bool:
        """Whether the line would be crossed. Unknown does not: without traffic nothing is ever
        known, and the first users after a quiet night should not meet last night's rung."""
        return self.value is not None and self.value > self.limit


def of_p99(value: float | None, lines: RedLines) -> Forecast:
    """A p99 against the degrade line."""
    shown = "a queue without end" if value == math.inf else f"p99 {1000 * (value or 0):.0f} ms"
    return Forecast(value, lines.latency.degrade_s, shown if value is not None else "p99 unknown")


def of_busy(value: float | None, lines: RedLines) -> Forecast:
    """A utilisation against that at which shedding ends."""
    shown = "utilisation unknown" if value is None else f"{value:.0%} busy"
    return Forecast(value, lines.scheduler.resume_utilisation, shown)


def of_memory(value: float | None, lines: RedLines) -> Forecast:
    """Live KV against the memory line."""
    shown = "memory unknown" if value is None else f"{value:.3g} GB live"
    return Forecast(value, lines.cache.gpu_mem_gb, shown)
