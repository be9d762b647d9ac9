"""What a rollout is asked to do, its lines, and what its traffic can prove before it starts."""

import bisect
import math
from enum import StrEnum
from functools import lru_cache
from typing import Annotated

import msgspec

from monitors.contract import Count, Name, Wire
from monitors.labels import Milestone
from monitors.redlines import RedLines
from rollout.sequential import (
    BETTER_ODDS,
    WORSE_ODDS,
    Line,
    alternatives,
    log_factors,
    log_sum,
    opening,
)

FAULTS = "faults"
FIRST_PACKET = "first_packet"
RESIDENCY = "residency"
_LINES = 2 + 1 + len(Milestone)  # faults, residency, first packet, one degrade line a milestone


class Cause(StrEnum):
    """Why A is taken out of traffic; it decides what becomes of its streams in flight."""

    CACHE = "cache"
    LATENCY = "latency"
    FAULTS = "faults"
    OPERATOR = "operator"


def cause_of(line: str) -> Cause:
    """The cause that a breach of the line of this name is."""
    return {FAULTS: Cause.FAULTS, RESIDENCY: Cause.CACHE}.get(line, Cause.LATENCY)


Seconds = Annotated[float, msgspec.Meta(gt=0.0)]
Weight = Annotated[int, msgspec.Meta(ge=1, le=100)]


class PlanError(ValueError):
    """A rollout that cannot be started as asked; the message says what to change."""


class LatencyLine(Wire, frozen=True):
    """A share of requests that may be without `milestone` after `seconds`."""

    line: Line
    milestone: Milestone
    seconds: Seconds


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

    def __post_init__(self) -> None:
        if self.stable == self.canary:
            raise PlanError(f"stable and canary are both {self.stable!r}; name two residents")
        if not self.version:
            raise PlanError("a rollout needs the version that it is about")
        if not 1 <= self.weight <= 100:
            raise PlanError(f"weight is {self.weight}; choose 1 to 100 percent")
        if not (math.isfinite(self.bake_s) and self.bake_s > 0.0):
            raise PlanError(f"bake_s is {self.bake_s}; choose a time above 0 seconds")

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
) -> RolloutPlan:
    """A plan by the red lines; `weight` and `bake_s` default to S4.4's. Raises `PlanError`."""
    figures = lines.rollout
    try:
        return RolloutPlan(
            stable=stable,
            canary=canary,
            version=version,
            weight=figures.canary_weight if weight is None else weight,
            bake_s=figures.bake_s if bake_s is None else bake_s,
            warmup_s=figures.warmup_s,
            warmup_requests=figures.warmup_requests,
            drain_s=figures.drain_s,
            faults=_line(lines, FAULTS, lines.faults.rate),
            residency=_line(lines, RESIDENCY, 1.0 - lines.cache.hit_rate_floor),
            latency=_latency_lines(lines),
        )
    except ValueError as err:
        raise PlanError(str(err)) from err


def _line(lines: RedLines, name: str, limit: float) -> Line:
    """One line with its share of the false-alarm budget, which all lines split evenly."""
    return Line(
        name=name,
        limit=limit,
        alpha=lines.rollout.alpha / _LINES,
        pass_alpha=lines.rollout.pass_alpha,
        min_sessions=lines.rollout.min_sessions,
    )


def _latency_lines(lines: RedLines) -> tuple[LatencyLine, ...]:
    """S4.5's first-packet line, and S4.2's degrade line for each milestone."""
    first_packet = LatencyLine(
        line=_line(lines, FIRST_PACKET, lines.latency.first_packet_exceedance),
        milestone=Milestone.FIRST_AUDIO_PACKET,
        seconds=lines.latency.first_packet_s,
    )
    degrade = (
        LatencyLine(
            line=_line(lines, f"degrade_{milestone}", lines.latency.degrade_exceedance),
            milestone=milestone,
            seconds=lines.latency.degrade_s,
        )
        for milestone in Milestone
    )
    return (first_packet, *degrade)


class Detectable(Wire, frozen=True):
    """What the bake's traffic on A can show."""

    canary_requests: float
    fault_rate: float | None  # called within the bake at even odds; None: not even a rate of 1
    clean_requests_to_pass: Count  # faultless ones that make evidence of health
    can_pass: bool


@lru_cache(maxsize=32)
def detectable(plan: RolloutPlan, requests_per_s: float) -> Detectable:
    """What `plan` can detect at a total traffic of `requests_per_s`."""
    requests = requests_per_s * plan.weight / 100.0 * plan.bake_s
    needed = clean_requests_to_pass(plan.faults)
    return Detectable(
        canary_requests=requests,
        fault_rate=_smallest_called(plan.faults, requests),
        clean_requests_to_pass=needed,
        can_pass=requests >= needed,
    )


def requests_to_call(line: Line, rate: float) -> float:
    """About the median number of requests until a true `rate` is called a breach.

    An approximation: log E grows per request by the gain of the best point of the grid, and has
    to climb the threshold and the price of that point's share of the weight; a walk passes its
    mean about half the time. Infinite where no bet gains. Within a quarter of the simulated
    medians from 1.5 times the limit on.
    """
    means = alternatives(line.limit, WORSE_ODDS)
    gains = rate * log_factors(1.0, line.limit, means) + (1.0 - rate) * log_factors(
        0.0, line.limit, means
    )
    best = float(gains.max())
    climb = math.log(2.0 * len(means) / line.alpha)
    return max(climb / best, line.min_sessions / rate) if best > 0.0 else math.inf


def _smallest_called(line: Line, requests: float) -> float | None:
    if requests_to_call(line, 1.0) > requests:
        return None
    low, high = line.limit, 1.0
    for _ in range(40):
        middle = (low + high) / 2.0
        if requests_to_call(line, middle) > requests:
            low = middle
        else:
            high = middle
    return high


def clean_requests_to_pass(line: Line) -> int:
    """How many faultless requests in a row make evidence that the line is kept."""
    step = log_factors(0.0, line.limit, alternatives(line.limit, BETTER_ODDS))
    start, goal = opening(len(BETTER_ODDS), 1.0), -math.log(line.pass_alpha)
    enough = math.ceil((goal + math.log(len(BETTER_ODDS))) / float(step.max()))

    def log_e(requests: int) -> float:
        return float(log_sum(start + requests * step))

    return bisect.bisect_left(range(enough), goal, key=log_e)
