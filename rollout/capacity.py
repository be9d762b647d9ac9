"""Whether B could take everything: proved before A is given more than half of it (DESIGN 8).

A rollback is never ramped, so B must stand all of the traffic at once. What B is busy with at its
share of the requests is measured; all of them would make it busy in proportion. Engines batch, so
that says rather too much than too little.
"""

import math

from monitors.contract import (
    ALL_CLASSES,
    Admission,
    Count,
    Name,
    Observed,
    ResidentStatus,
    Shed,
    Wire,
)
from rollout.plan import RolloutPlan
from rollout.traffic import Served

UNPROVED = 50  # percent that A may have without this proof
_LEAST = 20  # requests of B's that its busy time must be of


class Capacity(Wire, frozen=True):
    """What B showed over the latency window. None is unknown, and unknown is no proof.

    `busy_share`: of that window, how much B's engine worked; `served` of `all` requests were B's.
    `turns_away`: B sheds work or refuses sessions, so that its busy time is not of all that came.
    """

    stable: Name
    busy_share: float | None
    served: Count
    all: Count
    limit: float
    turns_away: bool = False

    @property
    def needed(self) -> float | None:
        """B's utilisation, were all of the traffic its own; above 1 it cannot be."""
        if self.busy_share is None or self.served < _LEAST:
            return None
        return self.busy_share * self.all / self.served

    @property
    def proved(self) -> bool:
        """Whether B can take all of the present traffic."""
        needed = self.needed
        return needed is not None and needed < self.limit and not self.turns_away

    @property
    def words(self) -> str:
        """The figures as a sentence."""
        seen = f"it served {self.served} of {self.all} requests lately"
        if self.turns_away:
            return f"{self.stable!r} sheds or refuses work already"
        if self.busy_share is None:
            return f"how busy {self.stable!r} is cannot be seen; {seen}"
        if self.needed is None:
            return f"of {self.stable!r} too little is known: {seen}, {_LEAST} are needed"
        verdict = "under" if self.proved else "not under"
        return (
            f"{self.stable!r} would be {self.needed:.0%} busy with all of the traffic, {verdict} "
            f"{self.limit:.0%} ({seen} and was {self.busy_share:.0%} busy)"
        )


NOTHING_SHOWN = Capacity(stable="stable", busy_share=None, served=0, all=0, limit=0.0)


def capacity(plan: RolloutPlan, observed: Observed | None, served: Served) -> Capacity:
    """What is known of `plan`'s B. `served`: its part of the requests of the latency window."""
    residents = () if observed is None else observed.residents
    seen = next((each for each in residents if each.name == plan.stable), None)
    busy_share = None if seen is None else seen.busy_share
    return Capacity(
        stable=plan.stable,
        busy_share=busy_share if busy_share is not None and math.isfinite(busy_share) else None,
        served=served.one,
        all=served.all,
        limit=plan.stable_limit,
        turns_away=seen is not None and _turns_away(seen),
    )


def _turns_away(stable: ResidentStatus) -> bool:
    """Whether it does so to any class of sessions."""
    levels = [stable.level_of(each) for each in ALL_CLASSES]
    return any(one.shed is Shed.ON or one.admission is Admission.LIMITED for one in levels)
