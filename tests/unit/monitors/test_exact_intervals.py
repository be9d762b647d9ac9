"""Intervals of a share agree with scipy's, from nothing to all of ten thousand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from monitors.intervals import at_least, exact_interval


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_is_scipys(counts: tuple[int, int]) -> None:
    hits, of = counts
    theirs = binomtest(hits, of).proportion_ci(method="exact")
    assert exact_interval(hits, of) == pytest.approx((theirs.low, theirs.high), abs=1e-9, rel=1e-7)


@given(st.integers(1, 2_000), st.integers(1, 2_000), st.floats(0.001, 0.999))
def test_the_tail_is_scipys(hits: int, of: int, p: float) -> None:
    assert at_least(min(hits, of), of, p) == pytest.approx(
        float(binom.sf(min(hits, of) - 1, of, p)), abs=1e-10
    )


def test_no_fault_in_six_hundred_still_leaves_room_for_one_in_160() -> None:
    low, high = exact_interval(0, 600)
    assert low == 0.0
    assert high == pytest.approx(1 - 0.025 ** (1 / 600))


@pytest.mark.parametrize(("hits", "of", "confidence"), [(0, 0, 0.9), (3, 2, 0.9), (1, 2, 1.0)])
def test_a_share_of_nothing_has_no_interval(hits: int, of: int, confidence: float) -> None:
    with pytest.raises(ValueError, match="no interval"):
        exact_interval(hits, of, confidence)
