"""Moves between tiers: what arrives late, arrives on nothing, or finds no room."""

import numpy as np
import pytest
import torch

from runtime.kv.formats import Format
from runtime.kv.pool import PagePool, StaleEpoch
from runtime.kv.tiers import TierLimits
from tests.unit.kv.test_kv_pool import LAYERS, SHAPE, filled, pool
from tests.unit.kv.tiny_text import T, TinyText, V, cache, opened, prompt

LONG = prompt((T, 20), (V, 100), (T, 100))


def test_a_departure_is_complete_only_on_arrival() -> None:
    p = pool()
    pages = filled(p, 4)
    (departure,) = p.moves.depart(pages)
    assert not p.records.on_host[pages].any()
    assert p.moves.arrive(departure) == 4
    assert p.records.on_host[pages].all()
    assert p.moves.arrive(departure) == 0  # a second arrival finds them there


def test_a_page_handed_out_again_meanwhile_is_not_overwritten() -> None:
    p = pool()
    pages = filled(p, 3)
    (departure,) = p.moves.depart(pages)
    p.release(pages[:2])
    again = np.array([p.allocate(1, 2, p.epoch) for _ in range(2)])
    assert set(again) == set(pages[:2])  # the same numbers
    p.records.sealed[again] = True
    assert p.moves.arrive(departure) == 1
    assert not p.records.on_host[again].any()


def test_a_page_pinned_or_moved_meanwhile_stays_where_it_is() -> None:
    p = pool()
    pages = filled(p, 3)
    (departure,) = p.moves.depart(pages)
    p.pin(pages[:1])
    p.moves.offload(pages[1:2])
    assert p.moves.arrive(departure) == 1
    assert p.records.on_host[pages].tolist() == [False, True, True]


def test_a_page_quantised_meanwhile_stays_as_it_is_now() -> None:
    p = pool()
    pages = filled(p, 2)
    (departure,) = p.moves.depart(pages)
    p.moves.quantise(pages, Format.INT4)
    assert p.moves.arrive(departure) == 0
    assert (p.records.form[pages] == Format.INT4).all()


def test_a_full_host_takes_no_more_and_nothing_leaves_for_it() -> None:
    extents = 1
    p = PagePool(
        SHAPE,
        LAYERS,
        16 * 8 * SHAPE.native_bytes,
        host_bytes=extents * 8 * SHAPE.native_bytes,
    )
    pages = filled(p, 100)
    moved = p.moves.offload(pages)
    assert 0 < moved < 100
    assert p.moves.depart(pages) == []
    assert p.host.nbytes <= extents * 8 * SHAPE.native_bytes
    back = p.moves.fetch(pages)
    assert back == moved


def test_a_move_that_a_flush_overtakes_is_refused_and_its_bytes_go(tiny: TinyText) -> None:
    kv = cache(limits=TierLimits(high=0.0, low=0.0))
    running = opened(kv, LONG)
    tiny.prefill(kv, running, observed=True)
    assert kv.settle() > 0  # under way
    kv.invalidate(1)
    with pytest.raises(StaleEpoch):
        kv.pool.admit(running.table.epoch)
    kv.settle()
    assert kv.tiers.refused == 1
    assert not kv.pool.records.on_host.any()
    kv.close(running)
    kv.sweep()
    assert set(vars(kv.stale(1)).values()) == {0}


def test_a_sweep_drops_what_is_under_way(tiny: TinyText) -> None:
    kv = cache(limits=TierLimits(high=0.0, low=0.0))
    running = opened(kv, LONG)
    tiny.prefill(kv, running, observed=True)
    kv.settle()
    kv.invalidate(1)
    kv.close(running)
    kv.sweep()
    kv.settle()
    assert kv.tiers.refused == 0  # nothing of it is left to arrive


def test_compaction_frees_an_extent_and_keeps_what_pages_hold() -> None:
    p = pool(extents=12)
    books = p.arena.books
    pages = filled(p, 60)
    p.moves.quantise(pages)
    per = books.per(int(p.records.size[pages[0]]))
    assert len(pages) > 2 * per
    kept = pages[::3]  # scattered over all extents
    p.release(np.setdiff1d(pages, kept))
    keys, values = p.gather(kept)
    stock, used = books.stock, books.used_bytes
    assert p.moves.compact() == 1
    assert books.stock == stock + 1
    assert books.used_bytes == used
    after = p.gather(kept)
    assert torch.equal(after[0], keys)
    assert torch.equal(after[1], values)
    while p.moves.compact():
        pass
    assert books.stock == books.count - -(-len(kept) // per)


def test_a_full_slab_has_nothing_to_compact() -> None:
    p = pool()
    pages = filled(p, 8)
    p.moves.quantise(pages)
    assert p.moves.compact() == 0  # one extent, and no other to bring its pages to


def test_compaction_brings_partners_along(tiny: TinyText) -> None:
    kv = cache(storage=Format.SUBSPACE, subspace=tiny.subspace(3.0))
    runs = [opened(kv, prompt((T, 200), seed=seed)) for seed in range(4)]
    for running in runs:
        tiny.prefill(kv, running)
    for running in runs[::2]:
        kv.close(running)
    while kv._index.evict():
        pass
    matrix = runs[1].table.matrix()
    before = kv.pool.gather(np.unique(matrix[:, :1]))
    exact = tiny.dense(runs[1].tokens, [5])[-1]
    assert kv.pool.moves.compact() > 0
    assert kv.check() == ()
    assert torch.equal(kv.pool.gather(np.unique(matrix[:, :1]))[0], before[0])
    hidden = tiny.paged(kv, [(runs[1], [5])])[0]
    assert float((hidden[0] - exact).norm() / exact.norm()) < 0.3


def test_the_warmest_pages_come_back_first_and_only_up_to_the_low_mark(tiny: TinyText) -> None:
    kv = cache(limits=TierLimits(high=1.0, low=0.0))
    running = opened(kv, LONG)
    tiny.prefill(kv, running, observed=True)
    table, pool = running.table, kv.pool
    pool.moves.offload(np.unique(table.matrix()[:, 1:-1]))
    room = 12 * int(pool.records.size[table.matrix()[0, 1]])
    low = (pool.live_bytes() + room + 1) / pool.arena.nbytes
    kv.tiers.limits = TierLimits(high=0.8, low=low)
    assert kv.settle() == 12
    assert kv.settle() == 0
    expected = kv.tiers.experience.expected(table.received, running.cells())[:, 1:-1]
    away = pool.records.on_host[table.matrix()[:, 1:-1]]
    assert expected[away].max() <= expected[~away].min()


def test_what_the_next_slice_will_write_is_kept_free(tiny: TinyText) -> None:
    long = prompt((V, 1000))
    kv = cache(pool_bytes=546_000, storage=Format.INT8)
    running = opened(kv, long)
    while not running.prefilled:
        at = running.table.length
        tiny.paged(kv, [(running, long.ids[at : at + 256].tolist())])
        while kv.settle():
            pass
        usable = kv.pool.arena.native_pages * kv.pool.shape.native_bytes
        assert kv.pool.live_bytes() + running.upcoming <= usable
    assert kv.check() == ()
