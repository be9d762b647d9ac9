"""What others would say of the same canary: a sequential ratio test, a window, a block of 10,000.

The ratio test and the block are computed exactly, the window is drawn.
"""

from dataclasses import dataclass

import numpy as np

from bench.rollout_exact import quantile, walk
from bench.rollout_sim import NEVER, Floats

LIMIT = 0.005
BLOCK = 10_000
WINDOW_S, BAKE_S = 60.0, 600.0
FEWEST = 50  # requests in a window before its share says anything


@dataclass(frozen=True)
class Called:
    """By when a detector called, in requests on A, and how often at all."""

    median: int
    p95: int
    share: float

    def __str__(self) -> str:
        said = ("never" if each == NEVER else f"{each}" for each in (self.median, self.p95))
        return "/".join(said)


def of_law(law: Floats) -> Called:
    """From P(called at the n-th request), n from 1."""
    return Called(quantile(law, 0.5), quantile(law, 0.95), float(law.sum()))


def ratio_test(mean: float, requests: int, alpha: float, worse: float = 0.01) -> Called:
    """Wald's test of the line against a rate of `worse`, which must be named beforehand."""
    bad, clean = np.log(worse / LIMIT), np.log((1.0 - worse) / (1.0 - LIMIT))
    n = np.arange(1, requests + 1)
    counts = np.ceil((-np.log(alpha) - n * clean) / (bad - clean) - 1e-12).astype(np.int64)
    return of_law(walk(np.maximum(counts, 1), mean))


def block(mean: float, requests: int) -> Called:
    """The article's own words: a share of 10,000 requests, once they are full."""
    from scipy import stats

    law = np.zeros(max(requests, BLOCK))
    law[BLOCK - 1] = stats.binom.sf(int(LIMIT * BLOCK), BLOCK, mean)
    return of_law(law[:requests])


def window(mean: float, requests: int, runs: int, seed: int) -> Called:
    """A share of the last 60 s, looked at after every request, as an alert would."""
    rng = np.random.default_rng(seed)
    width = int(requests * WINDOW_S / BAKE_S)
    stops = np.full(runs, NEVER)
    for run in range(runs):
        bad = np.concatenate([[0], np.cumsum(rng.random(requests) < mean)])
        n = np.arange(FEWEST, requests + 1)
        first = np.maximum(n - width, 0)
        past = bad[n] - bad[first] > LIMIT * (n - first) + 1e-9
        if past.any():
            stops[run] = n[past.argmax()]
    ordered = np.sort(stops)
    median, p95 = (int(ordered[int(np.ceil(q * runs)) - 1]) for q in (0.5, 0.95))
    return Called(median, p95, float((stops != NEVER).mean()))
