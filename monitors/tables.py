"""The three tables in one message: what `GET /tables` returns and the terminal shows (S4)."""

import msgspec

from monitors.cache_table import CacheRow, CacheSummary, CacheTable
from monitors.contract import Count, Wire
from monitors.fault_table import FaultRow, FaultTable
from monitors.latency_table import LatencyRow, LatencyTable
from monitors.redlines import RedLines


class Windows(Wire, frozen=True):
    """What each table's shares and quantiles are taken over; recording rules take the same."""

    cache_s: float  # the last seconds
    latency_s: float
    fault_requests: Count  # the last finished requests of each version


class Lines(Wire, frozen=True):
    """The red lines that the columns are shares past, and judged by: those of the gateway, which
    whoever shows its tables need not know."""

    hit_rate_floor: float
    first_packet_s: float
    first_packet_exceedance: float
    degrade_s: float
    degrade_exceedance: float
    fault_rate: float


class Tables(Wire, frozen=True):
    """All three tables at calendar time `wall`. `None` in a row is unknown, never zero."""

    wall: float
    windows: Windows
    lines: Lines
    cache: tuple[CacheRow, ...]
    cache_summary: tuple[CacheSummary, ...]
    latency: tuple[LatencyRow, ...]
    faults: tuple[FaultRow, ...]

    def to_json(self) -> bytes:
        """The body of `GET /tables`."""
        return msgspec.json.encode(self)


def windows(lines: RedLines) -> Windows:
    """What the red lines say that tables are taken over."""
    return Windows(
        cache_s=lines.cache.hold_s,
        latency_s=lines.latency.window_s,
        fault_requests=lines.faults.window_requests,
    )


def lines_shown(lines: RedLines) -> Lines:
    """Those of the red lines that a table's columns have to do with."""
    return Lines(
        hit_rate_floor=lines.cache.hit_rate_floor,
        first_packet_s=lines.latency.first_packet_s,
        first_packet_exceedance=lines.latency.first_packet_exceedance,
        degrade_s=lines.latency.degrade_s,
        degrade_exceedance=lines.latency.degrade_exceedance,
        fault_rate=lines.faults.rate,
    )


def snapshot(
    cache: CacheTable,
    latency: LatencyTable,
    faults: FaultTable,
    lines: RedLines,
    *,
    now: float,
    wall: float,
) -> Tables:
    """The tables as they stand at `now` (monotonic seconds)."""
    return Tables(
        wall=wall,
        windows=windows(lines),
        lines=lines_shown(lines),
        cache=cache.rows(now),
        cache_summary=cache.summaries(now),
        latency=latency.rows(now),
        faults=faults.rows(),
    )


def from_json(body: bytes) -> Tables:
    """Inverse of `Tables.to_json`. Raises `msgspec.ValidationError` on anything else."""
    return msgspec.json.decode(body, type=Tables)
