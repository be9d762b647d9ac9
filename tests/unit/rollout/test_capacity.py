"""What B would be busy with, were all of the traffic its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.capacity import Capacity


def shown(busy: float | None, served: int, of_all: int) -> Capacity:
    return Capacity(stable="b", busy_share=busy, served=served, all=of_all, limit=0.75)


@pytest.mark.parametrize(
    ("capacity", "needed", "proved"),
    [
        (shown(0.3, 100, 200), 0.6, True),
        (shown(0.375, 100, 200), 0.75, False),
        (shown(0.5, 100, 100), 0.5, True),
        (shown(0.9, 50, 1_000), 18.0, False),
        (shown(0.0, 100, 200), 0.0, True),
        (shown(None, 100, 200), None, False),
        (shown(0.01, 19, 200), None, False),
        (shown(0.01, 0, 0), None, False),
    ],
)
def test_the_busy_share_grows_with_the_requests_and_unknown_is_no_proof(
    capacity: Capacity, needed: float | None, proved: bool
) -> None:
    assert capacity.needed == (None if needed is None else pytest.approx(needed))
    assert capacity.proved is proved


@given(st.floats(0.0, 1.0), st.integers(20, 10_000), st.integers(0, 10_000))
def test_more_traffic_elsewhere_never_makes_b_look_better(
    busy: float, served: int, more: int
) -> None:
    less, much = shown(busy, served, served), shown(busy, served, served + more)
    assert (less.needed or 0.0) <= (much.needed or 0.0)
    assert less.proved or not much.proved
