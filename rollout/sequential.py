"""Anytime-valid tests of one line: watch it after every request, stop whenever it speaks.

One kind of e-process serves every line (DESIGN 8). An observation y in [0, 1]
has mean `limit` or less under the hypothesis that the line is kept. Betting that its mean is m
multiplies the stake by 1 + (m - limit) (y - limit) / (limit (1 - limit)). For y of 0 or 1 that is
the likelihood ratio of a Bernoulli(m) against a Bernoulli(limit); for a share such as a cache
miss rate it is a fair bet on a bounded mean. E, the wealth of a mixture over a grid of m, is a
martingale at the limit, so it ever reaches 1 / alpha with probability alpha at most (Ville).

Turns of one session hang together, so a line has two of them (ADR 34). One bets on turns as they
come, and in each session up to its first bad one; the other on the means of whole sessions.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitors.contract import Count, Wire

Array = NDArray[np.floating[Any]]

WORSE_ODDS = (1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0, 40.0, 100.0)  # times the limit's odds
BETTER_ODDS = (0.06, 0.1, 0.2, 0.3, 0.4, 0.6)
TURNS_SHARE = 0.9  # of a line's alpha, to the bets on turns; the rest to those on sessions
# A weight w costs log(1 / w) of evidence. A start of 0.9 calls a version that is bad from the start
# as soon as one without restarts would; a change in mid-run then takes a bad request more.
START_WEIGHT = 0.9
RESTARTS = 20  # they share the rest
RESTART_WEIGHT = (1.0 - START_WEIGHT) / RESTARTS


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
    by_turns: bool = True  # False: y is a share, of which only a session's mean is bet on

    def __post_init__(self) -> None:
        for field in ("limit", "alpha", "pass_alpha"):
            if not 0.0 < getattr(self, field) < 1.0:
                raise ValueError(
                    f"line {self.name!r}: {field} is {getattr(self, field)}, but a sequential "
                    "test needs one strictly between 0 and 1; mend it in redline.yaml"
                )


class Numbers(Wire, frozen=True):
    """What a test knows, for people: it breaches at `e >= threshold`, passes likewise.

    Of the two e-processes of a line `e` and `threshold` are those of the nearer to a breach.
    `to_breach` and `to_pass` are the share of the way to each that was gone, 0 to 1: log E of the
    log of its threshold, and to a breach the sessions that it needs, where they are the lesser.
    None: an earlier release's, which did not say.
    """

    line: str
    verdict: Verdict
    limit: float
    e: float
    threshold: float
    pass_e: float
    pass_threshold: float
    n: Count  # requests
    events: float  # sum of the observations: faults, crossings or miss shares
    bad_sessions: Count  # distinct, counted up to the least number that an alarm needs
    to_breach: float | None = None
    to_pass: float | None = None


class Saved(Wire, frozen=True):
    """A test's state between two observations, to be journalled."""

    log_turns: tuple[float, ...]
    log_sessions: tuple[float, ...]
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


def hazard(limit: float, clean_turns: int) -> float:
    """The most that a turn after so many clean ones of its session may be bad with, while no
    turn is bad with more than `limit`, however they hang together; 1 where anything may be.

    P(bad now | clean so far) = P(bad now and clean so far) / P(clean so far), of which the first
    is at most `limit`, and the second at least 1 - clean_turns * limit.
    """
    clean = 1.0 - clean_turns * limit
    return min(1.0, limit / clean) if clean > 0.0 else 1.0


@lru_cache(maxsize=4096)
def turn_gains(limit: float, clean_turns: int, *, bad: bool) -> Array:
    """Log of what each bet gains on one turn after so many clean ones of its session."""
    null, means = hazard(limit, clean_turns), alternatives(limit, WORSE_ODDS)
    bet = means > null  # on no other, for the past might explain it
    gains = np.zeros(len(means))
    gains[bet] = np.log(means[bet] / null if bad else (1.0 - means[bet]) / (1.0 - null))
    return gains


def log_sum(log_mass: Array) -> Array:
    """Log of the summed mass over the last axis."""
    top = log_mass.max(axis=-1, keepdims=True)
    return (top + np.log(np.exp(log_mass - top).sum(axis=-1, keepdims=True)))[..., 0]


def opening(grid: int, weight: float) -> Array:
    """Log mass that spreads `weight` evenly over a grid."""
    return np.full(grid, np.log(weight / grid))


def restarted(log_mass: Array) -> Array:
    """`log_mass` after one restart has put its weight on every point of the grid."""
    return np.logaddexp(log_mass, opening(log_mass.shape[-1], RESTART_WEIGHT))


def log_wealth(log_mass: Array, restarts_left: int) -> Array:
    """log E: what is at stake and the restarts' weight that is not staked yet."""
    if not restarts_left:
        return log_sum(log_mass)
    return np.logaddexp(log_sum(log_mass), np.log(restarts_left * RESTART_WEIGHT))


class LineTest:
    """The test of one line, in constant memory: a few small grids and counts.

    All restarts live in one grid, because a restart only adds its weight to the mass that the
    later observations multiply. Evidence of health has no restarts: it must hold from the start.
    """

    def __init__(self, line: Line) -> None:
        self.line = line
        self._worse = alternatives(line.limit, WORSE_ODDS)
        self._better = alternatives(line.limit, BETTER_ODDS)
        self._log_turns = opening(len(WORSE_ODDS), START_WEIGHT)
        self._log_sessions = opening(len(WORSE_ODDS), START_WEIGHT)
        self._restarts_left = RESTARTS
        self._n = 0
        self._events = 0.0
        self._bad_sessions: tuple[str, ...] = ()
        self._breached = False
        self._log_better = opening(len(BETTER_ODDS), 1.0)

    def observe(self, y: float, session: str, *, counts_as_health: bool = True) -> None:
        """Take in a session that is one request: `y` in [0, 1] is 1 for a fault, a crossing or a
        full miss. With `counts_as_health` false it can only speak against the line, not for it."""
        self.turn(y, session, clean_turns=0)
        self.settle(y, session)
        if counts_as_health or self.is_bad(y):
            self.show_health(None, y)

    def turn(self, y: float, session: str, clean_turns: int | None) -> None:
        """One turn of a session, `clean_turns` after its first; None: it had a bad one before,
        and tells nothing more."""
        if not 0.0 <= y <= 1.0:
            raise ValueError(f"line {self.line.name!r}: {y} is not an observation in [0, 1]")
        self._n += 1
        self._events += y
        if self.line.by_turns and clean_turns is not None:
            bad = self.is_bad(y)
            self._log_turns = self._log_turns + turn_gains(self.line.limit, clean_turns, bad=bad)
            self._look(session, bad=bad)

    def settle(self, mean: float, session: str) -> None:
        """A session is over, or its slot is: the mean of its turns."""
        self._log_sessions = self._log_sessions + log_factors(mean, self.line.limit, self._worse)
        self._look(session, bad=self.is_bad(mean))

    def show_health(self, before: float | None, mean: float) -> None:
        """A session's mean of the turns that may count for the line is `mean` now; `before`: what
        it was when it last counted, None for the first time."""
        if mean == before:
            return
        gained = log_factors(mean, self.line.limit, self._better)
        if before is not None:
            gained = gained - log_factors(before, self.line.limit, self._better)
        self._log_better = self._log_better + gained

    def restart(self) -> None:
        """Stake one more share from here on, so that a change in mid-run is caught too.

        When to do so may depend on the past only, never on the next observation.
        """
        if self._restarts_left:
            self._log_turns = restarted(self._log_turns)
            self._log_sessions = restarted(self._log_sessions)
            self._restarts_left -= 1

    def forget_health(self) -> None:
        """Begin the evidence of health anew, as after a gap in which anything may have passed."""
        self._log_better = opening(len(BETTER_ODDS), 1.0)

    def is_bad(self, y: float) -> bool:
        """Whether one observation alone is past the line."""
        return y > self.line.limit

    @property
    def observations(self) -> int:
        return self._n

    @property
    def mean(self) -> float | None:
        """Mean of the observations; `None` before the first."""
        return self._events / self._n if self._n else None

    @property
    def log_e(self) -> float:
        """Log E of the bets on turns, or on sessions where those alone are bet on."""
        mass = self._log_turns if self.line.by_turns else self._log_sessions
        return float(log_wealth(mass, self._restarts_left))

    @property
    def log_e_sessions(self) -> float:
        """Log E of the bets on the means of sessions."""
        return float(log_wealth(self._log_sessions, self._restarts_left))

    @property
    def verdict(self) -> Verdict:
        """A breach stays one: E was past its threshold once, and that is what Ville bounds."""
        if self._breached:
            return Verdict.BREACH
        if float(log_sum(self._log_better)) >= -math.log(self.line.pass_alpha):
            return Verdict.PASS
        return Verdict.INCONCLUSIVE

    def numbers(self) -> Numbers:
        log_e, log_threshold = self._nearest()
        log_better, log_pass = float(log_sum(self._log_better)), -math.log(self.line.pass_alpha)
        return Numbers(
            line=self.line.name,
            verdict=self.verdict,
            limit=self.line.limit,
            e=_finite_exp(log_e),
            threshold=math.exp(log_threshold),
            pass_e=_finite_exp(log_better),
            pass_threshold=1.0 / self.line.pass_alpha,
            n=self._n,
            events=self._events,
            bad_sessions=len(self._bad_sessions),
            to_breach=1.0 if self._breached else self._way_to_breach(log_e, log_threshold),
            to_pass=_share(log_better, log_pass),
        )

    def save(self) -> Saved:
        return Saved(
            log_turns=tuple(self._log_turns.tolist()),
            log_sessions=tuple(self._log_sessions.tolist()),
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
        sizes = (len(saved.log_turns), len(saved.log_sessions), len(saved.log_better))
        if sizes != (len(WORSE_ODDS), len(WORSE_ODDS), len(BETTER_ODDS)):
            raise ValueError(f"line {line.name!r}: the saved state has another grid than this one")
        test = cls(line)
        test._log_turns = np.array(saved.log_turns)
        test._log_sessions = np.array(saved.log_sessions)
        test._log_better = np.array(saved.log_better)
        test._restarts_left = saved.restarts_left
        test._n, test._events = saved.n, saved.events
        test._bad_sessions, test._breached = saved.bad_sessions, saved.breached
        return test

    def _way_to_breach(self, log_e: float, log_threshold: float) -> float:
        """As `_has_crossed` asks for both."""
        sessions = _share(len(self._bad_sessions), self.line.min_sessions)
        return min(sessions, _share(log_e, log_threshold))

    def _has_crossed(self) -> bool:
        log_e, log_threshold = self._nearest()
        return len(self._bad_sessions) >= self.line.min_sessions and log_e >= log_threshold

    def _nearest(self) -> tuple[float, float]:
        """(log E, log of its threshold) of the e-process that is nearest to a breach."""
        if not self.line.by_turns:
            return self.log_e, -math.log(self.line.alpha)
        turns, sessions = log_thresholds(self.line.alpha)
        of_turns, of_sessions = (self.log_e, turns), (self.log_e_sessions, sessions)
        return max(of_turns, of_sessions, key=lambda each: each[0] - each[1])

    def _look(self, session: str, *, bad: bool) -> None:
        """Whether the line is breached now; E grows by what is bad alone."""
        known = self._bad_sessions
        if bad and session not in known and len(known) < self.line.min_sessions:
            self._bad_sessions = (*known, session)
        self._breached = self._breached or (bad and self._has_crossed())


def log_thresholds(alpha: float) -> tuple[float, float]:
    """Where log E breaches: of the bets on turns, and of those on sessions. Together they cry wolf
    with probability `alpha` at most."""
    return -math.log(TURNS_SHARE * alpha), -math.log((1.0 - TURNS_SHARE) * alpha)


def _share(of: float, whole: float) -> float:
    return min(1.0, max(0.0, of / whole))


def _finite_exp(log_value: float) -> float:
    """exp, capped where it would leave the range that JSON can carry."""
    return math.exp(min(log_value, 700.0))
