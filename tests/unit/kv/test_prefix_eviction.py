"""What goes first when room is short: cost x reuse / bytes, children before their parents."""

import gc
from collections.abc import Iterable
from weakref import WeakSet

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from runtime.kv.account import held_before
from runtime.kv.eviction import EVEN_DEPTH, Ranking, block_cost, encoder_cost
from runtime.kv.formats import PageShape
from runtime.kv.index import Entry, PrefixIndex
from runtime.kv.pool import PagePool
from runtime.kv.slabs import EXTENT_PAGES
from tests.unit.kv.test_kv_pool import filled, pool

COST = 16.0


def nobody(_: object) -> bool:
    return False


def gone(ranking: Ranking[str], used: Iterable[str] = ()) -> list[str]:
    """What goes, in order, while `used` is in use."""
    busy, order = set(used), []
    while (key := ranking.take(busy.__contains__)) is not None:
        order.append(key)
    return order


def ranking_of(*kept: tuple[str, float, int]) -> Ranking[str]:
    """Things on offer: name, cost, bytes."""
    sizes = {name: nbytes for name, _, nbytes in kept}
    ranking: Ranking[str] = Ranking(sizes.__getitem__)
    for name, cost, _ in kept:
        ranking.add(name, cost)
        ranking.offer(name)
    return ranking


# ---------------------------------------------------------------- the rule
def test_what_is_cheap_to_make_again_goes_first() -> None:
    assert gone(ranking_of(("dear", 9, 10), ("cheap", 3, 10))) == ["cheap", "dear"]


def test_what_takes_more_bytes_goes_first() -> None:
    assert gone(ranking_of(("small", 3, 10), ("large", 3, 30))) == ["large", "small"]


def test_what_was_used_more_often_stays_longer() -> None:
    ranking = ranking_of(("often", 3, 10), ("once", 3, 10))
    ranking.use("often")
    assert gone(ranking) == ["once", "often"]


def test_of_two_alike_the_older_goes_first() -> None:
    assert gone(ranking_of(("a", 3, 10), ("b", 3, 10), ("c", 3, 10))) == ["a", "b", "c"]


def test_bytes_are_those_of_now_not_of_when_it_was_kept() -> None:
    sizes = {"a": 40, "b": 40}
    ranking: Ranking[str] = Ranking(sizes.__getitem__)
    for name in sizes:
        ranking.add(name, 4.0)
        ranking.offer(name)
    sizes["a"] = 10  # turned to int8
    assert gone(ranking) == ["b", "a"]


def test_what_is_in_use_is_passed_over_and_not_lost() -> None:
    ranking = ranking_of(("a", 1, 10), ("b", 2, 10), ("c", 3, 10))
    assert gone(ranking, used=("a", "b")) == ["c"]
    assert gone(ranking) == ["a", "b"]


def test_what_is_withdrawn_stays_until_it_is_offered_again() -> None:
    ranking = ranking_of(("a", 1, 10), ("b", 2, 10))
    ranking.withdraw("a")
    assert gone(ranking) == ["b"]
    ranking.offer("a")
    ranking.offer("a")
    assert gone(ranking) == ["a"]


def test_a_later_block_and_a_media_block_cost_more_to_make_again() -> None:
    assert block_cost(0, 16, media=False) == pytest.approx(16, rel=0.01)
    deep = block_cost(EVEN_DEPTH, EVEN_DEPTH + 16, media=False)
    assert deep == pytest.approx(2 * 16, rel=0.01)
    media = block_cost(0, 16, media=True)
    assert media == block_cost(0, 16, media=False) + encoder_cost(16)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_least_priority_always_goes_and_the_clock_never_turns_back(data: st.DataObject) -> None:
    """Against the rule as it is written, over a plain list."""
    sizes: dict[int, int] = {}
    ranking: Ranking[int] = Ranking(sizes.__getitem__)
    kept: dict[int, list[float]] = {}  # cost, uses, clock
    clock = 0.0
    for name in range(data.draw(st.integers(5, 40))):
        match data.draw(st.sampled_from(["add", "add", "use", "shrink", "take"])):
            case "use" if kept:
                key = data.draw(st.sampled_from(sorted(kept)))
                ranking.use(key)
                kept[key][1:] = [kept[key][1] + 1, clock]
            case "shrink" if kept:
                key = data.draw(st.sampled_from(sorted(kept)))
                sizes[key] = max(1, sizes[key] // 2)
            case "take" if kept:
                worth = {k: t + c * n / sizes[k] for k, (c, n, t) in kept.items()}
                key = ranking.take(nobody)
                assert key is not None
                assert worth[key] == min(worth.values())
                assert worth[key] >= clock
                clock = worth[key]
                del kept[key]
            case _:
                cost = float(data.draw(st.integers(1, 9)))
                sizes[name], kept[name] = data.draw(st.integers(1, 99)), [cost, 1, clock]
                ranking.add(name, cost)
                ranking.offer(name)


# ---------------------------------------------------------------- what an eviction costs
class Looks:
    """Bytes of a hundred thousand things; counts how often somebody asks."""

    def __init__(self) -> None:
        self.count = 0
        self.nbytes = 40

    def __call__(self, _: int) -> int:
        self.count += 1
        return self.nbytes


MANY = 100_000


def many(looks: Looks) -> Ranking[int]:
    ranking: Ranking[int] = Ranking(looks)
    for key in range(MANY):
        ranking.add(key, COST)
        ranking.offer(key)
    looks.count = 0
    return ranking


def test_a_storm_over_a_full_pool_looks_at_each_thing_once_or_twice() -> None:
    looks = Looks()
    ranking = many(looks)
    for _ in range(MANY):
        ranking.take(nobody)
    assert looks.count <= 2 * MANY


def test_no_single_eviction_looks_at_more_than_a_few_though_all_have_risen() -> None:
    looks = Looks()
    ranking = many(looks)
    looks.nbytes = 10  # the whole pool was turned to int8
    for _ in range(1000):
        looks.count = 0
        assert ranking.take(nobody) is not None
        assert looks.count < 100


def test_things_in_use_are_not_looked_at_again_by_every_eviction() -> None:
    looks = Looks()
    ranking = many(looks)
    for _ in range(1000):
        ranking.take(range(16).__contains__)
    assert looks.count < 3 * 1000


class Thing:
    """Something whose end can be seen."""


def test_what_is_forgotten_or_withdrawn_does_not_pile_up() -> None:
    ranking: Ranking[Thing] = Ranking(lambda _: 1)
    seen = WeakSet[Thing]()
    for _ in range(3000):
        thing = Thing()
        seen.add(thing)
        ranking.add(thing, COST)
        ranking.offer(thing)
        ranking.forget(thing)
    del thing
    gc.collect()
    assert len(seen) < 100


# ---------------------------------------------------------------- in the index
def entry(pages: np.ndarray, parent: bytes = b"root", cost: float = COST) -> Entry:
    return Entry(parent, 0, pages, None, epoch=0, cost=cost)


def left(index: PrefixIndex, *keys: bytes) -> list[bytes]:
    return [key for key in keys if index.match([key])]


def test_a_parent_outlives_its_children_however_cheap_it_is() -> None:
    p = pool()
    pages = filled(p, 3)
    index = PrefixIndex(p, state_budget=10**6)
    index.insert(b"a", entry(pages[0:1], cost=1.0))
    index.insert(b"aa", entry(pages[1:2], parent=b"a", cost=99.0))
    index.insert(b"b", entry(pages[2:3], cost=50.0))
    p.release(pages)
    order = []
    while index.evict():
        order.append(left(index, b"a", b"aa", b"b"))
    assert order == [[b"a", b"aa"], [b"a"], []]
    assert index.evictions == 3
    assert held_before(p.records, 1).pages == 0


@pytest.mark.parametrize("owner", ["uses", "pins"])
def test_what_a_sequence_uses_or_somebody_pins_stays_until_it_is_let_go(owner: str) -> None:
    p = pool()
    pages = filled(p, 2)
    index = PrefixIndex(p, state_budget=10**6)
    index.insert(b"owned", entry(pages[:1], cost=1.0))
    index.insert(b"free", entry(pages[1:], cost=9.0))
    if owner == "pins":
        p.pin(pages[:1])
        p.release(pages[:1])
    p.release(pages[1:])
    assert index.evict()
    assert not index.evict()
    assert left(index, b"owned", b"free") == [b"owned"]
    (p.unpin if owner == "pins" else p.release)(pages[:1])
    assert index.evict()
    assert len(index) == 0


def test_a_block_turned_to_int8_is_worth_more_per_byte() -> None:
    p = pool()
    pages = filled(p, 2)
    index = PrefixIndex(p, state_budget=10**6)
    index.insert(b"packed", entry(pages[:1]))
    index.insert(b"native", entry(pages[1:]))
    p.release(pages)
    assert p.moves.quantise(pages[:1]) == 1
    assert index.evict()
    assert left(index, b"packed", b"native") == [b"packed"]


def test_a_page_that_two_layers_share_counts_once() -> None:
    p = pool()
    pages = filled(p, 3)
    index = PrefixIndex(p, state_budget=10**6)
    index.insert(b"shared", entry(pages[[0, 0]]))
    index.insert(b"apart", entry(pages[[1, 2]]))
    p.release(pages)
    assert index.evict()
    assert left(index, b"shared", b"apart") == [b"shared"]


def test_talker_states_count_among_a_blocks_bytes() -> None:
    p = pool()
    pages = filled(p, 2)
    index = PrefixIndex(p, state_budget=10**6)
    states = torch.zeros(16, 999)
    index.insert(b"bare", entry(pages[:1]))
    index.insert(b"heavy", Entry(b"root", 2, pages[1:], states, epoch=0, cost=COST))
    p.release(pages)
    assert index.evict()
    assert left(index, b"bare", b"heavy") == [b"bare"]
    assert index.state_bytes == 0


def test_a_used_prefix_outlives_one_that_was_never_asked_for_again() -> None:
    p = pool()
    pages = filled(p, 2)
    index = PrefixIndex(p, state_budget=10**6)
    index.insert(b"asked again", entry(pages[:1]))
    index.insert(b"asked once", entry(pages[1:]))
    p.release(pages)
    index.use([b"asked again"])
    assert index.evict()
    assert left(index, b"asked again", b"asked once") == [b"asked again"]


def test_a_parent_that_comes_back_finds_the_child_that_was_written_behind_it() -> None:
    p = pool()
    pages = filled(p, 3)
    index = PrefixIndex(p, state_budget=10**6)
    index.insert(b"a", entry(pages[0:1]))
    p.release(pages[0:1])
    assert index.evict()
    index.insert(b"aa", entry(pages[1:2], parent=b"a"))  # by a sequence with pages of its own
    index.insert(b"a", entry(pages[2:3], cost=1.0))
    p.release(pages[1:])
    assert len(index.match([b"a", b"aa"])) == 2
    assert index.evict()
    assert left(index, b"a", b"aa") == [b"a"]
    assert index.evict()
    assert held_before(p.records, 1).pages == 0


class Chains(RuleBasedStateMachine):
    """Chains grow, are used, let go, flushed and evicted in any order."""

    def __init__(self) -> None:
        super().__init__()
        shape = PageShape(1, 1, torch.float32)
        self.pool = PagePool(shape, 1, 16 * EXTENT_PAGES * shape.native_bytes)
        self.index = PrefixIndex(self.pool, state_budget=10**6)
        self.parents: dict[bytes, bytes] = {}
        self.pages: dict[bytes, np.ndarray] = {}
        self.used: list[bytes] = []
        self.made = 0

    def free_leaves(self) -> set[bytes]:
        kept = set(left(self.index, *self.parents))
        return kept - {self.parents[key] for key in kept} - set(self.used)

    @rule(pick=st.integers(0, 30), cost=st.integers(1, 9))
    def grow(self, pick: int, cost: int) -> None:
        if self.pool.arena.free_native() == 0:
            return
        choices = [b"root", *left(self.index, *self.parents)]
        parent, key = choices[pick % len(choices)], b"%d" % self.made
        self.made += 1
        page = np.array([self.pool.allocate(0, 0, self.pool.epoch)])
        self.pool.records.fill[page], self.pool.records.sealed[page] = 16, True
        self.parents[key], self.pages[key] = parent, page
        made = Entry(parent, 0, page, None, self.pool.epoch, cost)
        self.index.insert(key, made)
        self.pool.release(page)

    @rule(pick=st.integers(0, 30))
    def use(self, pick: int) -> None:
        kept = left(self.index, *self.parents)
        if kept:
            key = kept[pick % len(kept)]
            self.index.use([key])
            self.pool.retain(self.pages[key])
            self.used.append(key)

    @rule(pick=st.integers(0, 30))
    def let_go(self, pick: int) -> None:
        if self.used:
            self.pool.release(self.pages[self.used.pop(pick % len(self.used))])

    @rule()
    def quantise(self) -> None:
        self.pool.moves.quantise(np.flatnonzero(self.pool.records.form > 0))

    @rule()
    def evict(self) -> None:
        before, free = set(left(self.index, *self.parents)), self.free_leaves()
        assert self.index.evict() == bool(free)
        went = before - set(left(self.index, *self.parents))
        assert len(went) == bool(free)
        assert went <= free

    @rule()
    def flush(self) -> None:
        self.pool.advance(self.pool.epoch + 1)
        while self.used:
            self.let_go(0)
        self.index.sweep(self.pool.epoch)
        assert len(self.index) == 0
        assert held_before(self.pool.records, self.pool.epoch).pages == 0

    @invariant()
    def parents_outlive_children(self) -> None:
        kept = set(left(self.index, *self.parents))
        assert all(self.parents[key] in kept | {b"root"} for key in kept)
        assert len(self.index) == len(kept)

    def teardown(self) -> None:
        while self.used:
            self.let_go(0)
        while self.index.evict():
            pass
        assert len(self.index) == 0


TestChains = Chains.TestCase
TestChains.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
