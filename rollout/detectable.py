"""What a rollout's traffic can prove, told before it starts (DESIGN 8)."""

import bisect
import math
from functools import lru_cache

from monitors.contract import Count, Wire
from rollout.lines import FIRST_PACKET
from rollout.plan import RolloutPlan
from rollout.sequential import (
    BETTER_ODDS,
    START_WEIGHT,
    TURNS_SHARE,
    WORSE_ODDS,
    Line,
    alternatives,
    log_factors,
    log_sum,
    opening,
)


class Detectable(Wire, frozen=True):
    """What the bake's traffic on A can show, were each request a session of its own."""

    canary_requests: float
    fault_rate: float | None  # called within the bake at even odds; None: not even a rate of 1
    clean_requests_to_pass: Count  # faultless ones that make evidence of health
    can_pass: bool
    # Shares of requests past the line that would be called as a fault rate would.
    first_packet_exceedance: float | None = None  # of latency.first_packet_s, 250 ms
    degrade_exceedance: float | None = None  # of latency.degrade_s, 400 ms, at any milestone


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
        first_packet_exceedance=_exceedance(plan, requests, first_packet=True),
        degrade_exceedance=_exceedance(plan, requests, first_packet=False),
    )


def requests_to_call(line: Line, rate: float) -> float:
    """About the median number of requests until a true `rate` is called a breach.

    Of requests that stand alone; those of one session tell less. An approximation: log E grows per
    request by the gain of the best point of the grid, and has to climb the threshold and the price
    of that point's share of the weight; a walk passes its mean about half the time. Infinite where
    no bet gains. Within a quarter of the simulated medians from 1.5 times the limit on.
    """
    means = alternatives(line.limit, WORSE_ODDS)
    gains = rate * log_factors(1.0, line.limit, means) + (1.0 - rate) * log_factors(
        0.0, line.limit, means
    )
    best = float(gains.max())
    climb = math.log(len(means) / (START_WEIGHT * TURNS_SHARE * line.alpha))
    return max(climb / best, line.min_sessions / rate) if best > 0.0 else math.inf


def _exceedance(plan: RolloutPlan, requests: float, *, first_packet: bool) -> float | None:
    """The smallest share that would be called on every line of the kind; None: not even 1."""
    lines = [each.line for each in plan.latency if (each.line.name == FIRST_PACKET) == first_packet]
    shares = [_smallest_called(line, requests) for line in lines]
    known = [share for share in shares if share is not None]
    return max(known) if known and len(known) == len(shares) else None


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
