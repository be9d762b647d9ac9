"""Detectors look at the same places of a picture at any size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.detectors.places import evenly_spread


@given(st.integers(1, 5000), st.integers(1, 200))
def test_places_are_on_the_side_in_order_and_alike_from_both_ends(length: int, count: int):
    places = evenly_spread(length, count)
    assert places.shape == (count,)
    assert places[0] >= 0
    assert places[-1] < length
    assert (np.diff(places) >= 0).all()
    assert np.abs(places + places[::-1] - (length - 1)).max() <= 1


def test_places_are_shared_and_so_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        evenly_spread(640, 64)[0] = 1
