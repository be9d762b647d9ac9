"""Moves between tiers: what arrives late, arrives on nothing, or finds no room."""

import numpy as np
import pytest

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
