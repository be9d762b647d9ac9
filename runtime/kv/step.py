"""One packed forward of the Thinker over the pool: where it writes, what it reads and observes.

Tokens of several sequences stand one after another. A step is built after the tables have grown
and must run before pages move again. All that does not change from layer to layer is worked out
once, when the step is built.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from runtime.kv.entropy import TokenEntropy
from runtime.kv.formats import PAGE_TOKENS
from runtime.kv.observation import Nats, Observation, Sample, View, sample
from runtime.kv.pieces import KINDS, Pieces, blocks_of, cut_batch, cut_span, in_view_of, seats_of
from runtime.kv.pool import PagePool
from runtime.kv.prefetch import Transport
from runtime.kv.records import Pages
from runtime.kv.rotation import Rotation
from runtime.kv.scratch import Scratch
from runtime.kv.table import PageTable

ROUND_BYTES = 2_000_000  # of K and V read at a time: what the caches of a CPU can hold
Arrivals = Callable[[int, Pages], NDArray[np.bool_]]  # (layer, pages) -> there in time


@dataclass(frozen=True, eq=False)
class Span:
    """The last `new` tokens of a sequence's table are in this step."""

    table: PageTable
    new: int


@dataclass(frozen=True, eq=False)
class Read:
    """Pieces of one size that are read and attended in one call."""

    blocks: NDArray[np.int64]  # (pieces x width,): columns of the step's page numbers
    at: Tensor  # the same
    shape: tuple[int, int, int, int]  # pieces, slots, kv_heads, head_dim
    halves: Tensor  # (layers, 2 x blocks): the halves of native pages, all K before all V
    plain: NDArray[np.bool_]  # (layers,): all pages are native
    bias: Tensor | None  # (pieces, 1, queries or 1, slots): -inf where hidden
    blind: Tensor | None  # (pieces, queries): who sees nothing of a piece


@dataclass(frozen=True, eq=False)
class Look:
    """The new tokens of one sequence, and all they look at: a read for each modality."""

    reads: tuple[Read, ...]
    view: View


@dataclass(frozen=True, eq=False)
class Batch:
    """One new token of each of several sequences, and the pieces that they look at."""

    reads: tuple[Read, ...]
    view: View
    sizes: list[int]  # pieces of each read
    asks: Tensor  # (pieces,): whose token looks at a piece
    every: Tensor  # (pieces,): their numbers
    first: Tensor  # (spans,): the first piece of each
    seats: Tensor  # (spans x seats,): the pieces of each; some piece where it has fewer than others
    place: Tensor  # (pieces,): the seat of each
    vacant: Tensor | None  # (spans, seats, 1): where it has fewer

    def seat(self, parts: Tensor) -> Tensor:
        """`(pieces, heads)` to `(spans, seats, heads)`; of no meaning where vacant."""
        return parts.index_select(0, self.seats).unflatten(0, (len(self.first), -1))

    def seat_lse(self, lse: Tensor) -> Tensor:
        """The same, -inf where vacant."""
        seated = self.seat(lse)
        return seated if self.vacant is None else seated.masked_fill(self.vacant, -torch.inf)

    def unseat(self, seated: Tensor) -> Tensor:
        """Back to `(pieces, heads)`."""
        return seated.flatten(0, 1).index_select(0, self.place)

    def summed(self, parts: Tensor) -> Tensor:
        """`(pieces, n)` to `(spans, n)`, each span its pieces: the fastest kernel for it."""
        return embedding_bag(self.every, parts, self.first, mode="sum")


class PagedStep:
    """Passed to the language model as the forward argument `paged`.

    The entropy of every step is observed; a `sampled` one looks closer, for residency. `scratch`
    is kept from step to step. With a `transport`, host pages are brought one layer ahead.
    `arrivals` tells which pages were there in time: by default those on the device, or brought
    by then.
    """

    def __init__(
        self,
        pool: PagePool,
        spans: Sequence[Span],
        *,
        sampled: bool,
        token_entropy: TokenEntropy = TokenEntropy.LAST_QUERY,
        scratch: Scratch | None = None,
        arrivals: Arrivals | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.pool = pool
        self.spans = tuple(spans)
        self.sampled = sampled
        # Of a sampled prefill, the queries to look closer at.
        self.closer = slice(-1 if token_entropy is TokenEntropy.LAST_QUERY else 0, None)
        self._scratch = scratch or Scratch(pool.shape.dtype, pool.device)
        self._arrivals = arrivals
        self._pages = np.concatenate([span.table.matrix() for span in spans], axis=1)
        self._native = self.pool.plain(self._pages)
        # K and V halves of native pages, (halves, 16, kv_heads, head_dim), and where K stands
        self._halves = pool.arena.rows.view(-1, *pool.shape.half)
        self._half_of = pool.rows(self._pages, np.zeros(1, np.int64)) // PAGE_TOKENS
        away = pool.records.on_host[self._pages].any()
        self._prefetch = pool.prefetch(self._pages, transport) if transport and away else None
        self._blocks = blocks_of([span.table for span in spans])
        self._write, self._blank = self._writable()
        self._in_time = np.zeros(self._pages.shape, np.bool_)
        self._received = np.zeros(self._pages.shape)
        decode = all(span.new == 1 for span in spans)
        self.batch = self._batch() if decode else None
        self.looks = [] if decode else [self._look(i) for i in range(len(self.spans))]

    # ------------------------------------------------------------ pages
    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store the new tokens' K and V, `(new tokens, kv_heads, head_dim)`."""
        if self._blank.shape[1]:
            self._halves[self._blank[layer]] = 0.0
        self.pool.write(self._write[layer], keys, values)
        if self.sampled:
            self._in_time[layer] = self.arrived(layer, self._pages[layer])
        if self._prefetch is not None:
            self._prefetch.reach(layer)

    def read(self, layer: int, what: Read) -> tuple[Tensor, Tensor]:
        """K and V, each `(pieces, slots, kv_heads, head_dim)`, valid until the next read."""
        if what.plain[layer]:
            both = self._scratch.gather(self._halves, what.halves[layer])
            keys, values = both.view(2, *what.shape).to(self.pool.shape.numbers)
        else:
            rotation = None if self._rotation is None else self._rotation[what.at]
            halves = self.pool.gather(self._pages[layer][what.blocks], rotation, self._prefetch)
            keys, values = (half.view(what.shape) for half in halves)
        return keys, values

    def arrived(self, layer: int, pages: Pages) -> NDArray[np.bool_]:
        """Which pages are on the device in time; those that attention waits for are not."""
        if self._arrivals is not None:
            return self._arrivals(layer, pages)
        if self._prefetch is not None:
            return self._prefetch.in_time(pages)
        return ~self.pool.records.on_host[pages]

    @cached_property
    def _rotation(self) -> Rotation | None:
        """Of all blocks' slots; made where pages may be in a subspace, which need it."""
        subspace = self.pool.contents.subspace
        if subspace is None:
            return None
        parts = [span.table.rotation(slice(None), subspace.rotary) for span in self.spans]
        return Rotation(torch.cat([p.cos for p in parts]), torch.cat([p.sin for p in parts]))

    # ------------------------------------------------------------ what it sees
    def note_mass(self, layer: int, what: Read, mass: Tensor) -> None:
        """Attention that blocks `(pieces, width)` of a read got of the last query looking."""
        np.add.at(self._received[layer], what.blocks, mass.double().cpu().numpy().ravel())

    @cached_property
    def observations(self) -> list[Observation]:
        """What the step saw of each span. Call it behind the forward."""
        nats = self._by_span(View.nats)
        if not self.sampled:
            return [Observation(found, None) for found in nats]
        token_nats = self._by_span(View.token_nats)
        return [
            Observation(found, self._sample(index, closer))
            for index, (found, closer) in enumerate(zip(nats, token_nats, strict=True))
        ]

    def _by_span(self, entropy: Callable[[View], Nats]) -> list[Nats]:
        """`(layers, new)` of each span."""
        if self.batch is None:
            return [entropy(look.view) for look in self.looks]
        nats = entropy(self.batch.view)
        return [nats[:, index, None] for index in range(len(self.spans))]

    def _sample(self, span: int, token_nats: Nats) -> Sample:
        of = self._blocks.of(span)
        kinds = self._blocks.modality[of]
        return sample(self._received[:, of], kinds, self._in_time[:, of], token_nats)

    # ------------------------------------------------------------ built once
    def _writable(self) -> tuple[Tensor, Tensor]:
        """Rows of the new tokens, `(layers, new tokens)`, and the halves to blank before.

        The slots behind a block's tokens are read too, and hidden: they must be finite.
        """
        blocks, offsets = [], []
        for index, span in enumerate(self.spans):
            self.pool.admit(span.table.epoch)
            blocks.append(self._blocks.of(index).start + span.table.block_of[-span.new :])
            offsets.append(span.table.offset_of[-span.new :])
        at, slot = np.concatenate(blocks), np.concatenate(offsets)
        rows = self.pool.writable_rows(self._pages[:, at], slot[None], self.pool.epoch)
        opened = at[slot == 0]
        first = self._half_of[:, opened[self._blocks.fill[opened] < PAGE_TOKENS]]
        return self._tensor(rows), self._tensor(np.concatenate([first, first + 1], axis=1))

    def _batch(self) -> Batch:
        """Pieces of equal size, read in rounds of bounded bytes where a CPU's caches count."""
        pieces = self._cut()
        count, width = pieces.blocks.shape
        on_cpu = self.pool.device.type == "cpu"
        most = max(1, ROUND_BYTES // (width * self.pool.shape.native_bytes)) if on_cpu else count
        parts = [pieces.part(at, at + most) for at in range(0, count, most)]
        seats, vacant = seats_of(pieces.span)
        own = np.array([span.table.codes[-1] for span in self.spans])
        return Batch(
            reads=tuple(self._read_of(part) for part in parts),
            view=View(pieces.modality[seats], own, in_view_of(pieces), self.pool.device),
            sizes=[len(part.blocks) for part in parts],
            asks=self._tensor(pieces.span),
            every=torch.arange(count, device=self.pool.device),
            first=self._tensor(seats[:, 0].copy()),
            seats=self._tensor(seats.ravel()),
            place=self._tensor(np.flatnonzero(~vacant)),
            vacant=self._tensor(vacant[:, :, None]) if vacant.any() else None,
        )

    def _cut(self) -> Pieces:
        return cut_batch(self._blocks)

    def _look(self, index: int) -> Look:
        span = self.spans[index]
        parts = cut_span(self._blocks, index, span.new)
        codes = span.table.codes.astype(np.int64)
        kinds = np.concatenate([part.modality for part in parts])[None]
        in_view = (np.eye(KINDS)[codes].cumsum(0) > 0).sum(1)[-span.new :]
        view = View(kinds, codes[-span.new :], in_view, self.pool.device)
        return Look(tuple(self._read_of(part) for part in parts), view)

    def _read_of(self, pieces: Pieces) -> Read:
        blocks, count = pieces.blocks.ravel(), len(pieces.blocks)
        halves = self._half_of[:, blocks]
        blind = np.asarray(pieces.hidden.all(2))
        layers = range(self.pool.layers)
        return Read(
            blocks=blocks,
            at=self._tensor(blocks),
            shape=(count, len(blocks) // count * PAGE_TOKENS, *self.pool.shape.half[1:]),
            halves=self._tensor(np.concatenate([halves, halves + 1], axis=1)),
            plain=np.array(
                [self._native or self.pool.plain(self._pages[at][blocks]) for at in layers]
            ),
            bias=self._bias(pieces.hidden),
            blind=self._tensor(blind) if blind.any() else None,
        )

    def _bias(self, hidden: NDArray[np.bool_]) -> Tensor | None:
        if not hidden.any():
            return None
        bias = torch.zeros(hidden.shape, dtype=self.pool.shape.numbers, device=self.pool.device)
        return bias.masked_fill_(self._tensor(hidden), -torch.inf)[:, None]

    def _tensor(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self.pool.device)
