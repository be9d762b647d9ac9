"""What a rollout would be, told before it begins: its plan, and what today's traffic can show."""

from pathlib import PurePath
from uuid import uuid4

from monitors.contract import Observed
from monitors.redlines import RedLines
from rollout import commands
from rollout.commands import CommandRefused
from rollout.detectable import Detectable, detectable
from rollout.plan import ModelToLoad, RolloutPlan, make_plan


def proposed(
    lines: RedLines,
    observed: Observed,
    *,
    weight: int | None,
    bake_s: float | None,
    canary: str | None,
    model: str | None,
    hurry: bool,
) -> RolloutPlan:
    """The plan that these wishes make. `canary` None: the resident that is not stable; `model`:
    a checkpoint folder that it is to load first, which gives the version its name.

    Raises `CommandRefused` and `PlanError`.
    """
    others = [r.name for r in observed.residents if r.name != observed.stable]
    if canary is None and len(others) != 1:
        raise CommandRefused(f"name the canary: the residents beside stable are {others}")
    resident = commands.resident_of(observed, canary or others[0])
    return make_plan(
        lines,
        stable=observed.stable,
        canary=resident.name,
        version=resident.version if model is None else PurePath(model).name,
        weight=weight,
        bake_s=bake_s,
        model=None
        if model is None
        else ModelToLoad(load=uuid4().hex, checkpoint=model, hurry=hurry),
    )


def detectable_at(plan: RolloutPlan, requests_per_s: float | None) -> Detectable | None:
    """What `plan` can detect at this traffic; None: no traffic has been seen."""
    # Two digits are enough for people, and let a costly answer be kept.
    return None if requests_per_s is None else detectable(plan, float(f"{requests_per_s:.2g}"))
