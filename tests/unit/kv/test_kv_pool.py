"""The pool: forms, tiers, epochs and the account; and its invariants under any order of work."""

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runtime.kv.account import held_before
from runtime.kv.audit import check
from runtime.kv.formats import PAGE_TOKENS, Format, PageShape
from runtime.kv.pool import PagePool, StaleEpoch
from runtime.kv.quantise import Quantiser
from runtime.kv.slabs import EXTENT_PAGES, PoolExhausted, PoolTooSmall
from runtime.kv.table import PageTable

SHAPE = PageShape(kv_heads=2, head_dim=4, dtype=torch.float32)
LAYERS = 4
INT8 = Quantiser(Format.INT8, SHAPE)


def pool(extents: int = 6, epoch: int = 0) -> PagePool:
    return PagePool(SHAPE, LAYERS, extents * EXTENT_PAGES * SHAPE.native_bytes, epoch)


def filled(p: PagePool, count: int) -> np.ndarray:
    """Sealed pages of layer 0 with random content."""
    pages = np.array([p.allocate(0, 0, p.epoch) for _ in range(count)])
    offsets = np.tile(np.arange(PAGE_TOKENS), count)
    rows = p.writable_rows(np.repeat(pages, PAGE_TOKENS), offsets, p.epoch)
    torch.manual_seed(1)
    k, v = torch.randn(2, len(rows), SHAPE.kv_heads, SHAPE.head_dim)
    p.write(torch.from_numpy(rows), k, v)
    p.records.fill[pages], p.records.sealed[pages] = PAGE_TOKENS, True
    return pages


def test_content_survives_device_host_and_back() -> None:
    p = pool()
    pages = filled(p, 9)
    k, _ = p.gather(pages)
    assert p.moves.offload(pages) == 9
    on_host, _ = p.gather(pages)
    assert p.moves.fetch(pages) == 9
    back, _ = p.gather(pages)
    assert on_host == pytest.approx(k, abs=0.03)
    assert torch.equal(back, on_host)
    assert check(p, [pages], []) == ()


def test_a_full_pool_can_still_be_quantised_and_then_has_room() -> None:
    p = pool()
    pages = filled(p, 5 * EXTENT_PAGES)
    with pytest.raises(PoolExhausted):
        p.allocate(0, 0, 0)
    assert p.moves.quantise(pages) == len(pages)
    assert p.allocate(0, 0, 0) >= 0


def test_a_pinned_page_may_be_quantised_but_never_leaves_the_device() -> None:
    p = pool()
    pages = filled(p, 2)
    p.pin(pages[:1])
    assert p.moves.offload(pages) == 1
    assert p.moves.quantise(pages[:1]) == 1
    assert not p.records.on_host[pages[0]]


def test_live_and_evictable_bytes_follow_the_owners() -> None:
    p = pool()
    pages = filled(p, 3)
    p.hold(pages)
    p.release(pages[:2])
    p.pin(pages[:1])
    account = p.account()
    assert account.live[0, 0] == 2 * SHAPE.native_bytes
    assert account.evictable[0, 0] == SHAPE.native_bytes
    p.moves.offload(pages[1:])
    account = p.account()
    assert account.evictable[0, 0] == 0
    assert account.host[0, 0] == 2 * INT8.page_bytes


def test_a_page_given_up_too_often_is_an_error() -> None:
    p = pool()
    pages = filled(p, 1)
    p.hold(pages)
    p.release(pages)
    with pytest.raises(ValueError, match="more often"):
        p.release(pages)


def test_writes_of_an_old_epoch_are_refused() -> None:
    p = pool()
    page = np.array([p.allocate(0, 0, 0)])
    p.advance(3)
    with pytest.raises(StaleEpoch):
        p.writable_rows(page, np.array([0]), 0)
    with pytest.raises(StaleEpoch):
        p.allocate(0, 0, 0)
    p.advance(2)
    assert p.epoch == 3  # an epoch never falls


def test_sealed_or_quantised_pages_are_never_written() -> None:
    p = pool()
    pages = filled(p, 1)
    with pytest.raises(ValueError, match="unsealed native"):
        p.writable_rows(pages, np.array([0]), 0)


def test_a_pool_of_one_extent_is_refused_in_words() -> None:
    with pytest.raises(PoolTooSmall, match="too small: give it at least"):
        pool(extents=1)


def test_the_audit_names_lost_pages_and_wrong_counts() -> None:
    p = pool()
    pages = filled(p, 2)
    p.records.uses[pages[0]] = 0
    p.records.uses[pages[1]] = 7
    p.records.slot[pages[1]] = p.records.slot[pages[0]]
    found = " / ".join(check(p, [pages], []))
    assert "lost" in found
    assert "counts 7" in found
    assert "belongs to more than one page" in found


class PoolLife(RuleBasedStateMachine):
    """Tables grow, alias, share, pin, quantise, move, close and are flushed in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = pool(extents=4)
        self.tables: list[PageTable] = []
        self.held: list[np.ndarray] = []
        self.pinned: list[np.ndarray] = []

    def _column(self, modality: int) -> np.ndarray:
        pages: list[int] = []
        try:
            for layer in range(LAYERS):
                pages += [self.pool.allocate(layer, modality, self.pool.epoch)]
        except PoolExhausted:
            self.pool.release(np.array(pages, np.int64))
            raise
        return np.array(pages)

    def _blocks(self) -> list[tuple[PageTable, int]]:
        return [(t, i) for t in self.tables for i in range(len(t.blocks))]

    @rule(modality=st.integers(0, 3), tokens=st.integers(1, 40))
    def grow(self, modality: int, tokens: int) -> None:
        table = PageTable(self.pool, 200)
        self.tables.append(table)
        try:
            table.extend([modality] * tokens, self._column)
        except PoolExhausted:
            self.tables.remove(table)
            table.close()
        else:
            table.seal_complete()

    @precondition(lambda self: self._blocks())
    @rule(pick=st.integers(0, 99), layer=st.sampled_from([1, 3]))
    def alias(self, pick: int, layer: int) -> None:
        table, index = self._blocks()[pick % len(self._blocks())]
        if layer not in table.blocks[index].aliased:
            table.alias(layer, index)

    @precondition(lambda self: self._blocks())
    @rule(pick=st.integers(0, 99), what=st.sampled_from(["hold", "pin", "quantise", "offload"]))
    def treat(self, pick: int, what: str) -> None:
        table, index = self._blocks()[pick % len(self._blocks())]
        pages = table.blocks[index].pages.copy()
        if what == "hold":
            self.pool.hold(pages)
            self.held.append(pages)
        elif what == "pin":
            self.pool.pin(pages)
            self.pinned.append(pages)
        else:
            getattr(self.pool.moves, what)(np.unique(pages))

    @rule()
    def fetch(self) -> None:
        self.pool.moves.fetch(np.flatnonzero(self.pool.records.on_host_pages()))

    @precondition(lambda self: self.tables)
    @rule(pick=st.integers(0, 99))
    def close(self, pick: int) -> None:
        self.tables.pop(pick % len(self.tables)).close()

    @precondition(lambda self: self.held)
    @rule()
    def drop(self) -> None:
        self.pool.drop(self.held.pop())

    @precondition(lambda self: self.pinned)
    @rule()
    def unpin(self) -> None:
        self.pool.unpin(self.pinned.pop())

    @rule()
    def flush(self) -> None:
        self.pool.advance(self.pool.epoch + 1)
        while self.tables:
            self.tables.pop().close()
        while self.held:
            self.drop()
        while self.pinned:
            self.unpin()
        assert held_before(self.pool.records, self.pool.epoch).bytes == 0
        assert self.pool.host.nbytes == 0

    @invariant()
    def nothing_is_broken(self) -> None:
        uses = [table.matrix().ravel() for table in self.tables]
        assert check(self.pool, uses, self.held) == ()


TestPoolLife = PoolLife.TestCase
TestPoolLife.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
