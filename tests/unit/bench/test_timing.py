"""Ways are timed in turns, and their ratio has an interval around it."""

import numpy as np

from bench.timing import interleave, ratio


def test_ways_take_turns_after_a_round_that_does_not_count() -> None:
    calls: list[str] = []
    taken = interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert calls == ["a", "b"] * 4
    assert {name: len(seconds) for name, seconds in taken.items()} == {"a": 3, "b": 3}


def test_a_ratio_is_of_medians_and_inside_its_interval() -> None:
    rng = np.random.default_rng(0)
    slow, fast = 2.0 + 0.1 * rng.random(50), 1.0 + 0.05 * rng.random(50)
    slow[3] = 100.0  # one slow moment moves a mean, not a median
    found = ratio(slow, fast)
    assert 1.9 < found.low <= found.value <= found.high < 2.1


def test_equal_times_have_a_ratio_of_one() -> None:
    same = np.array([1.0, 2.0, 3.0])
    assert ratio(same, same).value == 1.0
