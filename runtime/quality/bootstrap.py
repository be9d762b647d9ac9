"""Intervals of a mean over samples: by bootstrap, and exactly where all samples agree."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from monitors.contract import Wire

LEVEL = 0.95
RESAMPLES = 2000
_SEED = 8


class Estimate(Wire, frozen=True):
    """A mean and its 95 % interval. `exact`: where all samples agree, and a bootstrap's interval
    would have no width, it is the binomial's own (Clopper-Pearson)."""

    value: float
    low: float
    high: float
    exact: bool = False


def bootstrap(
    values: Sequence[float] | NDArray[np.float64], resamples: int = RESAMPLES
) -> Estimate:
    """The mean of `values` (n,), with the percentile interval; the same values, the same interval.

    Raises `ValueError` for none.
    """
    sample = np.asarray(values, np.float64)
    if not len(sample):
        raise ValueError("an interval needs at least one sample")
    rng = np.random.default_rng(_SEED)
    means = [sample[rng.integers(0, len(sample), len(sample))].mean() for _ in range(resamples)]
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value=float(sample.mean()), low=float(low), high=float(high))


def share(hits: Sequence[bool]) -> Estimate:
    """The share of true ones."""
    values = np.asarray(hits, np.float64)
    found = bootstrap(values)
    if found.value == 0.0:
        return Estimate(value=0.0, low=0.0, high=_unseen(len(values)), exact=True)
    if found.value == 1.0:
        return Estimate(value=1.0, low=1.0 - _unseen(len(values)), high=1.0, exact=True)
    return found


def difference(before: Sequence[bool], after: Sequence[bool]) -> Estimate:
    """Share after less share before, paired: item i of both is of the same sample.

    Where no sample differs, the interval is as wide as the share of differing ones may be.
    """
    changes = np.asarray(after, np.float64) - np.asarray(before, np.float64)
    if changes.any():
        return bootstrap(changes)
    most = _unseen(len(changes))
    return Estimate(value=0.0, low=-most, high=most, exact=True)


def _unseen(n: int) -> float:
    """How frequent a thing may be that none of n samples shows: Clopper-Pearson's upper end."""
    return 1.0 - ((1.0 - LEVEL) / 2) ** (1.0 / n)
