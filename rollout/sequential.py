"""Anytime-valid tests of one line: watch it after every request, stop whenever it speaks.

One e-process serves every line (DESIGN 8). An observation y in [0, 1]
has mean `limit` or less under the hypothesis that the line is kept. Betting that its mean is m
multiplies the stake by 1 + (m - limit) (y - limit) / (limit (1 - limit)). For y of 0 or 1 that is
the likelihood ratio of a Bernoulli(m) against a Bernoulli(limit); for a share such as a cache
miss rate it is a fair bet on a bounded mean. E, the wealth of a mixture over a grid of m, is a
martingale at the limit, so it ever reaches 1 / alpha with probability alpha at most (Ville).
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitors.contract import Count, Wire

Array = NDArray[np.floating[Any]]

WORSE_ODDS = (1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0, 40.0, 100.0)  # times the limit's odds
BETTER_ODDS = (0.06, 0.1, 0.2, 0.3, 0.4, 0.6)
RESTARTS = 20  # they share half the weight; the start has the other half
_RESTART_WEIGHT = 0.5 / RESTARTS


class Verdict(StrEnum):
    PASS = "pass"  # evidence that the line is kept
    BREACH = "breach"  # evidence that it is not
    INCONCLUSIVE = "inconclusive"


class Line(Wire, frozen=True):
    """What is tested: a mean of at most `limit`, with a false-alarm budget of `alpha`."""

    name: str
    limit: float
    alpha: float
    pass_alpha: float
    min_sessions: Count

    def __post_init__(self) -> None:
        for field in ("limit", "alpha", "pass_alpha"):
            if not 0.0 < getattr(self, field) < 1.0:
                raise ValueError(
                    f"line {self.name!r}: {field} is {getattr(self, field)}, but a sequential "
                    "test needs one strictly between 0 and 1; mend it in redline.yaml"
                )


class Numbers(Wire, frozen=True):
    """What a test knows, for people: it breaches at `e >= threshold`, passes likewise."""

    line: str
    verdict: Verdict
    limit: float
    e: float
    threshold: float
    pass_e: float
    pass_threshold: float
    n: Count
    events: float  # sum of the observations: faults, crossings or miss shares
    bad_sessions: Count  # distinct, counted up to the least number that an alarm needs


class Saved(Wire, frozen=True):
    """A test's state between two observations, to be journalled."""

    log_worse: tuple[float, ...]
    log_better: tuple[float, ...]
    restarts_left: Count
    n: Count
    events: float
    bad_sessions: tuple[str, ...]
    breached: bool


def alternatives(limit: float, odds_ratios: Sequence[float]) -> Array:
    """The grid of means bet on, shape `(len(odds_ratios),)`, each strictly inside (0, 1)."""
    odds = limit / (1.0 - limit) * np.asarray(odds_ratios)
    return odds / (1.0 + odds)


def log_factors(y: ArrayLike, limit: float, means: Array) -> Array:
    """Log of what each bet gains on observations `y` of any shape: shape `(*y.shape, grid)`."""
    bets = (means - limit) / (limit * (1.0 - limit))
    return np.log1p((np.asarray(y, dtype=np.float64)[..., None] - limit) * bets)


def log_sum(log_mass: Array) -> Array:
    """Log of the summed mass over the last axis."""
    top = log_mass.max(axis=-1, keepdims=True)
    return (top + np.log(np.exp(log_mass - top).sum(axis=-1, keepdims=True)))[..., 0]


def opening(grid: int, weight: float) -> Array:
    """Log mass that spreads `weight` evenly over a grid."""
    return np.full(grid, np.log(weight / grid))


def restarted(log_mass: Array) -> Array:
    """`log_mass` after one restart has put its weight on every point of the grid."""
    return np.logaddexp(log_mass, opening(log_mass.shape[-1], _RESTART_WEIGHT))


def log_wealth(log_mass: Array, restarts_left: int) -> Array:
    """log E: what is at stake and the restarts' weight that is not staked yet."""
    if not restarts_left:
        return log_sum(log_mass)
    return np.logaddexp(log_sum(log_mass), np.log(restarts_left * _RESTART_WEIGHT))


class LineTest:
    """The test of one line, in constant memory: two small grids and a few counts.

    All restarts live in one grid, because a restart only adds its weight to the mass that the
    later observations multiply. Evidence of health has no restarts: it must hold from the start.
    """

    def __init__(self, line: Line) -> None:
        self.line = line
        self._worse = alternatives(line.limit, WORSE_ODDS)
        self._better = alternatives(line.limit, BETTER_ODDS)
        self._log_worse = opening(len(WORSE_ODDS), 0.5)
        self._restarts_left = RESTARTS
        self._n = 0
        self._events = 0.0
        self._bad_sessions: tuple[str, ...] = ()
        self._breached = False
        self._log_better = opening(len(BETTER_ODDS), 1.0)

    def observe(self, y: float, session: str, *, counts_as_health: bool = True) -> None:
        """Take in one request's `y` in [0, 1]: 1 is a fault, a crossing or a full miss.

        With `counts_as_health` false it can only speak against the line, never for it.
        """
        if not 0.0 <= y <= 1.0:
            raise ValueError(f"line {self.line.name!r}: {y} is not an observation in [0, 1]")
        self._n += 1
        self._events += y
        self._remember(session, bad=y > self.line.limit)
        self._log_worse = self._log_worse + log_factors(y, self.line.limit, self._worse)
        if counts_as_health or y > self.line.limit:
            self._log_better = self._log_better + log_factors(y, self.line.limit, self._better)
        self._breached = self._breached or self._has_crossed()

    def restart(self) -> None:
        """Stake one more share from here on, so that a change in mid-run is caught too.

        When to do so may depend on the past only, never on the next observation.
        """
        if self._restarts_left:
            self._log_worse = restarted(self._log_worse)
            self._restarts_left -= 1

    def forget_health(self) -> None:
        """Begin the evidence of health anew, as after a gap in which anything may have passed."""
        self._log_better = opening(len(BETTER_ODDS), 1.0)

    @property
    def observations(self) -> int:
        return self._n

    @property
    def mean(self) -> float | None:
        """Mean of the observations; `None` before the first."""
        return self._events / self._n if self._n else None

    @property
    def log_e(self) -> float:
        return float(log_wealth(self._log_worse, self._restarts_left))

    @property
    def verdict(self) -> Verdict:
        """A breach stays one: E was past its threshold once, and that is what Ville bounds."""
        if self._breached:
            return Verdict.BREACH
        if float(log_sum(self._log_better)) >= -math.log(self.line.pass_alpha):
            return Verdict.PASS
        return Verdict.INCONCLUSIVE

    def numbers(self) -> Numbers:
        return Numbers(
            line=self.line.name,
            verdict=self.verdict,
            limit=self.line.limit,
            e=_finite_exp(self.log_e),
            threshold=1.0 / self.line.alpha,
            pass_e=_finite_exp(float(log_sum(self._log_better))),
            pass_threshold=1.0 / self.line.pass_alpha,
            n=self._n,
            events=self._events,
            bad_sessions=len(self._bad_sessions),
        )

    def save(self) -> Saved:
        return Saved(
            log_worse=tuple(self._log_worse.tolist()),
            log_better=tuple(self._log_better.tolist()),
            restarts_left=self._restarts_left,
            n=self._n,
            events=self._events,
            bad_sessions=self._bad_sessions,
            breached=self._breached,
        )

    @classmethod
    def restore(cls, line: Line, saved: Saved) -> "LineTest":
        """Raises `ValueError` when the state was saved by a test with other grids."""
        if (len(saved.log_worse), len(saved.log_better)) != (len(WORSE_ODDS), len(BETTER_ODDS)):
            raise ValueError(f"line {line.name!r}: the saved state has another grid than this one")
        test = cls(line)
        test._log_worse = np.array(saved.log_worse)
        test._log_better = np.array(saved.log_better)
        test._restarts_left = saved.restarts_left
        test._n, test._events = saved.n, saved.events
        test._bad_sessions, test._breached = saved.bad_sessions, saved.breached
        return test

    def _has_crossed(self) -> bool:
        enough = len(self._bad_sessions) >= self.line.min_sessions
        return enough and self.log_e >= -math.log(self.line.alpha)

    def _remember(self, session: str, *, bad: bool) -> None:
        known = self._bad_sessions
        if bad and session not in known and len(known) < self.line.min_sessions:
            self._bad_sessions = (*known, session)


def _finite_exp(log_value: float) -> float:
    """exp, capped where it would leave the range that JSON can carry."""
    return math.exp(min(log_value, 700.0))
