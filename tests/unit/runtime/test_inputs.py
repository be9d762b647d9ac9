"""Inputs kept for replays: never more than the bound, and nothing left once all have ended."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.inputs import KeptInputs

LIMIT = 100
steps = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 150)), max_size=50)


@given(steps)
def test_what_is_kept_stays_within_the_bound_and_is_given_back(
    taken: list[tuple[str, int]],
) -> None:
    inputs, kept = KeptInputs(LIMIT), dict[str, int]()
    for name, size in taken:
        fits = sum(kept.values()) + size <= LIMIT
        assert inputs.keep(name, size) is (name in kept or fits)
        if fits:
            kept.setdefault(name, size)
        assert inputs.total == sum(kept.values()) <= LIMIT
        if size % 3 == 0:
            inputs.release(name)
            kept.pop(name, None)
    for name in "abcde":
        inputs.release(name)
    assert inputs.total == 0


def test_a_request_without_media_is_kept_however_full_it_is() -> None:
    inputs = KeptInputs(LIMIT)
    assert inputs.keep("a", LIMIT)
    assert inputs.keep("text", 0)
    assert not inputs.keep("b", 1)
