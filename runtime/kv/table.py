"""A sequence's page table: `[layer, block] -> page`. A block holds one modality."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from runtime.kv.expected import Received
from runtime.kv.formats import PAGE_TOKENS
from runtime.kv.pool import PagePool
from runtime.kv.records import Pages
from runtime.kv.rotation import Rotary, Rotation
from runtime.kv.tokens import MODALITIES

_GROWTH = 64  # blocks


@dataclass(eq=False)
class Block:
    """One page per layer; an aliased layer's entry is the page of the layer below."""

    modality: int
    pages: Pages  # (layers,)
    fill: int = 0
    aliased: list[int] = field(default_factory=list)  # layers that point at the layer below


class PageTable:
    """Grows token by token up to `capacity` tokens; owns one use of each of its entries.

    `aliases` `(layers, modalities)` counts entries that point at the layer below.
    `positions` `(3, prompt)` are the prompt's rotary ones, kept by whoever asked; tokens behind it
    follow its last one by one, on all three axes.
    """

    def __init__(
        self, pool: PagePool, capacity: int, positions: NDArray[np.int64] | None = None
    ) -> None:
        self.pool = pool
        self._prompt = np.zeros((3, 0), np.int64) if positions is None else positions
        self.epoch = pool.epoch
        self.capacity = capacity
        self.blocks: list[Block] = []
        self.length = 0
        self.received = Received(pool.layers)
        self.aliases = np.zeros((pool.layers, len(MODALITIES)), np.int64)
        self._sealed = 0  # blocks known to be sealed
        self._pages = np.zeros((pool.layers, _GROWTH), np.int64)
        self._block_of = np.zeros(capacity, np.int32)
        self._offset_of = np.zeros(capacity, np.uint8)
        self._codes = np.zeros(capacity, np.int8)

    @property
    def nbytes(self) -> int:
        """Of the table itself."""
        every = (self._pages, self._block_of, self._offset_of, self._codes)
        return sum(array.nbytes for array in every) + self.received.nbytes

    @property
    def block_of(self) -> NDArray[np.int32]:
        """Block of each token, `(length,)`."""
        return self._block_of[: self.length]

    @property
    def offset_of(self) -> NDArray[np.uint8]:
        """Slot of each token in its block, `(length,)`."""
        return self._offset_of[: self.length]

    @property
    def codes(self) -> NDArray[np.int8]:
        """Modality code of each token, `(length,)`."""
        return self._codes[: self.length]

    def starts(self) -> NDArray[np.int64]:
        """First token of each block, `(blocks,)`."""
        return np.flatnonzero(self.offset_of == 0)

    def modalities(self) -> NDArray[np.int64]:
        """Modality code of each block, `(blocks,)`."""
        return self.codes[self.starts()].astype(np.int64)

    @property
    def positions(self) -> NDArray[np.int64]:
        """Rotary position of each token, `(3, length)`."""
        prompt = self._prompt[:, : self.length]
        first = self._prompt.max(initial=-1) + 1
        behind = np.arange(first, first + self.length - prompt.shape[1])
        return np.concatenate([prompt, np.tile(behind, (3, 1))], axis=1)

    def tokens_of(self, block: int) -> slice:
        """Where a block's tokens stand in the sequence: they follow each other."""
        start, stop = np.searchsorted(self.block_of, (block, block + 1))
        return slice(int(start), int(stop))

    def matrix(self) -> Pages:
        """All entries, `(layers, blocks)`: a view, which later changes show in."""
        return self._pages[:, : len(self.blocks)]

    def rotation(self, blocks: slice, rotary: Rotary) -> Rotation:
        """Of the tokens of some blocks by slot: `(blocks, 16, head_dim)`."""
        slots = np.zeros((3, len(self.blocks), PAGE_TOKENS), np.int64)
        slots[:, self.block_of, self.offset_of] = self.positions
        asked = torch.from_numpy(slots[:, blocks]).to(self.pool.device)
        cos, sin = rotary(asked.flatten(1))
        shape = (*asked.shape[1:], -1)
        return Rotation(cos.view(shape), sin.view(shape))

    def adopt(self, modality: int, pages: Pages, fill: int) -> None:
        """Append a complete block that the prefix index holds. The caller has retained it."""
        self._append(modality, pages)
        self._place(fill)

    def extend(self, codes: Iterable[int], new_block: Callable[[int], Pages]) -> None:
        """Make room for tokens of these modalities. `new_block(modality)` allocates a column."""
        for code in codes:
            if self.length >= self.capacity:
                raise ValueError(f"the sequence is at its capacity of {self.capacity} tokens")
            if not self._joins_tail(code):
                self._append(code, new_block(code))
            self._place(1)
            self._record_fill()

    def complete(self) -> int:
        """How many blocks no later token can join while the sequence goes on as laid out."""
        open_tail = bool(self.blocks) and self.blocks[-1].fill < PAGE_TOKENS
        return len(self.blocks) - open_tail

    def seal_complete(self) -> None:
        """After a write: complete blocks may now be quantised or moved."""
        for block in self.blocks[self._sealed : self.complete()]:
            self.pool.records.sealed[block.pages] = True
        self._sealed = self.complete()

    def alias(self, layer: int, index: int) -> None:
        """Point `layer`'s entry of block `index` at the layer below's page (S1.2)."""
        block = self.blocks[index]
        below, own = block.pages[layer - 1 : layer], block.pages[layer : layer + 1].copy()
        self.pool.retain(below)
        block.pages[layer] = below[0]
        block.aliased.append(layer)
        self.aliases[layer, block.modality] += 1
        self.pool.release(own)

    def fork(self, new_block: Callable[[int], Pages]) -> "PageTable":
        """A table that goes on by itself from here: complete blocks are shared, an open one is
        copied, as both will write to it. `new_block(modality)` allocates its column."""
        complete = self.complete()
        copies = [self._copied(block, new_block) for block in self.blocks[complete:]]
        twin = PageTable(self.pool, self.capacity, self._prompt)
        twin.epoch, twin.length, twin._sealed = self.epoch, self.length, self._sealed
        twin.received = self.received.copy()
        for name in ("_block_of", "_offset_of", "_codes"):
            setattr(twin, name, getattr(self, name).copy())
        shared = [block.pages.copy() for block in self.blocks[:complete]]
        for pages in shared:
            self.pool.retain(pages)
        for block, pages in zip(self.blocks, [*shared, *copies], strict=True):
            twin._append(block.modality, pages)
            twin.blocks[-1].fill = block.fill
        return twin

    def _copied(self, block: Block, new_block: Callable[[int], Pages]) -> Pages:
        pages = new_block(block.modality)
        self.pool.copy(block.pages, pages)
        return pages

    def close(self) -> None:
        """Give every entry back. A second call does nothing."""
        if self.blocks:
            self.pool.release(self.matrix().ravel())
        self.blocks, self.length, self._sealed = [], 0, 0
        self.aliases[:] = 0

    def _joins_tail(self, code: int) -> bool:
        tail = self.blocks[-1] if self.blocks else None
        return tail is not None and tail.modality == code and tail.fill < PAGE_TOKENS

    def _append(self, modality: int, pages: Pages) -> None:
        """A block's pages are a column of the matrix, so that neither can be stale."""
        at = len(self.blocks)
        if at == self._pages.shape[1]:
            self._pages = np.pad(self._pages, ((0, 0), (0, at)))
            for index, block in enumerate(self.blocks):
                block.pages = self._pages[:, index]
        self._pages[:, at] = pages
        column = self._pages[:, at]
        aliased = (np.flatnonzero(pages[1:] == pages[:-1]) + 1).tolist()  # if it was cached
        self.aliases[aliased, modality] += 1
        self.blocks.append(Block(modality, column, aliased=aliased))

    def _place(self, count: int) -> None:
        block, start = self.blocks[-1], self.length
        stop = start + count
        self._block_of[start:stop] = len(self.blocks) - 1
        self._offset_of[start:stop] = np.arange(block.fill, block.fill + count)
        self._codes[start:stop] = block.modality
        block.fill += count
        self.length = stop

    def _record_fill(self) -> None:
        tail = self.blocks[-1]
        self.pool.records.fill[tail.pages] = tail.fill
