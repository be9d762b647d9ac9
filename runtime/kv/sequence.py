"""One request as the cache knows it: its table, its keys, and what was observed of it."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from runtime.kv.expected import cells_of
from runtime.kv.index import Key
from runtime.kv.table import PageTable
from runtime.kv.tokens import MODALITIES, TEXT, PromptTokens


@dataclass(frozen=True)
class Need:
    """Pages a sequence may come to have, and what one takes once it is packed and before."""

    pages: int
    stored_bytes: int  # of a page at rest on the device
    native_bytes: int
    fresh: int  # pages that may be native at a time
    away: int = 0  # pages that are planned to be on the host in the end

    def owed(self, taken: int) -> int:
        """Bytes still to be taken when it has `taken` pages."""
        left = max(0, self.pages - taken)
        return left * self.stored_bytes + min(left, self.fresh) * (
            self.native_bytes - self.stored_bytes
        )


def _mass() -> NDArray[np.float64]:
    return np.zeros(len(MODALITIES))


@dataclass(eq=False)
class Sequence:
    """`states` `(prompt tokens, hidden)`: the Talker's layer, filled as media tokens pass."""

    tokens: PromptTokens
    table: PageTable
    row: int  # in the entropy buffer
    root: Key
    keys: list[Key]  # of the prompt's complete blocks
    write: bool  # False: leaves no trace in the index
    need: Need  # what it may come to take in all
    cached: int = 0  # prompt tokens found in the cache
    decided: int = 0  # blocks whose reuse is settled
    decides_at: int = 0  # tokens it must have for the next one
    packed: int = 0  # blocks whose pages are in the storage form, ...
    packed_waiting: int = 0  # ... and those of layers that waited for the decision
    indexed: int = 0  # blocks that are in the index
    sampled: bool = False
    states: Tensor | None = None
    hit: NDArray[np.float64] = field(default_factory=_mass)  # (modalities,)
    lookup: NDArray[np.float64] = field(default_factory=_mass)

    @property
    def prefilled(self) -> bool:
        return self.table.length >= len(self.tokens)

    @property
    def taken(self) -> int:
        """Page-table entries it has."""
        return self.table.pool.layers * len(self.table.blocks)

    @property
    def upcoming(self) -> int:
        """Bytes that its next step may take: a slice of a prompt, or a block of an answer."""
        left = self.need.pages - self.taken
        most = self.table.pool.layers if self.prefilled else self.need.fresh
        return min(left, most) * self.need.native_bytes

    def to_leave(self) -> int:
        """Pages that are still to go to the host as planned."""
        there = self.table.pool.records.on_host[self.table.matrix()].sum()
        return max(0, self.need.away - int(there))

    def next_codes(self, count: int) -> NDArray[np.int8]:
        """Modalities of its next `count` tokens: the prompt's, then text."""
        prompt = self.tokens.codes[self.table.length : self.table.length + count]
        return np.concatenate([prompt, np.full(count - len(prompt), TEXT, np.int8)])

    def cells(self) -> NDArray[np.int64]:
        """What tells its blocks apart for those that foresee attention, `(blocks,)`."""
        return cells_of(self.table.modalities(), self.table.starts(), len(self.tokens))

    def parent_key(self, block: int) -> Key:
        return self.keys[block - 1] if block else self.root
