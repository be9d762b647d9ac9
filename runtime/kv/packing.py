"""When a sequence's blocks are packed into the pool's storage form: as soon as none of their
pages can be written or aliased any more."""

import numpy as np
import torch

from runtime.kv.formats import Format
from runtime.kv.pool import PagePool
from runtime.kv.records import Pages
from runtime.kv.reuse import SINK_BLOCKS, ReusePolicy
from runtime.kv.rotation import Rotation
from runtime.kv.sequence import Sequence
from runtime.kv.subspace import Subspace
from runtime.kv.table import PageTable

WAITING_FORM = Format.INT8  # of pages whose block may still be aliased


class Packer:
    """`waiting`: layers whose pages must wait until the reuse of a block is settled, so that an
    alias leaves nobody's partner behind. They wait in int8, which a decision can read.

    A sequence's first block is never put into a subspace but into int8: attention sinks lie far
    from what the bases were learned on, and every later token looks at them.
    """

    def __init__(self, pool: PagePool, storage: Format, waiting: frozenset[int]) -> None:
        self._pool = pool
        self.storage = storage
        every = range(pool.layers)
        self._prompt = tuple(k for k in every if k not in waiting)
        self._waiting = tuple(k for k in every if k in waiting)

    @property
    def forms(self) -> set[Format]:
        """What it makes of pages, on the way too."""
        waits = {WAITING_FORM} if self._waiting else set[Format]()
        packs = self.storage is not Format.NATIVE
        return {self.storage, self.sink_form} | waits if packs else {self.storage}

    @property
    def sink_form(self) -> Format:
        """Of the first block."""
        return Format.INT8 if self.storage is Format.SUBSPACE else self.storage

    def pack(self, sequence: Sequence) -> None:
        """Pack what is ready; pages that find no room stay as they are."""
        if self.storage is Format.NATIVE:
            return
        complete, decided = sequence.table.complete(), sequence.decided
        if (complete, decided) == (sequence.packed, sequence.packed_waiting):
            return
        new = slice(sequence.packed, complete)
        self._pack(sequence.table, self._prompt, new)
        self._quantise(sequence.table, self._waiting, new, WAITING_FORM)
        self._pack(sequence.table, self._waiting, slice(sequence.packed_waiting, decided))
        sequence.packed, sequence.packed_waiting = complete, decided

    def _pack(self, table: PageTable, layers: tuple[int, ...], blocks: slice) -> None:
        if blocks.stop <= blocks.start or not layers:
            return
        if self.storage is not Format.SUBSPACE:
            self._quantise(table, layers, blocks, self.storage)
            return
        sinks = slice(blocks.start, min(blocks.stop, SINK_BLOCKS))
        others = slice(max(blocks.start, SINK_BLOCKS), blocks.stop)
        self._quantise(table, layers, sinks, self.sink_form)
        if others.stop > others.start:
            self._project(table.matrix()[:, others], layers, self._rotation(table, others))

    def _quantise(
        self, table: PageTable, layers: tuple[int, ...], blocks: slice, form: Format
    ) -> None:
        pages = table.matrix()[list(layers), blocks]
        if pages.size and blocks.stop > blocks.start:
            self._pool.moves.quantise(np.unique(pages), form)

    def _project(self, pages: Pages, layers: tuple[int, ...], rotation: Rotation) -> None:
        """Each pair of layers into its subspace; where the upper one reuses the lower one's page,
        that page into the lower one's own."""
        subspace = self._subspace
        for unit in {subspace.pair(layer) for layer in layers}:
            columns = pages[list(unit)].T
            shared = columns[:, 0] == columns[:, -1]
            for chosen, of in ((~shared, unit), (shared, unit[:1])):
                if chosen.any():
                    turned = rotation[torch.from_numpy(chosen)]
                    self._pool.moves.project(
                        columns[chosen][:, : len(of)], subspace.units[of], turned
                    )

    def _rotation(self, table: PageTable, blocks: slice) -> Rotation:
        return table.rotation(blocks, self._subspace.rotary)

    @property
    def _subspace(self) -> Subspace:
        subspace = self._pool.contents.subspace
        assert subspace is not None
        return subspace


def waiting(reuse: ReusePolicy) -> frozenset[int]:
    """Layers that an alias may concern, either end of it."""
    return frozenset(layer - below for layer in reuse.layers for below in (0, 1))
