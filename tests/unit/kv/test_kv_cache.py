"""The cache as the engine uses it: sequences, reuse, pressure, fallback and flush."""

import math
from contextlib import suppress

import numpy as np
import pytest
import torch

from monitors.contract import KvRung
from monitors.labels import Modality
from runtime.kv.admission import PromptTooLong
from runtime.kv.cache import KvCache
from runtime.kv.entropy import TokenEntropy
from runtime.kv.formats import Format
from runtime.kv.pool import StaleEpoch
from runtime.kv.quantise import Quantiser
from runtime.kv.reuse import (
    AtRandom,
    Calibrated,
    Candidate,
    CellRule,
    LowEntropy,
    ReusePolicy,
    Sign,
)
from runtime.kv.sequence import Sequence
from runtime.kv.slabs import EXTENT_PAGES, PoolExhausted
from runtime.kv.tiers import TierLimits
from tests.unit.kv.tiny_text import LAYERS, SETTINGS, SHAPE, TinyText, cache, opened, prompt

T, A, V = Modality.TEXT, Modality.AUDIO, Modality.VIDEO
MIXED_COMPLETE = 6  # blocks
MIXED = prompt((T, 20), (V, 37), (A, 13), (T, 20))
LONG = prompt((T, 20), (V, 100), (A, 60), (T, 100))


def small(pages: int, **changes: object) -> KvCache:
    """A cache of about this many native pages."""
    extents = -(-pages // EXTENT_PAGES) + 1
    needed = extents * EXTENT_PAGES * SHAPE.native_bytes
    return cache(pool_bytes=int(needed / 0.75) + 1, **changes)


def share(kv: KvCache, kind: str) -> float:
    cells = [c for c in kv.cells() if c.lookup_mass > 0]
    return sum(getattr(c, kind) for c in cells)


def test_a_prompt_that_can_never_fit_is_refused_in_words() -> None:
    with pytest.raises(PromptTooLong, match="send less or ask for less"):
        small(40, host_bytes=0).open(prompt((T, 500)), 10, salt="", write=True)


def test_a_prompt_waits_while_others_may_need_the_room() -> None:
    kv = small(60)
    first = opened(kv, prompt((T, 100)), max_new=60)  # reserves 10 blocks of 4 layers
    assert kv.open(prompt((T, 100), seed=1), 60, salt="", write=True) is None
    assert kv.live_sequences == 1
    kv.close(first)
    assert kv.open(prompt((T, 100), seed=1), 60, salt="", write=True) is not None


def test_a_prompt_that_fits_the_whole_pool_does_not_wait_for_prefixes_nobody_uses(
    tiny: TinyText,
) -> None:
    kv = small(60)
    for seed in range(3):
        running = opened(kv, prompt((T, 40), seed=seed))
        tiny.prefill(kv, running)
        kv.close(running)
    kv.set_kv(KvRung.INT8)  # a few int8 pages hold whole extents that native ones cannot use
    while kv.settle():
        pass
    tokens = 16 * kv.pool.arena.native_pages // LAYERS
    assert kv.open(prompt((T, tokens - 10), seed=7), 10, salt="", write=True) is not None


def test_unused_prefixes_make_way_for_new_sequences(tiny: TinyText) -> None:
    kv = small(60)
    for seed in range(6):
        running = opened(kv, prompt((T, 90), seed=seed))
        tiny.prefill(kv, running)
        kv.close(running)
    assert kv.check() == ()
    assert opened(kv, prompt((T, 90), seed=5)).cached == 80
    assert opened(kv, prompt((T, 10), seed=0), max_new=1).cached == 0


def test_a_request_that_may_not_write_leaves_no_trace(tiny: TinyText) -> None:
    kv = cache()
    running = opened(kv, MIXED, write=False)
    tiny.prefill(kv, running)
    kv.close(running)
    assert opened(kv, MIXED).cached == 0


def test_tenants_do_not_share(tiny: TinyText) -> None:
    kv = cache()
    tiny.prefill(kv, opened(kv, MIXED, salt="one"))
    assert opened(kv, MIXED, salt="two").cached == 0
    assert opened(kv, MIXED, salt="one").cached > 0


def test_a_hit_brings_the_talkers_states_of_media_tokens(tiny: TinyText) -> None:
    kv = cache()
    first = opened(kv, MIXED)
    tiny.prefill(kv, first)
    again = opened(kv, MIXED)
    assert first.states is not None
    assert again.states is not None
    assert torch.equal(again.states[20:70], first.states[20:70])


def test_closing_twice_does_nothing(tiny: TinyText) -> None:
    kv = cache()
    running = opened(kv, MIXED)
    tiny.prefill(kv, running)
    kv.close(running)
    kv.close(running)
    assert kv.check() == ()


def test_an_observed_step_fills_table_one_and_the_entropy_buffer(tiny: TinyText) -> None:
    kv = cache()
    running = opened(kv, MIXED)
    tiny.prefill(kv, running, observed=True)
    cells = {(c.layer, c.modality): c for c in kv.cells()}
    assert len(cells) == LAYERS * 4
    assert all(c.entropy_th is None for c in cells.values())
    assert share(kv, "hit_mass") == share(kv, "lookup_mass") > 0.9 * LAYERS
    assert np.isnan(kv.entropy.values[running.row, :, :20]).all()  # text alone: undefined
    nats = kv.entropy.values[running.row, :, 20:90]
    assert ((nats >= 0) & (nats <= np.log(4))).all()
    assert cells[0, V].entropy_count == 37
    assert running.lookup.sum() == pytest.approx(running.hit.sum())


def test_a_step_that_is_not_sampled_has_entropy_but_no_residency(tiny: TinyText) -> None:
    kv = cache()
    running = opened(kv, MIXED)
    tiny.prefill(kv, running)
    cells = {(c.layer, c.modality): c for c in kv.cells()}
    assert all(c.lookup_mass == 0 and c.token_entropy_count == 0 for c in cells.values())
    assert not running.sampled
    assert cells[0, V].entropy_count == 37


def test_a_sampled_step_measures_its_last_query_at_token_level_too(tiny: TinyText) -> None:
    kv = cache()
    tiny.prefill(kv, opened(kv, MIXED), observed=True)
    counts = {m: sum(c.token_entropy_count for c in kv.cells() if c.modality is m) for m in (T, V)}
    assert counts == {T: LAYERS, V: 0}
    every = cache(token_entropy=TokenEntropy.EVERY_QUERY)
    tiny.prefill(every, opened(every, MIXED), observed=True)
    cells = {(c.layer, c.modality): c for c in every.cells()}
    assert cells[0, V].token_entropy_count == cells[0, V].entropy_count == 37


def test_one_step_in_n_is_sampled(tiny: TinyText) -> None:
    kv = cache(observe_every=4)
    running = opened(kv, prompt((T, 12)))
    tiny.prefill(kv, running, size=1)
    assert share(kv, "lookup_mass") == pytest.approx(3 * LAYERS, rel=0.05)


# ---------------------------------------------------------------- reuse
ALWAYS = ReusePolicy("on", LowEntropy(dict.fromkeys(Modality, 9.0)), layers=(1,))


def aliased(sequence: Sequence) -> list[int]:
    return [i for i, block in enumerate(sequence.table.blocks) if block.aliased]


def test_reuse_aliases_settled_blocks_but_neither_sinks_nor_the_newest_tokens(
    tiny: TinyText,
) -> None:
    kv = cache(reuse=ALWAYS)
    running = opened(kv, LONG)
    tiny.prefill(kv, running, size=64, observed=True)
    table = running.table
    tokens = np.isin(table.block_of, aliased(running)).nonzero()[0]
    assert tokens.min() == 20  # text before the first media token has no defined entropy
    assert tokens.max() < table.length - 64
    assert all(
        block.pages[1] == block.pages[0] and block.pages[2] != block.pages[3]
        for block in (table.blocks[i] for i in aliased(running))
    )
    assert sum(c.alias_pages for c in kv.cells()) == len(aliased(running))
    assert kv.check() == ()


def test_a_guard_decides_from_the_pages_themselves(tiny: TinyText) -> None:
    counts: list[int] = []
    for guard in (None, math.inf, 0.0):
        rule = Calibrated({(1, m): CellRule(Sign.BELOW, 9.0, guard) for m in Modality})
        kv = cache(reuse=ReusePolicy("on", rule, layers=(1,)))
        running = opened(kv, LONG)
        tiny.prefill(kv, running, size=64, observed=True)
        counts.append(len(aliased(running)))
        assert kv.check() == ()
    assert counts[0] == counts[1] > 0 == counts[2]


def test_the_distance_is_between_the_two_layers_pages(tiny: TinyText) -> None:
    found: dict[int, float] = {}

    class Noting(AtRandom):
        def picks(self, entry: Candidate) -> bool:
            found[entry.layer] = entry.distance()
            return False

    kv = cache(reuse=ReusePolicy("on", Noting(1.0), layers=(1,)))
    running = opened(kv, LONG)
    tiny.prefill(kv, running, size=64, observed=True)
    last = running.table.blocks[running.decided - 1]
    halves = [half[:, : last.fill] for half in kv.pool.gather(last.pages[:2])]
    by_hand = max(float((h[1] - h[0]).norm() / h[1].norm()) for h in halves)
    assert found[1] == pytest.approx(by_hand, rel=1e-5)


def test_where_reuse_was_stopped_nothing_more_is_kept_under_the_old_keys(tiny: TinyText) -> None:
    kv = cache(reuse=ALWAYS)
    running = opened(kv, LONG)
    tiny.prefill(kv, running, size=64, observed=True)
    kept, table = len(kv._index), running.table.matrix()
    kv.stop_reuse("tripped")
    assert (kv.reuse.state, kv.reuse.on) == ("off: tripped", False)
    again = opened(kv, LONG)
    assert again.cached == 0
    tiny.prefill(kv, again, size=64, observed=True)
    assert aliased(again) == []
    assert np.array_equal(running.table.matrix(), table)  # it keeps its aliases
    kv.absorb(running, torch.zeros(0, 8), None)
    assert len(kv._index) == kept + again.indexed
    assert kv.check() == ()


def test_a_sequence_apart_adopts_nothing_and_keeps_nothing(tiny: TinyText) -> None:
    kv = cache()
    tiny.prefill(kv, opened(kv, MIXED))
    before = kv.prefix_lookup_tokens
    apart = kv.open_apart(MIXED, 4)
    assert apart is not None
    assert (apart.cached, len(apart.table.blocks)) == (0, 0)
    assert kv.prefix_lookup_tokens == before
    kv.close(apart)
    full = small(40)
    assert full.open(prompt((T, 60)), 60, salt="", write=True) is not None
    assert full.open_apart(prompt((T, 60), seed=1), 60) is None
    assert full.live_sequences == 1


def test_reuse_frees_the_pages_it_replaces(tiny: TinyText) -> None:
    live = []
    for reuse in (ALWAYS, SETTINGS.reuse):
        kv = cache(reuse=reuse)
        tiny.prefill(kv, opened(kv, LONG), size=64, observed=True)
        live.append(sum(c.live_bytes for c in kv.cells()))
    assert live[0] < 0.95 * live[1]


def test_with_reuse_a_prefix_hit_attends_to_the_same_aliases(tiny: TinyText) -> None:
    kv = cache(reuse=ALWAYS)
    first = opened(kv, LONG)
    tiny.prefill(kv, first, size=64, observed=True)
    again = opened(kv, LONG)
    assert 0 < again.cached < len(LONG) - 64
    shared = len(again.table.blocks)
    assert np.array_equal(again.table.matrix(), first.table.matrix()[:, :shared])


def test_random_reuse_keeps_to_the_same_blocks_and_differs_from_prompt_to_prompt(
    tiny: TinyText,
) -> None:
    every, chosen = [], []
    for share in (1.0, 0.5):
        kv = cache(reuse=ReusePolicy("on", AtRandom(share), layers=(1,)))
        for seed in range(4):
            running = opened(kv, prompt((T, 20), (V, 100), (A, 60), (T, 100), seed=seed))
            tiny.prefill(kv, running, size=64, observed=True)
            (every if share == 1.0 else chosen).append(aliased(running))
        assert kv.check() == ()
    assert [blocks == every[0] for blocks in every] == [True] * 4
    assert 0 not in every[0]
    assert all(0 < len(some) < len(of) for some, of in zip(chosen, every, strict=True))
    assert all(set(some) <= set(of) for some, of in zip(chosen, every, strict=True))
    assert len({tuple(some) for some in chosen}) > 1


def test_random_reuse_chooses_alike_behind_a_prefix_hit_and_without_one(tiny: TinyText) -> None:
    longer, chosen = prompt((T, 20), (V, 100), (A, 60), (T, 180)), []
    for before in (LONG, None):
        kv = cache(reuse=ReusePolicy("on", AtRandom(0.5), layers=(1,)))
        if before is not None:
            tiny.prefill(kv, opened(kv, before), size=64, observed=True)
        running = opened(kv, longer)
        assert (running.cached > 0) == (before is not None)
        tiny.prefill(kv, running, size=64, observed=True)
        pages = running.table.matrix()
        chosen.append((pages[1] == pages[0]).tolist())
    assert chosen[0] == chosen[1]
    assert 0 < sum(chosen[0]) < len(chosen[0])


# ---------------------------------------------------------------- pressure and fallback
def test_pressure_moves_a_fifth_of_running_pages_to_the_host_and_brings_them_back(
    tiny: TinyText,
) -> None:
    kv = small(100, limits=TierLimits(high=0.3, low=0.2))
    running = opened(kv, LONG)
    tiny.prefill(kv, running, observed=True)
    before = sum(c.live_bytes for c in kv.cells())
    moved = kv.settle()
    assert sum(c.host_bytes for c in kv.cells()) == 0  # on their way
    kv.settle()
    cells = kv.cells()
    movable = kv.pool.layers * (running.table.complete() - 1)
    assert moved == np.ceil(0.2 * movable)
    assert sum(c.live_bytes for c in cells) < before
    assert sum(c.host_bytes for c in cells) == moved * Quantiser(Format.INT8, SHAPE).page_bytes
    assert not kv.pool.records.on_host[running.table.blocks[0].pages].any()
    while kv.settle():
        pass
    assert kv.pool.live_share() <= 0.3
    kv.tiers.limits = TierLimits(high=0.9, low=0.8)
    while kv.settle():
        pass
    assert sum(c.host_bytes for c in kv.cells()) == 0
    assert kv.check() == ()


def test_attention_that_reads_the_host_misses_and_stays_right(tiny: TinyText) -> None:
    kv = cache()
    running = opened(kv, LONG)
    tiny.prefill(kv, running)
    exact = tiny.dense(LONG, [5])[-1]
    kv.pool.moves.offload(np.unique(running.table.matrix()))
    hidden = tiny.paged(kv, [(running, [5])], observed=True)[0]
    assert float((hidden[0] - exact).norm() / exact.norm()) < 0.05
    assert share(kv, "hit_mass") < 0.5 * share(kv, "lookup_mass")


def test_the_coldest_pages_leave_first(tiny: TinyText) -> None:
    kv = cache(limits=TierLimits(high=0.0, low=0.0, entropy_weight=0.0))
    running = opened(kv, LONG)
    tiny.prefill(kv, running, observed=True)
    kv.settle()
    kv.tiers.limits = TierLimits(high=1.0, low=0.0)
    kv.settle()
    table = running.table
    expected = kv.tiers.experience.expected(table.received, running.cells())[:, 1:-1]
    gone = kv.pool.records.on_host[table.matrix()[:, 1:-1]]
    assert expected[gone].max() <= expected[~gone].min()


def test_the_fallback_turns_the_pool_to_int8_a_bounded_number_of_pages_a_step(
    tiny: TinyText,
) -> None:
    kv = cache(limits=TierLimits(blocks_per_step=3))
    running = opened(kv, LONG)
    tiny.prefill(kv, running)
    before = sum(c.live_bytes for c in kv.cells())
    wanted = kv.set_kv(KvRung.INT8)
    steps = []
    while moved := kv.settle():
        steps.append(moved)
    assert sum(steps) == wanted == LAYERS * running.table.complete()
    assert max(steps) == 3 * LAYERS
    assert sum(c.live_bytes for c in kv.cells()) < 0.5 * before
    assert kv.set_kv(KvRung.NATIVE) == 0
    assert kv.check() == ()


def test_a_fallback_keeps_its_prefix_hits(tiny: TinyText) -> None:
    kv = cache()
    running = opened(kv, MIXED)
    tiny.prefill(kv, running)
    kv.close(running)
    kv.set_kv(KvRung.INT8)
    while kv.settle():
        pass
    assert opened(kv, MIXED).cached == 86
    assert kv.check() == ()


# ---------------------------------------------------------------- flush
def test_a_flush_misses_at_once_and_leaves_nothing_of_the_old_epoch(tiny: TinyText) -> None:
    kv = cache()
    done, running = opened(kv, MIXED), opened(kv, prompt((T, 50), seed=9))
    tiny.prefill(kv, done)
    tiny.prefill(kv, running)
    kv.close(done)
    kv.pool.moves.offload(np.flatnonzero(kv.pool.records.sealed & (kv.pool.records.form > 0))[:5])
    kv.encoders.put("clip", 0, torch.zeros(10), tokens=1)
    kv.invalidate(4)
    assert opened(kv, MIXED).cached == 0
    stale = kv.stale(4)
    assert min(stale.pages, stale.host_pages, stale.encoder_outputs, stale.talker_states) > 0
    with pytest.raises(StaleEpoch):
        tiny.paged(kv, [(running, [3])])
    kv.close(running)
    kv.sweep()
    assert set(vars(kv.stale(4)).values()) == {0}
    assert kv._scratch.nbytes == 0
    assert kv.check() == ()


def test_a_sequence_of_an_old_epoch_never_enters_the_index(tiny: TinyText) -> None:
    kv = cache()
    running = opened(kv, MIXED)
    spans = [kv.grow(running, 90)]
    kv.step(spans, observed=False)
    kv.invalidate(1)
    kv.absorb(running, torch.zeros(90, 8), None)
    kv.close(running)
    assert kv.stale(1).pages == 0


# ---------------------------------------------------------------- forks
def test_a_fork_goes_on_as_the_other_would_have_and_neither_sees_the_others_words(
    tiny: TinyText,
) -> None:
    kv = cache()
    running = opened(kv, MIXED)
    tiny.prefill(kv, running)
    twin = kv.fork(running)
    assert twin is not None
    ours, theirs = tiny.paged(kv, [(running, [5]), (twin, [7])])
    assert torch.allclose(ours[0], tiny.dense(MIXED, [5])[-1], atol=1e-4)
    assert torch.allclose(theirs[0], tiny.dense(MIXED, [7])[-1], atol=1e-4)
    shared = running.table.matrix()[:, :MIXED_COMPLETE]
    assert (shared == twin.table.matrix()[:, :MIXED_COMPLETE]).all()
    kv.close(running)
    theirs = tiny.paged(kv, [(twin, [9])])[0]
    assert torch.allclose(theirs[0], tiny.dense(MIXED, [7, 9])[-1], atol=1e-4)
    kv.close(twin)
    assert kv.check() == ()


def test_a_fork_that_finds_no_room_leaves_nothing_behind(tiny: TinyText) -> None:
    kv = small(32, host_bytes=0)
    running = opened(kv, prompt((T, 100)), max_new=12)
    tiny.prefill(kv, running)
    with suppress(PoolExhausted):
        while True:
            kv.pool.pin(np.array([kv.new_page(0, 0)]))
    with pytest.raises(PoolExhausted):
        kv.fork(running)
    assert len(kv._sequences) == 1
    pinned = int((kv.pool.records.pins > 0).sum())  # each of them has a use of its own too
    assert int(kv.pool.records.uses.sum()) - pinned == running.taken


def test_an_adopted_block_counts_its_aliases_too(tiny: TinyText) -> None:
    kv = cache(reuse=ReusePolicy("on", AtRandom(1.0), (1,)))
    first = opened(kv, LONG)
    tiny.prefill(kv, first, observed=True)
    before = sum(c.alias_pages for c in kv.cells())
    assert before > 0
    kv.close(first)
    opened(kv, LONG)
    assert 0 < sum(c.alias_pages for c in kv.cells()) <= before
