"""One packed forward of the Thinker over the pool: where it writes, what it reads and observes.

Tokens of several sequences stand one after another. A step is built after the tables have grown
and must run before pages move again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.kv.formats import PAGE_TOKENS
from runtime.kv.pool import PagePool
from runtime.kv.residency import residency
from runtime.kv.rotation import Rotation
from runtime.kv.table import PageTable
from runtime.kv.tokens import MODALITIES


@dataclass(frozen=True, eq=False)
class Span:
    """The last `new` tokens of a sequence's table are in this step."""

    table: PageTable
    new: int


class Observation:
    """What a sampled step saw of one span: entropy of its queries, and the last query's mass."""

    def __init__(self, pool: PagePool, span: Span) -> None:
        pages = span.table.matrix()
        kinds = len(MODALITIES)
        self._on_device = ~pool.records.on_host[pages]
        self._modality = np.array([block.modality for block in span.table.blocks])
        self._block_of = span.table.block_of.copy()
        onehot = torch.eye(kinds)[torch.from_numpy(span.table.codes.astype(np.int64))]
        self.onehot = onehot.to(pool.device)  # (tokens, modalities)
        self.in_view = ((onehot.cumsum(0) > 0).sum(1)[-span.new :]).to(pool.device)
        self.nats = np.full((pool.layers, span.new), np.nan, np.float32)
        self.received = np.zeros(pages.shape)  # (layers, blocks)
        self.hit = np.zeros((pool.layers, kinds))
        self.lookup = np.zeros((pool.layers, kinds))

    def note(self, layer: int, nats: Tensor, last_mass: Tensor) -> None:
        """`nats` `(new,)`; `last_mass` `(tokens,)`: the last query's attention, heads averaged."""
        self.nats[layer] = nats.float().cpu().numpy()
        mass = np.zeros(len(self._modality))
        np.add.at(mass, self._block_of, last_mass.double().cpu().numpy())
        self.received[layer] = mass
        self.hit[layer], self.lookup[layer] = residency(
            mass, self._modality, self._on_device[layer]
        )


class PagedStep:
    """Passed to the language model as the forward argument `paged`."""

    def __init__(self, pool: PagePool, spans: Sequence[Span], *, observed: bool) -> None:
        self.pool = pool
        self.spans = tuple(spans)
        self.decode = all(span.new == 1 for span in spans)
        self._pages = [span.table.matrix() for span in spans]
        self._write = torch.from_numpy(self._writable()).to(pool.device)
        self._rotations: dict[tuple[int, ...], Rotation] = {}
        self.observations = [Observation(pool, span) for span in spans] if observed else []

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store the new tokens' K and V, `(new tokens, kv_heads, head_dim)`."""
        self.pool.write(self._write[layer], keys, values)

    def read(self, layer: int, index: int) -> tuple[Tensor, Tensor]:
        """K and V `(tokens, kv_heads, head_dim)` of all tokens of span `index`."""
        table, pages = self.spans[index].table, self._pages[index][layer]
        if self.pool.plain(pages):
            rows = self.pool.rows(pages[table.block_of], table.offset_of)
            return self.pool.read(self._on_device(rows))
        keys, values = (
            half.flatten(0, 1) for half in self.pool.gather(pages, self._rotation([index]))
        )
        rows = self._on_device(table.block_of * PAGE_TOKENS + table.offset_of)
        return keys[rows], values[rows]

    def read_batch(self, layer: int) -> tuple[Tensor, Tensor]:
        """K and V `(spans, longest, kv_heads, head_dim)`; what `lengths_mask` hides is padding."""
        tables = [span.table for span in self.spans]
        pages = [matrix[layer] for matrix in self._pages]
        every = np.concatenate(pages)
        if self.pool.plain(every):
            rows = [
                self.pool.rows(p[t.block_of], t.offset_of)
                for p, t in zip(pages, tables, strict=True)
            ]
            return self.pool.read(self._padded(rows))
        keys, values = (
            half.flatten(0, 1)
            for half in self.pool.gather(every, self._rotation(range(len(self.spans))))
        )
        bases = np.cumsum([0, *(len(p) for p in pages[:-1])])
        rows = [
            (base + t.block_of) * PAGE_TOKENS + t.offset_of
            for base, t in zip(bases, tables, strict=True)
        ]
        at = self._padded(rows)
        return keys[at], values[at]

    def lengths_mask(self) -> Tensor | None:
        """`(spans, longest)`, True for real tokens; `None` where nothing is padded."""
        lengths = torch.tensor([span.table.length for span in self.spans], device=self.pool.device)
        if int(lengths.min()) == int(lengths.max()):
            return None
        return torch.arange(int(lengths.max()), device=self.pool.device)[None] < lengths[:, None]

    def _rotation(self, spans: Iterable[int]) -> Rotation | None:
        """Of all slots of these spans' blocks, one span after another; made once."""
        subspace = self.pool.contents.subspace
        if subspace is None:
            return None
        key = tuple(spans)
        if key not in self._rotations:
            tables = [self.spans[index].table for index in key]
            parts = [table.rotation(slice(None), subspace.rotary) for table in tables]
            self._rotations[key] = Rotation(
                torch.cat([part.cos for part in parts]), torch.cat([part.sin for part in parts])
            )
        return self._rotations[key]

    def _writable(self) -> NDArray[np.int64]:
        """Rows of the new tokens, `(layers, new tokens)`."""
        columns = []
        for span, pages in zip(self.spans, self._pages, strict=True):
            blocks, offsets = (
                of[-span.new :] for of in (span.table.block_of, span.table.offset_of)
            )
            columns.append(
                self.pool.writable_rows(pages[:, blocks], offsets[None], span.table.epoch)
            )
        return np.concatenate(columns, axis=1)

    def _padded(self, rows: list[NDArray[np.int64]]) -> Tensor:
        """Ragged rows to a matrix; a sequence's own first row pads it, so padding stays finite."""
        longest = max(len(r) for r in rows)
        matrix = np.stack([np.pad(r, (0, longest - len(r)), constant_values=r[0]) for r in rows])
        return self._on_device(matrix)

    def _on_device(self, rows: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(rows).to(self.pool.device)
