"""The three tables in one message: what `GET /tables` returns and the terminal shows (S4)."""

import msgspec

from monitors.cache_table import CacheRow, CacheSummary, CacheTable
from monitors.contract import Wire
from monitors.fault_table import FaultRow, FaultTable
from monitors.latency_table import LatencyRow, LatencyTable


class Tables(Wire, frozen=True):
    """All three tables at calendar time `wall`. `None` in a row is unknown, never zero."""

    wall: float
    cache: tuple[CacheRow, ...]
    cache_summary: tuple[CacheSummary, ...]
    latency: tuple[LatencyRow, ...]
    faults: tuple[FaultRow, ...]

    def to_json(self) -> bytes:
        """The body of `GET /tables`."""
        return msgspec.json.encode(self)


def snapshot(
    cache: CacheTable, latency: LatencyTable, faults: FaultTable, *, now: float, wall: float
) -> Tables:
    """The tables as they stand at `now` (monotonic seconds)."""
    return Tables(
        wall=wall,
        cache=cache.rows(now),
        cache_summary=cache.summaries(now),
        latency=latency.rows(),
        faults=faults.rows(),
    )


def from_json(body: bytes) -> Tables:
    """Inverse of `Tables.to_json`. Raises `msgspec.ValidationError` on anything else."""
    return msgspec.json.decode(body, type=Tables)
