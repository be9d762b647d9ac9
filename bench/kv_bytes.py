"""All bytes that a cache takes, against those of a bf16 cache of the same tokens."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from bench.board import Direction, Figure
from runtime.kv.cache import KvCache
from runtime.kv.sequence import Sequence

BAR, GOAL = 3.78, 5.5  # the article's 87 -> 23 GB (S1.5), and ours


@dataclass(frozen=True)
class Held:
    """Bytes at their highest, and of a bf16 `DynamicCache` of the same tokens. `unpacked`: what
    one read was unpacked into at most, which is given back at once and not in `peak`."""

    peak: int
    bf16: int
    unpacked: int

    @property
    def ratio(self) -> float:
        return self.bf16 / self.peak


def held(kv: KvCache[Any], sequences: Iterable[Sequence]) -> Held:
    """Of a cache whose sequences are all still open: pages with their scales and empty slots at
    their peak, tables, records and bases as they are now."""
    pool, tables = kv.pool, [sequence.table for sequence in sequences]
    pages = pool.arena.books.peak_bytes + pool.host.books.peak_bytes
    taken = int((pool.records.form > 0).sum())
    records = pool.records.nbytes * taken // len(pool.records.form)
    subspace = pool.contents.subspace
    tokens = sum(table.length for table in tables)
    return Held(
        peak=pages
        + records
        + sum(table.nbytes for table in tables)
        + (0 if subspace is None else subspace.nbytes),
        unpacked=pool.contents.widest,
        bf16=tokens * pool.layers * 2 * pool.shape.channels * torch.bfloat16.itemsize,
    )


def said(what: str, found: Held, cost: str, *, target: float | None = BAR) -> Figure:
    """The ratio, and what it cost in quality."""
    peer = (
        f"bf16 DynamicCache: {found.bf16:,} bytes, here {found.peak:,}, unpacked"
        f" {found.unpacked:,} at a time; {cost}; goal {GOAL}"
    )
    bar = f"peak KV bytes, {what}"
    return Figure(bar, found.ratio, "times fewer", target, peer, Direction.AT_LEAST)
