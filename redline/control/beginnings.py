"""Where one rollout ends in the journal and the next begins: one rule, whoever reads it."""

import hashlib

import msgspec

from monitors.contract import Epoch, Wire
from monitors.labels import Phase
from rollout.state import RolloutState


class Place(Wire, frozen=True):
    """What of a state tells whether the next one is of another rollout. `plan`: its digest."""

    phase: Phase = Phase.IDLE
    under_way: bool = False
    plan: str | None = None
    route_epoch: Epoch = 0


def place_of(state: RolloutState) -> Place:
    """Of one entry of the journal."""
    plan = None if state.plan is None else msgspec.json.encode(state.plan)
    return Place(
        phase=state.phase,
        under_way=state.under_way,
        plan=None if plan is None else hashlib.blake2b(plan, digest_size=8).hexdigest(),
        route_epoch=state.route_epoch,
    )


def begins(before: Place, now: Place) -> bool:
    """Whether a rollout starts, and is not resumed after it was held at 0 %."""
    if before.under_way or not now.under_way:
        return False
    same = before.plan == now.plan and now.route_epoch >= before.route_epoch
    return not (before.phase is Phase.HOLD and same)
