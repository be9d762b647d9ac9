"""The orders that make a data plane what the rollout's state says: the route, and a rollback."""

import logging
from collections.abc import Callable

from monitors.contract import Observed
from monitors.redlines import RolloutLines
from rollout.dataplane import DataPlane
from rollout.ledger import Ledger
from rollout.rollback import Incomplete, Progress, Rollback, RollbackOrder
from rollout.state import RolloutState

_MAX_RETRY_S = 30.0  # between two attempts at a rollback; they begin a second apart

log = logging.getLogger(__name__)


class Hand:
    """One leader's. `told` hears of each step of a rollback; `clock`: monotonic seconds."""

    def __init__(
        self,
        plane: DataPlane,
        ledger: Ledger,
        lines: RolloutLines,
        progress: Progress | None,
        *,
        told: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self.progress = progress  # of the last rollback
        self._plane = plane
        self._ledger = ledger
        self._lines = lines
        self._told = told
        self._clock = clock
        self._rolling = False
        self._failures = 0  # of this rollback's attempts, one after the other
        self._retry_at = clock()

    async def set_route(self, state: RolloutState) -> Observed | None:
        """Set the wanted route; setting it again renews the canary's lease. None: none is wanted.

        Raises `DataPlaneError`.
        """
        wanted = state.route
        if wanted is None:
            return None
        lease_s, leader_epoch = self._lines.canary_lease_s, self._ledger.leader_epoch
        return await self._plane.set_route(wanted.ordered(leader_epoch, state.route_epoch, lease_s))

    def begin_rollback(self, order: RollbackOrder) -> None:
        """What `roll_back` is to do from now on."""
        self.progress, self._failures = Progress(order=order), 0

    @property
    def may_try_again(self) -> bool:
        """Whether it is time for another attempt at the rollback."""
        return self._clock() >= self._retry_at

    async def roll_back(self) -> Progress | None:
        """One attempt at all the steps that are left; None: they are not all proved."""
        if self._rolling or self.progress is None:
            return None
        self._rolling = True
        try:
            run = Rollback(self.progress, self._plane, self._ledger, self._advanced, self._clock)
            return await run.run()
        except Incomplete as err:
            log.error("ROLLBACK_INCOMPLETE: %s", err)
            self._retry_at = self._clock() + min(_MAX_RETRY_S, 2.0 ** min(self._failures, 5))
            self._failures += 1
            return None
        finally:
            self._rolling = False

    def _advanced(self, progress: Progress) -> None:
        self.progress = progress
        self._told()
