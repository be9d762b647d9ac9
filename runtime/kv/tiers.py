"""Moving pages under pressure (S1.4) and turning the pool to int8 (S4.1), a few pages a step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from monitors.contract import KvRung
from monitors.redlines import CacheLines
from runtime.kv.entropy import EntropyBuffer
from runtime.kv.formats import Format
from runtime.kv.pool import PagePool, Pages
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

    def settle(self, running: Sequence[Running]) -> int:
        """One bounded round of work; returns the pages moved. 0: nothing is left to do."""
        share = self._pool.live_share()
        moved = self._quantise_some()
        if share > self.limits.high:
            return moved + self._relieve(running)
        if share < self.limits.low:
            return moved + self._restore()
        return moved

    def unquantised(self) -> Pages:
        """Device pages that INT8 wants and that are still native: live ones first."""
        pool = self._pool
        rows = (pool.form == Format.NATIVE) & pool.sealed
        pages = np.flatnonzero(rows)
        return pages[np.argsort(~pool.live()[pages], kind="stable")]

    def _quantise_some(self) -> int:
        if self.kv is KvRung.NATIVE:
            return 0
        return self._pool.quantise(self.unquantised()[: self.limits.pages_per_step])

    def _relieve(self, running: Sequence[Running]) -> int:
        """The share of running pages with the highest score goes to the host as int8."""
        scored = list(self._scored(running))
        if not scored:
            return 0
        pages, first = np.unique(np.concatenate([p for p, _, _ in scored]), return_index=True)
        nats = np.concatenate([n for _, n, _ in scored])[first]
        received = np.concatenate([r for _, _, r in scored])[first]
        count = min(int(np.ceil(self.limits.share * len(pages))), self.limits.pages_per_step)
        return self._pool.offload(pages[np.argsort(-self._score(nats, received))[:count]])

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
        pool = self._pool
        for sequence in running:
            table = sequence.table
            for index, block in enumerate(table.blocks[1:], start=1):
                pages = block.pages
                movable = pool.sealed[pages] & ~pool.on_host[pages] & (pool.pins[pages] == 0)
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
        pool = self._pool
        wanted = np.flatnonzero(pool.on_host & (pool.form > 0) & (pool.uses > 0))
        return pool.fetch(wanted[: self.limits.pages_per_step])
