"""What the tests of a rollout do, computed and not sampled: requests that stand alone, no restart.

Without restarts E depends on how many of `n` requests were bad, so a run is a walk over (n, k)
that ends where E breaches: dynamic programming gives the law of its end exactly. With restarts E
depends on the path. Then Ville's inequality is the rigorous bound, and the exact figure is
estimated without bias and with little variance by drawing from what the stakes bet on: E is a
likelihood ratio, so P(called) = mean of 1 / E at the call.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.rollout_sim import NEVER, Floats, Ints, Mass, Turns
from rollout.sequential import (
    BETTER_ODDS,
    RESTART_WEIGHT,
    RESTARTS,
    START_WEIGHT,
    TURNS_SHARE,
    WORSE_ODDS,
    Line,
    alternatives,
    log_factors,
    log_sum,
    opening,
)


def bad_to_call(line: Line, requests: int) -> Ints:
    """The fewest bad ones of the first n requests at which E breaches, for n from 1; n + 1 where
    none would do."""
    means, idle = alternatives(line.limit, WORSE_ODDS), np.log1p(-START_WEIGHT)
    bad, clean = log_factors(1.0, line.limit, means), log_factors(0.0, line.limit, means)
    goal, start = -np.log(TURNS_SHARE * line.alpha), opening(len(means), START_WEIGHT)
    counts, k = np.zeros(requests, dtype=np.int64), line.min_sessions
    for n in range(1, requests + 1):
        k = min(k, n + 1)
        while k <= n and np.logaddexp(log_sum(start + k * bad + (n - k) * clean), idle) < goal:
            k += 1
        counts[n - 1] = max(k, line.min_sessions)
    return counts


def stop_law(line: Line, mean: float, requests: int) -> Floats:
    """P(called at the n-th request) for n from 1, where each is bad with `mean`."""
    return walk(bad_to_call(line, requests), mean)


def walk(counts: Ints, mean: float) -> Floats:
    """P(called at the n-th request), where `counts` bad ones of the first n call; by dynamic
    programming over how many were bad."""
    alive, called = np.zeros(int(counts.max()) + 2), np.zeros(len(counts))
    alive[0] = 1.0
    for i, count in enumerate(counts):
        after = alive * (1.0 - mean)
        after[1:] += alive[:-1] * mean
        called[i] = after[count:].sum()
        after[count:] = 0.0
        alive = after
    return called


def quantile(law: Floats, share: float) -> int:
    """By when this share of all runs was called; `NEVER` where it is not."""
    reached = np.cumsum(law)
    return int(np.searchsorted(reached, share) + 1) if reached[-1] >= share else NEVER


def health_chance(line: Line, mean: float, requests: int) -> float:
    """P(evidence of health at the end of so many requests), exactly."""
    from scipy import stats

    means, k = alternatives(line.limit, BETTER_ODDS), np.arange(requests + 1)
    log_e = log_sum(
        opening(len(means), 1.0)
        + k[:, None] * log_factors(1.0, line.limit, means)
        + (requests - k)[:, None] * log_factors(0.0, line.limit, means)
    )
    passes = log_e >= -np.log(line.pass_alpha)
    return float(stats.binom.pmf(k[passes], requests, mean).sum())


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error."""

    value: float
    error: float


def alarm_chance(line: Line, requests: int, runs: int, seed: int) -> Estimate:
    """P(called) at the limit itself, restarts and all, by importance."""
    rng = np.random.default_rng(seed)
    stride = requests // RESTARTS
    begins, means = _bets(rng, runs, stride)
    told = alternatives(line.limit, WORSE_ODDS)[means]
    mass, tables = Mass(line.limit, runs), Turns(line.limit)
    worth, bad_ones = np.zeros(runs), np.zeros(runs, dtype=np.int64)
    for i in range(requests):
        bad = np.flatnonzero(rng.random(runs) < np.where(i >= begins, told, line.limit))
        bad_ones[bad] += 1
        tables.take_alone(mass, bad)
        looks = bad[(bad_ones[bad] >= line.min_sessions) & (worth[bad] == 0.0)]
        e = mass.e(looks)
        called = e >= 1.0 / (TURNS_SHARE * line.alpha)
        worth[looks[called]] = 1.0 / e[called]
        mass.drop(looks[called])
        if (i + 1) % stride == 0:
            mass.restart()
    return Estimate(float(worth.mean()), float(worth.std() / np.sqrt(runs)))


def _bets(rng: np.random.Generator, runs: int, stride: int) -> tuple[Ints, NDArray[np.intp]]:
    """From which request on each run is of which bet, drawn as the stakes are shared."""
    weights = np.array([START_WEIGHT, *[RESTART_WEIGHT] * RESTARTS])
    which = rng.choice(RESTARTS + 1, runs, p=weights / weights.sum())
    return which * stride, rng.integers(0, len(WORSE_ODDS), runs)
