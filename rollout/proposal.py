"""What a rollout would be, told before it begins: its plan, and what today's traffic can show."""

from pathlib import PurePath
from uuid import uuid4

from monitors.contract import Observed, Wire
from monitors.redlines import RedLines
from rollout import commands
from rollout.audience import ANYBODY, Audience
from rollout.commands import CommandRefused
from rollout.detectable import Detectable, detectable
from rollout.plan import ModelToLoad, RolloutPlan, make_plan


class Wishes(Wire, frozen=True):
    """What a rollout is asked to be; None is as the red lines have it.

    `canary` None: the resident that is not stable. `model`: a checkpoint folder that it is to load
    first, as the data plane sees it, in a `hurry` or in the background; it gives the version its
    name.
    """

    weight: int | None = None
    bake_s: float | None = None
    canary: str | None = None
    audience: Audience = ANYBODY
    model: str | None = None
    hurry: bool = False


def proposed(lines: RedLines, observed: Observed, wishes: Wishes) -> RolloutPlan:
    """The plan that these wishes make. Raises `CommandRefused` and `PlanError`."""
    canary, model = wishes.canary, wishes.model
    others = [r.name for r in observed.residents if r.name != observed.stable]
    if canary is None and len(others) != 1:
        raise CommandRefused(f"name the canary: the residents beside stable are {others}")
    resident = commands.resident_of(observed, canary or others[0])
    return make_plan(
        lines,
        stable=observed.stable,
        canary=resident.name,
        version=resident.version if model is None else PurePath(model).name,
        weight=wishes.weight,
        bake_s=wishes.bake_s,
        audience=wishes.audience,
        model=None
        if model is None
        else ModelToLoad(load=uuid4().hex, checkpoint=model, hurry=wishes.hurry),
    )


def detectable_at(plan: RolloutPlan, requests_per_s: float | None) -> Detectable | None:
    """What `plan` can detect at this traffic; None: no traffic has been seen, or it is of allowed
    clients alone, of whose share of the traffic nothing is known."""
    if requests_per_s is None or plan.audience.clients.allow is not None:
        return None
    # Two digits are enough for people, and let a costly answer be kept.
    return detectable(plan, float(f"{requests_per_s:.2g}"))
