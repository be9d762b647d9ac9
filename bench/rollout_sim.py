"""Many rollouts at once: the tests of `rollout.sequential` over arrays of runs.

The masses are those of `LineTest` in plain numbers instead of logs, one row a bet and one column
a run; a unit test holds the two together. Turns of a run come in turn from `together` sessions
that are open beside one another; a session is settled as it ends.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollout.sequential import (
    RESTART_WEIGHT,
    RESTARTS,
    START_WEIGHT,
    TURNS_SHARE,
    WORSE_ODDS,
    Line,
    alternatives,
    turn_gains,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Draw = Callable[[np.random.Generator, int], Floats]

NEVER = np.iinfo(np.int64).max
BATCH = 2_000  # runs at a time, so that their masses stay in the cache of a core
LONGEST = 60  # turns of a session, after which another begins
_GRID = len(WORSE_ODDS)


@dataclass(frozen=True)
class Traffic:
    """Requests on A in one bake. Sessions of `turns` on average (1: each request is one); the
    chance of a bad turn of a session is of a beta law with this intra-class correlation."""

    requests: int
    turns: float = 1.0
    icc: float = 0.0
    together: int = 8

    def shares(self, rng: np.random.Generator, mean: float, runs: int) -> Floats:
        """One session's own mean in each run."""
        if self.icc == 0.0:
            return np.full(runs, mean)
        strength = (1.0 - self.icc) / self.icc
        return rng.beta(mean * strength, (1.0 - mean) * strength, runs)


class Mass:
    """Stakes of one e-process of a line, in `runs` at once."""

    def __init__(self, limit: float, runs: int, weight: float = START_WEIGHT) -> None:
        self._limit = limit
        self.stake = np.full((_GRID, runs), weight / _GRID)
        self.idle = 1.0 - weight

    def restart(self) -> None:
        step = RESTART_WEIGHT
        if self.idle > step / 2.0:
            self.stake += step / _GRID
            self.idle -= step

    @property
    def e(self) -> Floats:
        return self.stake.sum(axis=0) + self.idle

    def settle(self, y: Floats) -> None:
        """A mean of each run: nan for none."""
        means = alternatives(self._limit, WORSE_ODDS)
        bets = (means - self._limit) / (self._limit * (1.0 - self._limit))
        off = np.where(np.isnan(y), 0.0, y - self._limit)
        self.stake *= 1.0 + bets[:, None] * off


class Turns:
    """Factors of one turn by how many clean ones were before, as tables."""

    def __init__(self, limit: float) -> None:
        ages = range(LONGEST + 1)
        self._bad = np.exp([turn_gains(limit, age, bad=True) for age in ages]).T.copy()
        self._clean = np.exp([turn_gains(limit, age, bad=False) for age in ages]).T.copy()

    def take(self, mass: Mass, bad: NDArray[np.bool_], age: Ints, heard: NDArray[np.bool_]) -> None:
        """One turn of each run; a session that is not `heard` tells nothing."""
        if (age == age[0]).all() and heard.all():
            first = int(age[0])
            mass.stake *= np.where(bad, self._bad[:, [first]], self._clean[:, [first]])
            return
        factor = np.where(bad, np.take(self._bad, age, axis=1), np.take(self._clean, age, axis=1))
        mass.stake *= np.where(heard, factor, 1.0)


def bernoulli_stops(
    line: Line, traffic: Traffic, mean: float, runs: int, seed: int, *, naive: bool = False
) -> Ints:
    """After how many requests on A each run calls a breach of `line` (`NEVER`: not at all), where
    a turn is bad with `mean` on average. `naive`: every turn is bet on as if it stood alone."""
    rng = np.random.default_rng(seed)
    parts = [
        _bernoulli_batch(line, traffic, mean, min(BATCH, runs - done), rng, naive=naive)
        for done in range(0, runs, BATCH)
    ]
    return np.concatenate(parts)


def _bernoulli_batch(
    line: Line, traffic: Traffic, mean: float, runs: int, rng: np.random.Generator, *, naive: bool
) -> Ints:
    single, lanes = traffic.turns <= 1.0, 1 if traffic.turns <= 1.0 else traffic.together
    tables, turns, sessions = Turns(line.limit), Mass(line.limit, runs), Mass(line.limit, runs)
    share = [traffic.shares(rng, mean, runs) for _ in range(lanes)]
    age = [np.zeros(runs, dtype=np.int64) for _ in range(lanes)]
    total = [np.zeros(runs) for _ in range(lanes)]
    bad_sessions, stop = np.zeros(runs, dtype=np.int64), np.full(runs, NEVER)
    stride = traffic.requests / RESTARTS
    for i in range(traffic.requests):
        lane = i % lanes
        bad = rng.random(runs) < share[lane]
        heard = total[lane] == 0.0
        bad_sessions += bad & heard
        if naive:
            tables.take(turns, bad, np.zeros_like(age[lane]), np.ones(runs, dtype=bool))
        else:
            tables.take(turns, bad, age[lane], heard)
        age[lane], total[lane] = age[lane] + 1, total[lane] + bad
        over = np.ones(runs, dtype=bool) if single else _ends(rng, traffic, age[lane])
        if not single and over.any():
            sessions.settle(np.where(over, total[lane] / age[lane], np.nan))
        if over.any():
            share[lane] = np.where(over, traffic.shares(rng, mean, runs), share[lane])
            age[lane], total[lane] = np.where(over, 0, age[lane]), np.where(over, 0.0, total[lane])
        called = turns.e >= 1.0 / (TURNS_SHARE * line.alpha)
        if not (single or naive):
            called |= sessions.e >= 1.0 / ((1.0 - TURNS_SHARE) * line.alpha)
        stop[called & (bad_sessions >= line.min_sessions) & (stop == NEVER)] = i + 1
        if int((i + 1) / stride) > int(i / stride):
            turns.restart()
            sessions.restart()
    return stop


def _ends(rng: np.random.Generator, traffic: Traffic, age: Ints) -> NDArray[np.bool_]:
    return (rng.random(len(age)) < 1.0 / traffic.turns) | (age >= LONGEST)


def share_stops(line: Line, traffic: Traffic, mean: float, runs: int, seed: int) -> Ints:
    """The same for a line of shares, as residency: turns of a beta law around their session's
    mean, which is of one as well; variance as that of a beta law of strength 2 altogether."""
    rng = np.random.default_rng(seed)
    parts = [
        _share_batch(line, traffic, mean, min(BATCH, runs - done), rng)
        for done in range(0, runs, BATCH)
    ]
    return np.concatenate(parts)


def _share_batch(
    line: Line, traffic: Traffic, mean: float, runs: int, rng: np.random.Generator
) -> Ints:
    mass, stop = Mass(line.limit, runs), np.full(runs, NEVER)
    bad_sessions, done = np.zeros(runs, dtype=np.int64), np.zeros(runs, dtype=np.int64)
    sessions = int(traffic.requests / traffic.turns)
    for i in range(sessions):
        length = rng.geometric(1.0 / traffic.turns, runs).clip(max=LONGEST)
        y = session_means(rng, mean, traffic.icc, length)
        done += length
        mass.settle(y)
        bad_sessions += y > line.limit
        called = (mass.e >= 1.0 / line.alpha) & (bad_sessions >= line.min_sessions)
        stop[called & (stop == NEVER) & (done <= traffic.requests)] = 0
        first = called & (stop == 0)
        stop[first] = done[first]
        if (i + 1) % max(1, sessions // RESTARTS) == 0:
            mass.restart()
    return stop


def session_means(rng: np.random.Generator, mean: float, icc: float, length: Ints) -> Floats:
    """Means of so many turns in each run, each turn a share in [0, 1] of this mean."""
    variance = mean * (1.0 - mean) / 3.0  # of a beta law of strength 2
    between = icc * variance
    own = np.full(len(length), mean)
    if between > 0.0:
        strength = mean * (1.0 - mean) / between - 1.0
        own = rng.beta(mean * strength, (1.0 - mean) * strength, len(length))
    own = own.clip(1e-6, 1.0 - 1e-6)
    strength = (mean * (1.0 - mean) - between) / (variance - between) - 1.0
    total = np.zeros(len(length))
    for turn in range(int(length.max())):
        y = rng.beta(own * strength, (1.0 - own) * strength)
        total += np.where(turn < length, y, 0.0)
    return total / length
