"""How keys are cut for attention: pieces of blocks of one modality, with what a query may not see.

Softmax does not mind the order of keys, so a piece takes a sequence's blocks of one modality from
wherever they stand. Attention over the pieces, merged by their log-sum-exp, is exact, and the
log-sum-exps are the attention mass of each modality (DESIGN 5).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.kv.formats import PAGE_TOKENS
from runtime.kv.table import PageTable
from runtime.kv.tokens import MODALITIES

KINDS = len(MODALITIES)
WIDTHS = (1, 2, 4, 8, 16, 32, 64)  # blocks of a piece in a batch
_PIECE_COST = 1  # of a piece beyond its blocks, in blocks: what a kernel call for it takes
_SLOTS = np.arange(PAGE_TOKENS)


@dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of several tables behind each other, by columns `(blocks,)`."""

    span: NDArray[np.int64]  # which table
    start: NDArray[np.int64]  # its first token's place in the sequence
    fill: NDArray[np.int64]
    modality: NDArray[np.int64]

    def of(self, span: int) -> slice:
        """Where a table's blocks stand."""
        start, stop = np.searchsorted(self.span, (span, span + 1))
        return slice(int(start), int(stop))


@dataclass(frozen=True, eq=False)
class Pieces:
    """Pieces of equal size. A short one repeats its first block, hidden."""

    blocks: NDArray[np.int64]  # (pieces, width): columns of `Blocks`
    hidden: NDArray[np.bool_]  # (pieces, queries or 1, slots): what a query may not see
    span: NDArray[np.int64]  # (pieces,)
    modality: NDArray[np.int64]  # (pieces,)

    def part(self, start: int, stop: int) -> "Pieces":
        of = slice(start, stop)
        return Pieces(self.blocks[of], self.hidden[of], self.span[of], self.modality[of])


def blocks_of(tables: Sequence[PageTable]) -> Blocks:
    """The columns of all blocks, table by table."""
    starts = [np.flatnonzero(table.offset_of == 0) for table in tables]
    lengths = [table.length for table in tables]
    fills = [np.diff(start, append=n) for start, n in zip(starts, lengths, strict=True)]
    kinds = [table.codes[start] for table, start in zip(tables, starts, strict=True)]
    return Blocks(
        span=np.repeat(np.arange(len(tables)), [len(start) for start in starts]),
        start=np.concatenate(starts),
        fill=np.concatenate(fills),
        modality=np.concatenate(kinds).astype(np.int64),
    )


def cut_batch(blocks: Blocks) -> Pieces:
    """For one query a table, behind all its tokens: pieces of equal width, whichever width
    wastes least, in the order of the tables."""
    key = blocks.span * KINDS + blocks.modality
    counts = np.bincount(key)
    width = _best_width(counts)
    order, each = np.argsort(key, kind="stable"), -(-counts // width)
    rank = np.arange(len(key)) - np.repeat(np.cumsum(counts) - counts, counts)
    row = np.repeat(np.cumsum(each) - each, counts) + rank // width
    real = np.zeros((each.sum(), width), np.bool_)
    real[row, rank % width] = True
    chosen = np.zeros(real.shape, np.int64)
    chosen[row, rank % width] = order
    chosen = np.where(real, chosen, chosen[:, :1])
    fill = np.where(real, blocks.fill[chosen], 0)
    span, modality = np.divmod(np.repeat(np.arange(len(counts)), each), KINDS)
    hidden = fill[:, :, None] <= _SLOTS
    return Pieces(chosen, hidden.reshape(len(chosen), 1, -1), span, modality)


def cut_span(blocks: Blocks, span: int, new: int) -> list[Pieces]:
    """For the last `new` tokens of a table: one piece for each modality it holds."""
    of = blocks.of(span)
    length = int(blocks.fill[of].sum())
    queries = np.arange(length - new, length)
    pieces = []
    for modality in np.unique(blocks.modality[of]):
        mine = of.start + np.flatnonzero(blocks.modality[of] == modality)
        place = (blocks.start[mine, None] + _SLOTS).ravel()
        empty = (blocks.fill[mine, None] <= _SLOTS).ravel()
        later = place[None] > queries[:, None]
        if not later[0, ~empty].any():
            later = later[:1] & False  # all of it stands before every query
        pieces.append(
            Pieces(mine[None], (later | empty)[None], np.array([span]), np.array([modality]))
        )
    return pieces


def seats_of(span: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Pieces of each span side by side, `(spans, seats)`, from the span of each, in order; and
    which seats are vacant: there some piece of the span stands again."""
    taken = np.bincount(span)
    seat = np.arange(taken.max())
    vacant = seat >= taken[:, None]
    first = np.cumsum(taken) - taken
    return first[:, None] + np.where(vacant, 0, seat), vacant


def in_view_of(pieces: Pieces) -> NDArray[np.int64]:
    """How many modalities each span has, `(spans,)`."""
    present = np.zeros((pieces.span.max() + 1, KINDS), np.bool_)
    present[pieces.span, pieces.modality] = True
    return present.sum(1)


def _best_width(counts: NDArray[np.int64]) -> int:
    """Of `WIDTHS`, the one for which reading `counts` blocks of each kind costs least."""
    return min(WIDTHS, key=lambda width: int((-(-counts // width)).sum()) * (width + _PIECE_COST))
