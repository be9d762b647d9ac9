"""What a rollout is asked to do: who goes where, for how long, and by which lines."""

import math
from enum import StrEnum
from typing import Annotated

import msgspec

from monitors.contract import Count, Name, Wire
from monitors.redlines import RedLines
from rollout.audience import ANYBODY, Audience
from rollout.lines import (
    FAULTS,
    RESIDENCY,
    LatencyLine,
    Seconds,
    faults_line,
    latency_lines,
    residency_line,
)
from rollout.sequential import Line


class Cause(StrEnum):
    """Why A is taken out of traffic; it decides what becomes of its streams in flight."""

    CACHE = "cache"
    LATENCY = "latency"
    FAULTS = "faults"
    OPERATOR = "operator"


def cause_of(line: str) -> Cause:
    """The cause that a breach of the line, or a needed level, of this name is."""
    return {FAULTS: Cause.FAULTS, RESIDENCY: Cause.CACHE, "level_kv": Cause.CACHE}.get(
        line, Cause.LATENCY
    )


def share_seen(weight: int, *, promoted: bool) -> int:
    """Percent of new sessions that A has, for people: `weight` is its share as the canary only."""
    return ALL if promoted else weight


Weight = Annotated[int, msgspec.Meta(ge=1, le=100)]
ALL = 100  # percent: A is the stable one then, the roles are swapped
MOST_AT_FIRST = 90  # percent: with less of the traffic B proves nothing that a promotion needs


class Step(Wire, frozen=True):
    """A share of A's on its way to all, and what it must have stood at it before the next."""

    weight: Weight
    least_s: Seconds
    least_requests: Count


class PlanError(ValueError):
    """A rollout that cannot be started as asked; the message says what to change."""


class ModelToLoad(Wire, frozen=True):
    """A checkpoint folder, as the data plane sees it, that A loads first, by order `load`."""

    load: Name
    checkpoint: str
    hurry: bool = False


class RolloutPlan(Wire, frozen=True):
    """A (`canary`) gets `weight` percent beside B (`stable`) for `bake_s`, judged by the lines.

    The figures are taken over at the start: a rollout ends by the rules it began with.
    """

    stable: Name
    canary: Name
    version: str
    weight: Weight
    bake_s: Seconds
    warmup_s: Seconds
    warmup_requests: Count
    drain_s: Seconds
    faults: Line
    residency: Line
    latency: tuple[LatencyLine, ...]
    steps: tuple[Step, ...] = ()  # between `weight` and all
    model: ModelToLoad | None = None  # None: A has its model already
    audience: Audience = ANYBODY
    # Of B's utilisation, were all of the traffic its own.
    stable_limit: float = RedLines().scheduler.resume_utilisation
    # What a rung that one bad window brought would take to be given back: that, and a dwell.
    level_dwell_s: Seconds = 90.0

    def __post_init__(self) -> None:
        if self.stable == self.canary:
            raise PlanError(f"stable and canary are both {self.stable!r}; name two residents")
        if not self.version:
            raise PlanError("a rollout needs the version that it is about")
        if not 1 <= self.weight <= 100:
            raise PlanError(f"weight is {self.weight}; choose 1 to 100 percent")
        if not (math.isfinite(self.bake_s) and self.bake_s > 0.0):
            raise PlanError(f"bake_s is {self.bake_s}; choose a time above 0 seconds")

    def step_of(self, weight: int) -> Step | None:
        """The step at which A has this share; None: it is none of them."""
        return next((step for step in self.steps if step.weight == weight), None)

    def after(self, weight: int) -> int:
        """A's next share; after the last step, all."""
        return next((step.weight for step in self.steps if step.weight > weight), ALL)

    @property
    def lines(self) -> tuple[Line, ...]:
        """All lines of the rollout, faults first."""
        return (self.faults, self.residency, *(latency.line for latency in self.latency))


def make_plan(
    lines: RedLines,
    *,
    stable: str,
    canary: str,
    version: str,
    weight: int | None = None,
    bake_s: float | None = None,
    audience: Audience = ANYBODY,
    model: ModelToLoad | None = None,
) -> RolloutPlan:
    """A plan by the red lines; `weight` and `bake_s` default to S4.4's. Raises `PlanError`."""
    figures = lines.rollout
    share = figures.canary_weight if weight is None else weight
    if MOST_AT_FIRST < share <= ALL:
        raise PlanError(
            f"weight is {share}: choose at most {MOST_AT_FIRST} percent, so that B can show that "
            "it could take everything back"
        )
    try:
        return RolloutPlan(
            stable=stable,
            canary=canary,
            version=version,
            weight=share,
            model=model,
            bake_s=figures.bake_s if bake_s is None else bake_s,
            steps=tuple(
                Step(weight=step.weight, least_s=step.least_s, least_requests=step.least_requests)
                for step in figures.steps
                if step.weight > share
            ),
            warmup_s=figures.warmup_s,
            warmup_requests=figures.warmup_requests,
            drain_s=figures.drain_s,
            faults=faults_line(lines),
            residency=residency_line(lines),
            latency=latency_lines(lines),
            audience=audience,
            stable_limit=lines.scheduler.resume_utilisation,
            level_dwell_s=lines.latency.window_s + lines.ladder.dwell_s,
        )
    except ValueError as err:
        raise PlanError(str(err)) from err
