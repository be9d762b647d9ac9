"""Moving pages under pressure (S1.4) and turning the pool to int8 (S4.1), a few pages a step.

A move to the host ends in the round after the one that began it: between devices the copy takes
its time, and what was flushed meanwhile is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from monitors.contract import KvRung
from monitors.redlines import CacheLines
from runtime.kv.entropy import EntropyBuffer
from runtime.kv.expected import Experience
from runtime.kv.formats import Format
from runtime.kv.moves import Departure
from runtime.kv.pool import PagePool, StaleEpoch
from runtime.kv.records import Pages
from runtime.kv.table import PageTable

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class TierLimits:
    """`high`, `low`: live bytes over the pool's bytes at which pages leave and come back."""

    high: float = 0.85
    low: float = 0.70
    share: float = CacheLines().pressure_share  # of the pages of running sequences, at a time
    entropy_weight: float = 0.2  # 1 is the article's rule; see DESIGN 5 for why it is small
    blocks_per_step: int = (
        24  # a page a layer each: more than a slice writes, less than a step costs
    )


class Running(Protocol):
    """A running sequence, its row of the entropy buffer, the bytes that its next step may
    take and the cells of its blocks."""

    @property
    def table(self) -> PageTable: ...
    @property
    def row(self) -> int: ...
    @property
    def upcoming(self) -> int: ...
    def cells(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True, eq=False)
class Slots:
    """Slots that running sequences read, by the page that leads each; all `(slots,)`."""

    leaders: Pages
    pages: NDArray[np.int64]  # one, or two partners
    nats: Scores  # mean entropy of the tokens; NaN where none was measured
    expected: Scores  # attention that a page of it can expect, of all its readers


class Tiers:
    """Keeps the pool inside its watermarks and brings its pages to the wanted format."""

    def __init__(self, pool: PagePool, entropy: EntropyBuffer, limits: TierLimits) -> None:
        self._pool = pool
        self._entropy = entropy
        self.limits = limits
        self.experience = Experience(pool.layers)
        self.kv = KvRung.NATIVE
        self.refused = 0  # moves that arrived after a flush
        self._leaving: list[Departure] = []

    def settle(self, running: Sequence[Running]) -> int:
        """One bounded round of work; returns the pages moved. 0: nothing is left to do."""
        moved = self._arrive() + self._quantise_some()
        low, high = self._marks(running)
        live = self._pool.live_bytes()
        if live > high:
            return moved + self._relieve(running)
        return moved + (self._restore(running, low - live) if live < low else 0)

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

    @property
    def _most(self) -> int:
        """Pages of one round."""
        return self.limits.blocks_per_step * self._pool.layers

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
        return self._pool.moves.quantise(self.unquantised()[: self._most])

    # ------------------------------------------------------------ under pressure
    def _marks(self, running: Sequence[Running]) -> tuple[float, float]:
        """Live bytes up to which pages come back, and over which they leave.

        What the next step may write stays free: else pages that came back would make room for it
        at once, slice by slice.
        """
        arena, limits = self._pool.arena, self.limits
        usable = arena.native_pages * self._pool.shape.native_bytes
        spared = usable - max((sequence.upcoming for sequence in running), default=0)
        high = min(limits.high * arena.nbytes, spared)
        gap = (limits.high - limits.low) * arena.nbytes
        return min(limits.low * arena.nbytes, high - gap), high

    def _relieve(self, running: Sequence[Running]) -> int:
        """The share of running pages with the highest score leaves for the host.

        A sequence's first block stays: it holds the attention sinks.
        """
        records = self._pool.records
        slots = self._slots(running, records.sealed & ~records.on_host & (records.pins == 0))
        many = min(int(np.ceil(self.limits.share * slots.pages.sum())), self._most)
        order = np.argsort(-self._score(slots))
        before = np.cumsum(slots.pages[order]) - slots.pages[order]
        self._leaving = self._pool.moves.depart(slots.leaders[order[before < many]])
        return sum(len(departure.pages) for departure in self._leaving)

    def _score(self, slots: Slots) -> Scores:
        """w x rank(entropy) + (1-w) x rank(-received attention); unmeasured entropy ranks last."""
        w = self.limits.entropy_weight
        entropy_rank = np.argsort(np.argsort(np.nan_to_num(slots.nats, nan=-1.0)))
        cold_rank = np.argsort(np.argsort(-slots.expected))
        return w * entropy_rank + (1 - w) * cold_rank

    def _restore(self, running: Sequence[Running], room: float) -> int:
        """Host pages of running sequences come back, the warmest first, to fill `room` bytes."""
        pool = self._pool
        away = pool.records.on_host_pages() & (pool.records.uses > 0)
        if not away.any():  # as in nearly every step
            return 0
        slots = self._slots(running, away)
        order = np.argsort(-slots.expected)[: self._most]
        fits = np.cumsum(pool.records.size[slots.leaders[order]]) <= room
        return pool.moves.fetch(slots.leaders[order[fits]])

    def _slots(self, running: Sequence[Running], which: NDArray[np.bool_]) -> Slots:
        """Those with a page of `which`, in all blocks but the first of each sequence."""
        none = np.zeros(0)
        read = [(none.astype(np.int64), none, none), *(self._read(each) for each in running)]
        entries, nats, expected = (np.concatenate(of) for of in zip(*read, strict=True))
        at = which[entries]
        pages, inverse = np.unique(entries[at], return_inverse=True)
        leaders, leads = np.unique(self._pool.records.leaders(pages), return_inverse=True)
        per_slot = np.bincount(leads)
        return Slots(
            leaders=leaders,
            pages=per_slot,
            nats=_mean(nats[at], leads[inverse]),
            expected=np.bincount(leads[inverse], expected[at]) / np.maximum(per_slot, 1),
        )

    def _read(self, sequence: Running) -> tuple[Pages, Scores, Scores]:
        """Page-table entries behind the first block, their mean entropy and expected attention."""
        table = sequence.table
        expected = self.experience.expected(table.received, sequence.cells())
        nats = self._block_nats(sequence)
        return table.matrix()[:, 1:].ravel(), nats[:, 1:].ravel(), expected[:, 1:].ravel()

    def _block_nats(self, sequence: Running) -> Scores:
        """Mean entropy of each block's tokens `(layers, blocks)`, NaN where none was measured."""
        table = sequence.table
        nats = self._entropy.read(sequence.row, table.length).astype(np.float64)
        measured, starts = ~np.isnan(nats), table.starts()
        total = np.add.reduceat(np.where(measured, nats, 0.0), starts, axis=1)
        count = np.add.reduceat(measured, starts, axis=1, dtype=np.int64)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _mean(values: Scores, of: NDArray[np.int64]) -> Scores:
    """Mean of `values` by the number `of` each; NaN, unmeasured, counts nowhere."""
    size, known = int(of.max(initial=-1)) + 1, ~np.isnan(values)
    count = np.bincount(of[known], minlength=size)
    total = np.bincount(of[known], values[known], minlength=size)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
