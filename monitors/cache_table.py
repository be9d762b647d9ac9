"""Table 1: `layer_id | modal | entropy_th | hit_rate | gpu_mem_gb` (S4.1)."""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from monitors.contract import Count, Wire
from monitors.labels import Modality
from monitors.redlines import RedLines

GB = 1e9


class CacheCell(Wire, frozen=True):
    """One cell of table 1: a layer and a modality. Counters only grow within one process."""

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
    gpu_mem_gb: float
    reuse: str | None = None  # "on", or "off: " and why; None: the engine has not told


class Totals(NamedTuple):
    """A cell's counters since the table first saw it: they survive an engine's restart."""

    hit_mass: float
    lookup_mass: float
    entropy_sum: float
    entropy_count: float
    token_entropy_sum: float
    token_entropy_count: float

    def plus(self, other: "Totals") -> "Totals":
        return Totals(*(a + b for a, b in zip(self, other, strict=True)))

    def minus(self, other: "Totals") -> "Totals":
        return Totals(*(a - b for a, b in zip(self, other, strict=True)))


Key = tuple[int, Modality]
_NOTHING = Totals(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class CacheTable:
    """The newest cells of each version, and their hit rates over the last `window_s` seconds.

    `window_s` is by default as long as the cache rule holds. A version without an update for
    that long has no rows: what it holds is unknown. `now` is monotonic seconds.
    """

    def __init__(self, lines: RedLines, window_s: float | None = None) -> None:
        self._window_s = lines.cache.hold_s if window_s is None else window_s
        self._versions: dict[str, _Version] = {}

    def update(
        self, version: str, cells: Iterable[CacheCell], now: float, reuse: str | None = None
    ) -> None:
        """Take an engine's newest cells, all of them, and what it says of reuse. Counters that
        fell mean it was restarted."""
        by_key = {(cell.layer, cell.modality): cell for cell in cells}
        if version not in self._versions:
            self._versions[version] = _Version()
        self._versions[version].update(by_key, now, now - self._window_s)
        self._versions[version].reuse = reuse

    def rows(self, now: float) -> tuple[CacheRow, ...]:
        """The table, by version, layer and modality."""
        return tuple(
            row
            for version, state in self._known(now)
            for row in state.rows(version, now - self._window_s)
        )

    def summaries(self, now: float) -> tuple[CacheSummary, ...]:
        """One line per version."""
        return tuple(
            state.summary(version, now - self._window_s) for version, state in self._known(now)
        )

    def cells(self, now: float) -> tuple[tuple[str, CacheCell, Totals], ...]:
        """(version, newest cell, counters that never fall) of every cell, for `/metrics`."""
        return tuple(
            (version, cell, state.totals[key])
            for version, state in self._known(now)
            for key, cell in state.cells.items()
        )

    def forget(self, version: str) -> None:
        """Drop a version that is gone for good."""
        self._versions.pop(version, None)

    def _known(self, now: float) -> list[tuple[str, "_Version"]]:
        oldest = now - self._window_s
        return [(v, state) for v, state in sorted(self._versions.items()) if state.at >= oldest]


class _Version:
    """One version's cells and the history of their totals that a window needs."""

    def __init__(self) -> None:
        self.cells: dict[Key, CacheCell] = {}
        self.totals: dict[Key, Totals] = {}
        self.reuse: str | None = None
        self._history: deque[tuple[float, dict[Key, Totals]]] = deque()

    @property
    def at(self) -> float:
        """When the newest cells came."""
        return self._history[-1][0]

    def update(self, cells: dict[Key, CacheCell], now: float, since: float) -> None:
        self.totals = self._advance(cells)
        self.cells = dict(sorted(cells.items()))
        self._history.append((now, self.totals))
        while len(self._history) > 1 and self._history[1][0] <= since:
            self._history.popleft()

    def rows(self, version: str, since: float) -> list[CacheRow]:
        moved = self._moved(since)
        return [
            CacheRow(
                version=version,
                layer_id=cell.layer,
                modal=cell.modality,
                entropy_th=cell.entropy_th,
                hit_rate=_rate(moved[key]),
                gpu_mem_gb=cell.live_bytes / GB,
            )
            for key, cell in self.cells.items()
        ]

    def summary(self, version: str, since: float) -> CacheSummary:
        moved = _NOTHING
        for change in self._moved(since).values():
            moved = moved.plus(change)
        live = sum(cell.live_bytes for cell in self.cells.values())
        return CacheSummary(
            version=version, hit_rate=_rate(moved), gpu_mem_gb=live / GB, reuse=self.reuse
        )

    def _advance(self, cells: dict[Key, CacheCell]) -> dict[Key, Totals]:
        """Totals raised by what the counters gained, or by all they show after a restart."""
        new = {key: _counters(cell) for key, cell in cells.items()}
        old = {key: _counters(cell) for key, cell in self.cells.items()}
        restarted = any(
            value < before
            for key in new.keys() & old.keys()
            for value, before in zip(new[key], old[key], strict=True)
        )
        start: dict[Key, Totals] = {} if restarted else old
        return {
            key: self.totals.get(key, _NOTHING).plus(counters.minus(start.get(key, _NOTHING)))
            for key, counters in new.items()
        }

    def _moved(self, since: float) -> dict[Key, Totals]:
        """What each cell gained since the newest history entry at or before `since`.

        A younger version is measured from its first entry on.
        """
        before = [totals for at, totals in self._history if at <= since]
        base = before[-1] if before else self._history[0][1]
        return {key: now.minus(base.get(key, _NOTHING)) for key, now in self.totals.items()}


def _counters(cell: CacheCell) -> Totals:
    return Totals(
        cell.hit_mass,
        cell.lookup_mass,
        cell.entropy_sum,
        cell.entropy_count,
        cell.token_entropy_sum,
        cell.token_entropy_count,
    )


def _rate(moved: Totals) -> float | None:
    return min(moved.hit_mass / moved.lookup_mass, 1.0) if moved.lookup_mass > 0.0 else None
