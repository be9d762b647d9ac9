"""Table 1: `layer_id | modal | entropy_th | hit_rate | gpu_mem_gb` (S4.1)."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from monitors.contract import Count, Wire
from monitors.labels import Modality
from monitors.redlines import RedLines

GB = 1e9
STALE_S = 15.0  # without an update for so long, what a version holds is unknown


class CacheCell(Wire, frozen=True, array_like=True):
    """One cell of table 1: a layer and a modality. Counters only grow within one process.

    It travels without its field names: a snapshot has hundreds of cells every second.
    """

    layer: int
    modality: Modality
    entropy_th: float | None  # None: reuse is off for this cell
    hit_mass: float
    lookup_mass: float
    entropy_sum: float  # modality-mass, nats
    entropy_count: int
    token_entropy_sum: float  # token-level, nats
    token_entropy_count: int
    live_bytes: int
    evictable_bytes: int
    host_bytes: int
    alias_pages: int


class CacheRow(Wire, frozen=True):
    """One line of table 1, under the article's column names."""

    version: str
    layer_id: Count
    modal: Modality
    entropy_th: float | None  # nats; None: reuse is off
    hit_rate: float | None  # residency over the window; None: nothing was looked up
    gpu_mem_gb: float


class CacheSummary(Wire, frozen=True):
    """What the cache rule reads: all layers and modalities of one version together (DESIGN 5)."""

    version: str
    hit_rate: float | None  # weighted by attention mass
    gpu_mem_gb: float | None  # None: the engine cannot show what its pool holds
    reuse: str | None = None  # "on", or "off: " and why; None: the engine has not told


COUNTERS = (
    "hit_mass",
    "lookup_mass",
    "entropy_sum",
    "entropy_count",
    "token_entropy_sum",
    "token_entropy_count",
)
"""A cell's counters, in the order of the columns of `CellState.totals`."""
HIT, LOOKUP = COUNTERS.index("hit_mass"), COUNTERS.index("lookup_mass")

Key = tuple[int, Modality]
Totals = NDArray[np.float64]  # (cells, counters)
_counters_of = attrgetter(*COUNTERS)
_live_bytes_of = attrgetter("live_bytes")


@dataclass(frozen=True, eq=False)
class CellState:
    """One version's newest cells, by layer and modality; a new one comes with each update.

    `totals`: their counters since the table first saw them, which survive an engine's restart.
    """

    version: str
    keys: tuple[Key, ...]
    cells: tuple[CacheCell, ...]
    totals: Totals


class CacheTable:
    """The newest cells of each version, and their hit rates over the last `window_s` seconds.

    `window_s` is by default as long as the cache rule holds; where updates come less often, what
    came between the last two counts. A version whose engine is gone, or was not heard for
    `STALE_S`, has no rows. `now` is monotonic seconds.
    """

    def __init__(self, lines: RedLines, window_s: float | None = None) -> None:
        self._window_s = lines.cache.hold_s if window_s is None else window_s
        self._versions: dict[str, _Version] = {}

    def update(
        self, version: str, cells: Iterable[CacheCell], now: float, reuse: str | None = None
    ) -> None:
        """Take an engine's newest cells, all of them, and what it says of reuse. Its counters go on
        from the last update; that they start again is for `lost_sight` to say."""
        by_key = {(cell.layer, cell.modality): cell for cell in cells}
        if version not in self._versions:
            self._versions[version] = _Version(version)
        self._versions[version].update(by_key, now, now - self._window_s)
        self._versions[version].reuse = reuse

    def rows(self, now: float) -> tuple[CacheRow, ...]:
        """The table, by version, layer and modality."""
        return tuple(row for state in self._known(now) for row in state.rows(now - self._window_s))

    def summaries(self, now: float) -> tuple[CacheSummary, ...]:
        """One line per version."""
        return tuple(state.summary(now - self._window_s) for state in self._known(now))

    def cells(self, now: float) -> tuple[CellState, ...]:
        """The cells of every version, for `/metrics`."""
        return tuple(state.newest for state in self._known(now))

    def lost_sight(self, version: str) -> None:
        """Its engine is gone: what it holds is unknown until the next one tells, which counts from
        0. Totals are kept."""
        if version in self._versions:
            self._versions[version].lost_sight()

    def forget(self, version: str) -> None:
        """A version is here no more: its totals go as well."""
        self._versions.pop(version, None)

    def _known(self, now: float) -> list["_Version"]:
        oldest = now - STALE_S
        return [
            state
            for _, state in sorted(self._versions.items())
            if state.in_sight and state.at >= oldest
        ]


class _Version:
    """One version's cells and the history of their totals that a window needs."""

    def __init__(self, version: str) -> None:
        nothing = np.zeros((0, len(COUNTERS)))
        self.newest = CellState(version, (), (), nothing)
        self.reuse: str | None = None
        self.in_sight = True
        self._counters = nothing
        self._history: deque[tuple[float, CellState]] = deque()

    @property
    def at(self) -> float:
        """When the newest cells came."""
        return self._history[-1][0]

    def lost_sight(self) -> None:
        self.in_sight = False
        self._counters = np.zeros_like(self._counters)

    def update(self, by_key: dict[Key, CacheCell], now: float, since: float) -> None:
        self.in_sight = True
        keys = tuple(sorted(by_key))
        cells = tuple(by_key[key] for key in keys)
        counters = np.array([_counters_of(cell) for cell in cells], np.float64)
        counters = counters.reshape(len(cells), len(COUNTERS))
        counters, totals = self._advance(keys, counters)
        if keys == self.newest.keys:
            keys = self.newest.keys  # the same object, so that looking for changes costs nothing
        self.newest, self._counters = (
            CellState(self.newest.version, keys, cells, totals),
            counters,
        )
        self._history.append((now, self.newest))
        while len(self._history) > 1 and self._history[1][0] <= since:
            self._history.popleft()

    def rows(self, since: float) -> list[CacheRow]:
        return [
            CacheRow(
                version=self.newest.version,
                layer_id=cell.layer,
                modal=cell.modality,
                entropy_th=cell.entropy_th,
                hit_rate=_rate(hit, lookup),
                gpu_mem_gb=cell.live_bytes / GB,
            )
            for cell, (hit, lookup) in zip(
                self.newest.cells, self._moved(since).tolist(), strict=True
            )
        ]

    def summary(self, since: float) -> CacheSummary:
        hit, lookup = self._moved(since).sum(0).tolist()
        cells = self.newest.cells
        return CacheSummary(
            version=self.newest.version,
            hit_rate=_rate(hit, lookup),
            gpu_mem_gb=sum(map(_live_bytes_of, cells)) / GB if cells else None,
            reuse=self.reuse,
        )

    def _advance(self, keys: tuple[Key, ...], counters: Totals) -> tuple[Totals, Totals]:
        """The highest that the counters were, and totals raised by what they gained. A sum that
        fell, by rounding, gained nothing: to take it for a restart would count all cells again."""
        old = _aligned(self.newest.keys, self._counters, keys)
        before = _aligned(self.newest.keys, self.newest.totals, keys)
        highest = np.maximum(counters, old)
        return highest, before + (highest - old)

    def _moved(self, since: float) -> Totals:
        """Hit and lookup mass that each cell gained since the newest entry at or before `since`,
        or since the last but one where that is older.

        A younger version is measured from its first entry on.
        """
        base = self._history[0][1]
        for at, state in islice(self._history, len(self._history) - 1):
            if at > since:
                break
            base = state
        columns = [HIT, LOOKUP]
        before = _aligned(base.keys, base.totals[:, columns], self.newest.keys)
        return self.newest.totals[:, columns] - before


def _aligned(keys: tuple[Key, ...], rows: Totals, wanted: tuple[Key, ...]) -> Totals:
    """The rows of `wanted` keys; 0 for one that was not there."""
    if keys is wanted or keys == wanted:
        return rows
    place = {key: index for index, key in enumerate(keys)}
    found = np.zeros((len(wanted), rows.shape[1]))
    for index, key in enumerate(wanted):
        if key in place:
            found[index] = rows[place[key]]
    return found


def _rate(hit: float, lookup: float) -> float | None:
    return min(hit / lookup, 1.0) if lookup > 0.0 else None
