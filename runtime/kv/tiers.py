"""Moving pages under pressure (S1.4) and turning the pool to int8 (S4.1), a few pages a step.

A move to the host ends in the round after the one that began it: between devices the copy takes
its time, and what was flushed meanwhile is refused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from monitors.contract import KvRung
from monitors.redlines import CacheLines
from runtime.kv.entropy import EntropyBuffer
from runtime.kv.formats import Format
from runtime.kv.moves import Departure
from runtime.kv.pool import PagePool, StaleEpoch
from runtime.kv.records import Pages
from runtime.kv.table import PageTable


@dataclass(frozen=True)
class TierLimits:
    """`high`, `low`: live bytes over the pool's bytes at which pages leave and come back."""

    high: float = 0.85
    low: float = 0.70
    share: float = CacheLines().pressure_share  # of the pages of running sequences, at a time
    entropy_weight: float = 0.2  # 1 is the article's rule; see DESIGN 5 for why it is small
    pages_per_step: int = 96  # bounds what one engine step can lose to moving pages


class Running(Protocol):
    """A running sequence and its row of the entropy buffer."""

    @property
    def table(self) -> PageTable: ...
    @property
    def row(self) -> int: ...


class Tiers:
    """Keeps the pool inside its watermarks and brings its pages to the wanted format."""

    def __init__(self, pool: PagePool, entropy: EntropyBuffer, limits: TierLimits) -> None:
        self._pool = pool
        self._entropy = entropy
        self.limits = limits
        self.kv = KvRung.NATIVE
        self.refused = 0  # moves that arrived after a flush
        self._leaving: list[Departure] = []

    def settle(self, running: Sequence[Running]) -> int:
        """One bounded round of work; returns the pages moved. 0: nothing is left to do."""
        moved = self._arrive() + self._quantise_some()
        share = self._pool.live_share()
        if share > self.limits.high:
            return moved + self._relieve(running)
        if share < self.limits.low:
            return moved + self._restore()
        return moved

    def make_room(self, running: Sequence[Running]) -> int:
        """Move pages to the host at once, where a step cannot wait for a round; how many moved."""
        return self._arrive() + self._relieve(running) + self._arrive()

    def unquantised(self) -> Pages:
        """Device pages that INT8 wants and that are still native: live ones first."""
        records = self._pool.records
        rows = (records.form == Format.NATIVE) & records.sealed
        pages = np.flatnonzero(rows)
        return pages[np.argsort(~records.live()[pages], kind="stable")]

    def forget(self) -> None:
        """Drop the bytes of moves that a flush has overtaken."""
        self._leaving = [d for d in self._leaving if d.epoch == self._pool.epoch]

    def _arrive(self) -> int:
        """End the moves that began before; the pool refuses those of a flushed epoch."""
        leaving, self._leaving = self._leaving, []
        moved = 0
        for departure in leaving:
            try:
                self._pool.admit(departure.epoch)
            except StaleEpoch:
                self.refused += 1
                continue
            moved += self._pool.moves.arrive(departure)
        return moved

    def _quantise_some(self) -> int:
        if self.kv is KvRung.NATIVE:
            return 0
        return self._pool.moves.quantise(self.unquantised()[: self.limits.pages_per_step])

    def _relieve(self, running: Sequence[Running]) -> int:
        """The share of running pages with the highest score leaves for the host."""
        scored = list(self._scored(running))
        if not scored:
            return 0
        pages, first = np.unique(np.concatenate([p for p, _, _ in scored]), return_index=True)
        nats = np.concatenate([n for _, n, _ in scored])[first]
        received = np.concatenate([r for _, _, r in scored])[first]
        count = min(int(np.ceil(self.limits.share * len(pages))), self.limits.pages_per_step)
        chosen = pages[np.argsort(-self._score(nats, received))[:count]]
        self._leaving = self._pool.moves.depart(chosen)
        return sum(len(departure.pages) for departure in self._leaving)

    def _score(
        self, nats: NDArray[np.float64], received: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """w x rank(entropy) + (1-w) x rank(-received attention); unmeasured entropy ranks last."""
        w = self.limits.entropy_weight
        entropy_rank = np.argsort(np.argsort(np.nan_to_num(nats, nan=-1.0)))
        cold_rank = np.argsort(np.argsort(-received))
        return w * entropy_rank + (1 - w) * cold_rank

    def _scored(
        self, running: Sequence[Running]
    ) -> Iterator[tuple[Pages, NDArray[np.float64], NDArray[np.float64]]]:
        """Movable pages of each block, their mean entropy and the attention they received.

        A sequence's first block stays: it holds the attention sinks.
        """
        records = self._pool.records
        for sequence in running:
            table = sequence.table
            for index, block in enumerate(table.blocks[1:], start=1):
                pages = block.pages
                movable = (
                    records.sealed[pages] & ~records.on_host[pages] & (records.pins[pages] == 0)
                )
                if movable.any():
                    yield (
                        pages[movable],
                        self._block_nats(sequence, index)[movable],
                        block.received[movable],
                    )

    def _block_nats(self, sequence: Running, index: int) -> NDArray[np.float64]:
        """Mean entropy of a block's tokens by layer, NaN where none was measured."""
        tokens = sequence.table.tokens_of(index)
        nats = self._entropy.values[sequence.row][:, tokens].astype(np.float64)
        measured = ~np.isnan(nats)
        total = np.where(measured, nats, 0.0).sum(1)
        count = measured.sum(1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def _restore(self) -> int:
        """Host pages of running sequences come back while there is room below the watermark."""
        records = self._pool.records
        wanted = np.flatnonzero(records.on_host_pages() & (records.uses > 0))
        return self._pool.moves.fetch(wanted[: self.limits.pages_per_step])
