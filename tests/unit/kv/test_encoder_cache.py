"""Encoder outputs: found by name and epoch, bounded in bytes, accounted to the byte."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from runtime.kv.encoders import EncoderCache

BUDGET = 100


@dataclass(frozen=True)
class Output:
    nbytes: int


def kept(budget: int = BUDGET) -> EncoderCache[Output]:
    return EncoderCache[Output](budget)


def test_outputs_are_kept_by_digest_and_epoch_within_the_budget() -> None:
    encoders = kept()
    encoders.put("a", 1, Output(60), tokens=1)
    assert encoders.get("a", 1) == Output(60)
    assert encoders.get("a", 2) is None
    encoders.put("b", 1, Output(60), tokens=4)
    assert encoders.get("a", 1) is None
    assert encoders.nbytes == 60
    assert encoders.held_before(2) == (1, 60)
    encoders.sweep(2)
    assert encoders.held_before(2) == (0, 0)


def test_an_output_larger_than_the_budget_pushes_nothing_out() -> None:
    encoders = kept()
    encoders.put("small", 1, Output(60), tokens=1)
    encoders.put("large", 1, Output(101), tokens=1000)
    assert encoders.get("large", 1) is None
    assert encoders.get("small", 1) is not None
    assert encoders.nbytes == 60


def test_an_output_that_is_put_again_is_counted_once() -> None:
    encoders = kept()
    encoders.put("a", 1, Output(60), tokens=1)
    encoders.put("a", 1, Output(40), tokens=1)
    assert encoders.nbytes == 40
    assert encoders.held_before(2) == (1, 40)


def test_what_is_asked_for_often_outlives_what_is_new() -> None:
    encoders = kept()
    encoders.put("popular", 1, Output(40), tokens=4)
    for _ in range(5):
        encoders.get("popular", 1)
    for name in range(4):
        encoders.put(name, 1, Output(40), tokens=4)
    assert encoders.get("popular", 1) is not None


def test_what_was_popular_long_ago_ages() -> None:
    encoders = kept()
    encoders.put("popular", 1, Output(40), tokens=4)
    for _ in range(5):
        encoders.get("popular", 1)
    for name in range(20):
        encoders.put(name, 1, Output(40), tokens=4)
    assert encoders.get("popular", 1) is None


def test_the_longer_to_encode_stays_where_both_take_the_same_bytes() -> None:
    encoders = kept()
    encoders.put("costly", 1, Output(40), tokens=8)
    encoders.put("cheap", 1, Output(40), tokens=2)
    encoders.put("next", 1, Output(40), tokens=4)
    assert encoders.get("cheap", 1) is None
    assert encoders.get("costly", 1) is not None


def test_tenants_and_digests_that_read_alike_together_are_kept_apart() -> None:
    encoders = kept()
    encoders.put(("a b", "c"), 1, Output(1), tokens=1)
    assert encoders.get(("a", "b c"), 1) is None


def test_hits_and_lookups_count_every_look() -> None:
    encoders = kept()
    encoders.put("a", 1, Output(1), tokens=1)
    for name in ("a", "b", "a"):
        encoders.get(name, 1)
    assert (encoders.hits, encoders.lookups) == (2, 3)


Put = st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 130))


@given(st.lists(Put, max_size=40), st.integers(0, 3))
def test_bytes_by_epoch_are_exact_whatever_came_and_went(
    puts: list[tuple[int, int, int]], swept: int
) -> None:
    encoders, latest = kept(), dict[tuple[int, int], int]()
    for name, epoch, size in puts:
        encoders.put(name, epoch, Output(size), tokens=1)
        latest[name, epoch] = size
        assert encoders.nbytes <= BUDGET
    encoders.sweep(swept)
    held = {key: n for key, n in latest.items() if encoders.get(*key) is not None}
    assert all(encoders.get(*key) == Output(size) for key, size in held.items())
    assert encoders.nbytes == sum(held.values())
    assert encoders.held_before(swept) == (0, 0)
    for epoch in range(4):
        old = [size for (_, at), size in held.items() if at < epoch]
        assert encoders.held_before(epoch) == (len(old), sum(old))
