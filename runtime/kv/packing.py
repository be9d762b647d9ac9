"""When a sequence's blocks are packed into the pool's storage form: as soon as none of their
pages can be written or aliased any more."""

import numpy as np

from runtime.kv.formats import Format
from runtime.kv.moves import Moves
from runtime.kv.records import Pages
from runtime.kv.sequence import Sequence


class Packer:
    """`waiting`: layers whose pages must stay as they are until the reuse of a block is settled,
    so that a decision reads what was written and an alias leaves nobody's partner behind."""

    def __init__(self, moves: Moves, storage: Format, layers: int, waiting: frozenset[int]) -> None:
        self._moves = moves
        self._storage = storage
        self._prompt = np.array([k for k in range(layers) if k not in waiting], np.int64)
        self._waiting = np.array(sorted(waiting), np.int64)

    def pack(self, sequence: Sequence) -> None:
        """Pack what is ready; pages that find no room stay as they are."""
        if self._storage is Format.NATIVE:
            return
        complete, decided = sequence.table.complete(), sequence.decided
        self._pack(_pages(sequence, self._prompt, sequence.packed, complete))
        self._pack(_pages(sequence, self._waiting, sequence.packed_waiting, decided))
        sequence.packed, sequence.packed_waiting = complete, max(sequence.packed_waiting, decided)

    def _pack(self, pages: Pages) -> None:
        if len(pages):
            self._moves.pack(np.unique(pages), self._storage)


def _pages(sequence: Sequence, layers: Pages, start: int, stop: int) -> Pages:
    """Pages of these layers in blocks `start` to `stop`."""
    if stop <= start or not len(layers):
        return np.zeros(0, np.int64)
    blocks = sequence.table.blocks[start:stop]
    return np.concatenate([block.pages[layers] for block in blocks])
