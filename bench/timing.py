"""Seconds of several ways to do one thing, taken in turns, and their ratio with its interval.

Seconds are those of the processor in this thread, where torch does all its work: on a machine that
others use too, the clock on the wall measures the others.
"""

import time
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from runtime.quality.bootstrap import LEVEL, RESAMPLES, Estimate

Seconds = NDArray[np.float64]
_SEED = 8


def seconds_of(act: Callable[[], object]) -> float:
    """Of one call."""
    began = time.thread_time()
    act()
    return time.thread_time() - began


def interleave(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Seconds]:
    """Seconds of each way, `(rounds,)`: round by round, so that a slow moment of the machine
    falls on all of them. One round before is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for act in ways.values():
        act()
    for _ in range(rounds):
        for name, act in ways.items():
            taken[name].append(seconds_of(act))
    return {name: np.array(values) for name, values in taken.items()}


def ratio(above: Seconds, below: Seconds) -> Estimate:
    """Median of `above` over median of `below`, both `(rounds,)` of one run; rounds are drawn
    again together."""
    rng = np.random.default_rng(_SEED)
    drawn = rng.integers(0, len(above), (RESAMPLES, len(above)))
    ratios = np.median(above[drawn], axis=1) / np.median(below[drawn], axis=1)
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(
        value=float(np.median(above) / np.median(below)), low=float(low), high=float(high)
    )
