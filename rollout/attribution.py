"""Whose fault it is: each bad request falls on A as often as A has traffic, or more often.

Where A is bad at most `SAME_CAUSE` times as often as B, a bad request is A's with probability
q0 = f r / (f r + 1 - f) at most, with f A's share of the traffic and r that factor. A bet on more
multiplies the stake by q / q0 for each one that is A's, and by (1 - q) / (1 - q0) for each of B's:
an e-process over bad requests alone, whatever the rate that both share does meanwhile (ADR 35).
"""

import math

import numpy as np

from monitors.contract import Count, Epoch, Wire
from rollout.sequential import Array, log_sum, opening

SAME_CAUSE = 1.5  # so much worse may be who shares a cause but is new, and cold
RATIOS = (2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # that are bet on
BLAME_ALPHA = 0.05  # of blaming one for what both share
BASELINE = 20  # turns under one route, before which nobody's share is known


class AttributionState(Wire, frozen=True):
    """One line's attribution between two turns."""

    route_epoch: Epoch | None
    canary_turns: Count
    stable_turns: Count
    log_canary: tuple[float, ...]
    log_stable: tuple[float, ...]
    canary_blamed: bool
    stable_blamed: bool


def log_gains(share: float, *, here: bool) -> Array:
    """Log of what each bet that one arm is worse gains on one bad request. `share`: that arm's of
    the traffic, in (0, 1); `here`: whether it was the one."""
    null = _falls(share, np.array([SAME_CAUSE]))
    means = _falls(share, np.asarray(RATIOS))
    return np.log(means / null if here else (1.0 - means) / (1.0 - null))


def _falls(share: float, ratios: Array) -> Array:
    """The chance that a bad request is of an arm of this share and so many times the rate."""
    return share * ratios / (share * ratios + 1.0 - share)


class Attribution:
    """Of one line: A against B and B against A, in constant memory."""

    def __init__(self) -> None:
        self._route_epoch: Epoch | None = None
        self._turns = [0, 0]  # of A and of B under this route
        self._log = [opening(len(RATIOS), 1.0), opening(len(RATIOS), 1.0)]
        self._blamed = [False, False]

    def take(self, *, canary: bool, bad: bool, route_epoch: Epoch) -> None:
        """One turn of either. Another route is another share of traffic, measured anew."""
        if self._route_epoch is None or route_epoch > self._route_epoch:
            self._route_epoch, self._turns = route_epoch, [0, 0]
        if route_epoch == self._route_epoch:  # else it is of a share that was
            if bad:
                self._bet(canary=canary)
            self._turns[0 if canary else 1] += 1

    @property
    def canary_share(self) -> float | None:
        """A's share of the turns under this route, strictly in (0, 1); None before there were
        enough. One more of each keeps it there."""
        turns = sum(self._turns)
        return (self._turns[0] + 1) / (turns + 2) if turns >= BASELINE else None

    @property
    def blames_canary(self) -> bool:
        """Evidence that A is worse than what B's cause explains. It stays."""
        return self._blamed[0]

    @property
    def blames_stable(self) -> bool:
        """The same of B."""
        return self._blamed[1]

    def save(self) -> AttributionState:
        return AttributionState(
            route_epoch=self._route_epoch,
            canary_turns=self._turns[0],
            stable_turns=self._turns[1],
            log_canary=tuple(self._log[0].tolist()),
            log_stable=tuple(self._log[1].tolist()),
            canary_blamed=self._blamed[0],
            stable_blamed=self._blamed[1],
        )

    @classmethod
    def restore(cls, saved: AttributionState) -> "Attribution":
        """Raises `ValueError` when the state was saved with other bets."""
        if {len(saved.log_canary), len(saved.log_stable)} != {len(RATIOS)}:
            raise ValueError("the saved attribution has another grid than this one")
        attribution = cls()
        attribution._route_epoch = saved.route_epoch
        attribution._turns = [saved.canary_turns, saved.stable_turns]
        attribution._log = [np.array(saved.log_canary), np.array(saved.log_stable)]
        attribution._blamed = [saved.canary_blamed, saved.stable_blamed]
        return attribution

    def _bet(self, *, canary: bool) -> None:
        share = self.canary_share
        if share is None:
            return
        for arm, of_arm in enumerate((share, 1.0 - share)):
            self._log[arm] = self._log[arm] + log_gains(of_arm, here=canary == (arm == 0))
            crossed = float(log_sum(self._log[arm])) >= -math.log(BLAME_ALPHA)
            self._blamed[arm] = self._blamed[arm] or crossed
