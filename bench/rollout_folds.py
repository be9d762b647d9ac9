"""Whole rollouts through the very fold that judges them, entry by entry."""

from collections.abc import Iterator

import numpy as np

from monitors.contract import (
    Evidence,
    EvidenceBody,
    Level,
    MilestoneReached,
    RequestFinished,
    ResidencySampled,
)
from monitors.labels import Milestone, Modality, Outcome
from rollout.fold import EvidenceFold
from rollout.plan import RolloutPlan
from rollout.sequential import Verdict

ROUTE = 1
FAULTS, SLOW, SLOWER, MISSES = 0.002, 0.02, 0.003, 0.05  # of a healthy version


def promoted(plan: RolloutPlan, requests: int, seed: int) -> bool:
    """Whether a healthy A, whose requests stand alone, passes a bake without being called."""
    fold = EvidenceFold(plan, ROUTE)
    fold.judge_from(ROUTE)
    for entries in _healthy(plan, requests, np.random.default_rng(seed)):
        fold.take(entries)
    return fold.judgement().verdict is Verdict.PASS


def _healthy(
    plan: RolloutPlan, requests: int, rng: np.random.Generator
) -> Iterator[list[Evidence]]:
    faulted = rng.random(requests) < FAULTS
    slow = rng.random((requests, 2))
    missed = rng.beta(2 * MISSES, 2 * (1.0 - MISSES), requests)
    for i in range(requests):
        bodies: list[EvidenceBody] = [
            MilestoneReached(milestone=milestone, seconds=_seconds(float(draw)))
            for milestone, draw in zip(
                (Milestone.FIRST_TOKEN, Milestone.FIRST_AUDIO_PACKET), slow[i], strict=True
            )
        ]
        found = float(missed[i])
        bodies.append(
            ResidencySampled(
                modality=Modality.TEXT, hit_mass=1.0 - found, lookup_mass=1.0, warm=True
            )
        )
        bodies.append(RequestFinished(outcome=Outcome.OK, faulted=bool(faulted[i])))
        wall = plan.bake_s * i / requests
        yield [_entry(plan, body, f"r{i}", wall) for body in bodies]


def _seconds(draw: float) -> float:
    """Past 400 ms as often as `SLOWER`, past 250 ms as often as `SLOW`."""
    if draw < SLOWER:
        return 0.5
    return 0.3 if draw < SLOW else 0.1


def _entry(plan: RolloutPlan, body: EvidenceBody, request: str, wall: float) -> Evidence:
    return Evidence(
        seq=1,
        wall=wall,
        resident=plan.canary,
        version=plan.version,
        session=request,
        request_id=request,
        pool_epoch=1,
        route_epoch=ROUTE,
        level=Level(),
        operator=False,
        body=body,
    )
