"""Many rollouts at once: the tests of `rollout.sequential` over arrays of runs.

The masses are those of `LineTest` in plain numbers instead of logs, one row a bet and one column
a run; a unit test holds the two together. Turns of a run come in turn from `together` sessions
that are open beside one another; a session is settled as it ends.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    turn_gains,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

NEVER = int(np.iinfo(np.int64).max)
BATCH = 2_000  # runs at a time, so that their masses stay in the cache of a core
LONGEST = 60  # turns of a session, after which another begins
_GRID = len(WORSE_ODDS)


@dataclass(frozen=True)
class Traffic:
    """Requests on A in one bake. Sessions of `turns` on average (1: each request is one), of
    geometric length; the chance of a bad turn of a session is of a beta law with this intra-class
    correlation. `changes_at`: the request from which on a rate holds; before it, `before`."""

    requests: int
    turns: float = 1.0
    icc: float = 0.0
    together: int = 8
    changes_at: int = 0
    before: float = 0.0

    @property
    def is_single(self) -> bool:
        return self.turns <= 1.0

    def shares(self, rng: np.random.Generator, mean: float, count: int) -> Floats:
        """So many sessions' own means."""
        if self.icc == 0.0:
            return np.full(count, mean)
        strength = (1.0 - self.icc) / self.icc
        return rng.beta(mean * strength, (1.0 - mean) * strength, count)


class Mass:
    """Stakes of one e-process of a line, in `runs` at once."""

    def __init__(self, limit: float, runs: int) -> None:
        self._limit = limit
        means = alternatives(limit, WORSE_ODDS)
        self._bets = (means - limit) / (limit * (1.0 - limit))
        self.stake = np.full((_GRID, runs), START_WEIGHT / _GRID)
        self._watched = np.ones(runs)
        self._left = RESTARTS

    def restart(self) -> None:
        """One more share of the weight is at stake from here on."""
        if self._left:
            self.stake += RESTART_WEIGHT / _GRID * self._watched
            self._left -= 1

    def e(self, runs: Ints) -> Floats:
        """E of some runs."""
        return self.stake[:, runs].sum(axis=0) + self._left * RESTART_WEIGHT

    def settle(self, runs: Ints, y: Floats) -> None:
        """A session's mean in some runs."""
        self.stake[:, runs] *= 1.0 + self._bets[:, None] * (y - self._limit)

    def drop(self, runs: Ints) -> None:
        """These are called: what comes later matters no more, and should not overflow."""
        self.stake[:, runs] = 0.0
        self._watched[runs] = 0.0


class Turns:
    """Factors of one turn by how many clean ones were before, as tables."""

    def __init__(self, limit: float) -> None:
        ages = range(LONGEST + 1)
        self._bad = np.exp([turn_gains(limit, age, bad=True) for age in ages]).T.copy()
        clean = np.exp([turn_gains(limit, age, bad=False) for age in ages])
        self._clean = np.vstack([clean, np.ones(_GRID)]).T.copy()  # the last: nothing is told

    def take(self, mass: Mass, bad: Ints, age: Ints, heard: Flags) -> None:
        """One turn in each run; those of the runs `bad` are bad. A session that is not `heard`
        tells nothing. `age`: clean turns of it before."""
        told = np.where(heard, age, LONGEST + 1)
        tell = bad[heard[bad]]
        told[tell] = LONGEST + 1
        mass.stake *= np.take(self._clean, told, axis=1)
        mass.stake[:, tell] *= self._bad[:, age[tell]]

    def take_alone(self, mass: Mass, bad: Ints) -> None:
        """The same of requests that stand alone."""
        mass.stake *= self._clean[:, [0]]
        mass.stake[:, bad] *= (self._bad[:, 0] / self._clean[:, 0])[:, None]


def in_batches(runs: int) -> list[int]:
    """Sizes of the batches that make up so many runs."""
    return [min(BATCH, runs - done) for done in range(0, runs, BATCH)]


def bernoulli_stops(
    line: Line, traffic: Traffic, mean: float, runs: int, seed: int, *, naive: bool = False
) -> Ints:
    """After how many requests on A each run calls a breach of `line` (`NEVER`: not at all), where
    a turn is bad with `mean` on average. `naive`: every turn is bet on as if it stood alone."""
    rng = np.random.default_rng(seed)
    batches = [_Batch(line, traffic, mean, size, rng, naive) for size in in_batches(runs)]
    return np.concatenate([batch.run() for batch in batches])


class _Batch:
    """Runs of one line beside one another."""

    def __init__(
        self,
        line: Line,
        traffic: Traffic,
        mean: float,
        runs: int,
        rng: np.random.Generator,
        naive: bool,
    ) -> None:
        self._line, self._traffic, self._mean, self._runs = line, traffic, mean, runs
        self._rng, self._naive = rng, naive
        self._tables = Turns(line.limit)
        self._turns, self._sessions = Mass(line.limit, runs), Mass(line.limit, runs)
        self._bad_sessions = np.zeros(runs, dtype=np.int64)
        self._stop = np.full(runs, NEVER)

    def run(self) -> Ints:
        traffic = self._traffic
        lanes = [_Lane(self) for _ in range(1 if traffic.is_single else traffic.together)]
        stride = traffic.requests / RESTARTS
        for i in range(traffic.requests):
            lane = lanes[i % len(lanes)]
            rate = lane.share if i >= traffic.changes_at else traffic.before
            bad = np.flatnonzero(self._rng.random(self._runs) < rate)
            if traffic.is_single:
                self._take_alone(bad, i + 1)
            else:
                lane.take(bad, i + 1)
            if int((i + 1) / stride) > int(i / stride):
                self._turns.restart()
                self._sessions.restart()
        return self._stop

    def _take_alone(self, bad: Ints, at: int) -> None:
        self._tables.take_alone(self._turns, bad)
        self._bad_sessions[bad] += 1
        self._look(self._turns, bad, TURNS_SHARE, at)

    def new_sessions(self, count: int) -> Floats:
        return self._traffic.shares(self._rng, self._mean, count)

    def take(self, lane: "_Lane", bad: Ints, at: int) -> None:
        heard = lane.total == 0
        self._bad_sessions[bad[heard[bad]]] += 1
        if self._naive:
            self._tables.take_alone(self._turns, bad)
        else:
            self._tables.take(self._turns, bad, lane.age, heard)
        self._look(self._turns, bad, TURNS_SHARE, at)

    def settle(self, lane: "_Lane", at: int) -> Ints:
        """Sessions of a lane that end with this turn, by run."""
        ends = self._rng.random(self._runs) < 1.0 / self._traffic.turns
        over = np.flatnonzero(ends | (lane.age >= LONGEST))
        self._sessions.settle(over, lane.total[over] / lane.age[over])
        if not self._naive:
            self._look(self._sessions, over[lane.total[over] > 0], 1.0 - TURNS_SHARE, at)
        return over

    def _look(self, mass: Mass, runs: Ints, share: float, at: int) -> None:
        """Whether any of these runs, where something was bad, is called."""
        runs = runs[(self._stop[runs] == NEVER)]
        enough = self._bad_sessions[runs] >= self._line.min_sessions
        called = runs[enough & (mass.e(runs) >= 1.0 / (share * self._line.alpha))]
        self._stop[called] = at
        self._turns.drop(called)
        self._sessions.drop(called)


class _Lane:
    """One session at a time in each run."""

    def __init__(self, batch: _Batch) -> None:
        self._batch = batch
        self.share = batch.new_sessions(batch._runs)
        self.age = np.zeros(batch._runs, dtype=np.int64)
        self.total = np.zeros(batch._runs, dtype=np.int64)

    def take(self, bad: Ints, at: int) -> None:
        self._batch.take(self, bad, at)
        self.age += 1
        self.total[bad] += 1
        over = self._batch.settle(self, at)
        self.share[over] = self._batch.new_sessions(len(over))
        self.age[over] = self.total[over] = 0


def share_stops(line: Line, traffic: Traffic, mean: float, runs: int, seed: int) -> Ints:
    """The same for a line of shares, as residency, which is bet on by sessions alone."""
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [_share_batch(line, traffic, mean, size, rng) for size in in_batches(runs)]
    )


def _share_batch(
    line: Line, traffic: Traffic, mean: float, runs: int, rng: np.random.Generator
) -> Ints:
    mass, stop, every = Mass(line.limit, runs), np.full(runs, NEVER), np.arange(runs)
    bad_sessions, done = np.zeros(runs, dtype=np.int64), np.zeros(runs, dtype=np.int64)
    sessions = int(traffic.requests / traffic.turns)
    for i in range(sessions):
        length = rng.geometric(1.0 / traffic.turns, runs).clip(max=LONGEST)
        y = session_means(rng, mean, traffic.icc, length)
        done += length
        mass.settle(every, y)
        bad_sessions += y > line.limit
        looks = np.flatnonzero((stop == NEVER) & (bad_sessions >= line.min_sessions))
        called = looks[mass.e(looks) >= 1.0 / line.alpha]
        stop[called] = done[called]
        mass.drop(called)
        if (i + 1) % max(1, sessions // RESTARTS) == 0:
            mass.restart()
    return stop


def session_means(rng: np.random.Generator, mean: float, icc: float, length: Ints) -> Floats:
    """Means of so many turns in each run: shares of a beta law around the session's own mean,
    which is of one too; their variance altogether is that of a beta law of strength 2."""
    variance = mean * (1.0 - mean) / 3.0
    between = icc * variance
    own = np.full(len(length), mean)
    if between > 0.0:
        strength = mean * (1.0 - mean) / between - 1.0
        own = rng.beta(mean * strength, (1.0 - mean) * strength, len(length))
    own = own.clip(1e-6, 1.0 - 1e-6)
    strength = (mean * (1.0 - mean) - between) / (variance - between) - 1.0
    each = np.repeat(own, length)
    y = rng.beta(each * strength, (1.0 - each) * strength)
    ends = np.cumsum(length)
    return np.add.reduceat(y, ends - length) / length


def healthy(line: Line, traffic: Traffic, mean: float, runs: int, seed: int) -> Flags:
    """Whether each run has evidence of health at the end, by the means of its sessions."""
    rng, means = np.random.default_rng(seed), alternatives(line.limit, BETTER_ODDS)
    log_e = np.tile(opening(len(means), 1.0), (runs, 1))
    for _ in range(int(traffic.requests / traffic.turns)):
        length = np.ones(runs, dtype=np.int64)
        if not traffic.is_single:
            length = rng.geometric(1.0 / traffic.turns, runs).clip(max=LONGEST)
        bad = rng.binomial(length, traffic.shares(rng, mean, runs))
        log_e += log_factors(bad / length, line.limit, means)
    return log_sum(log_e) >= -np.log(line.pass_alpha)


def ever_healthy(line: Line, traffic: Traffic, mean: float, runs: int, seed: int) -> Flags:
    """Whether each run had evidence of health at any moment, inside sessions too, where a session
    shows the mean of its turns so far."""
    rng = np.random.default_rng(seed)
    parts = [_ever_healthy(line, traffic, mean, size, rng) for size in in_batches(runs)]
    return np.concatenate(parts)


def _ever_healthy(
    line: Line, traffic: Traffic, mean: float, runs: int, rng: np.random.Generator
) -> Flags:
    means, goal = alternatives(line.limit, BETTER_ODDS), 1.0 / line.pass_alpha
    bets = ((means - line.limit) / (line.limit * (1.0 - line.limit)))[:, None]
    stake, ever = np.full((len(means), runs), 1.0 / len(means)), np.zeros(runs, dtype=np.bool_)
    lanes = traffic.together
    share = np.stack([traffic.shares(rng, mean, runs) for _ in range(lanes)])
    age, total = np.zeros((lanes, runs)), np.zeros((lanes, runs))
    for i in range(traffic.requests):
        lane = i % lanes
        began = age[lane] > 0
        before = np.where(began, total[lane] / np.maximum(age[lane], 1.0), line.limit)
        total[lane] += rng.random(runs) < share[lane]
        age[lane] += 1
        now = total[lane] / age[lane]
        stake *= (1.0 + bets * (now - line.limit)) / (1.0 + bets * (before - line.limit))
        ever |= stake.sum(axis=0) >= goal
        over = np.flatnonzero((rng.random(runs) < 1.0 / traffic.turns) | (age[lane] >= LONGEST))
        share[lane, over] = traffic.shares(rng, mean, len(over))
        age[lane, over] = total[lane, over] = 0.0
    return ever
