"""Holds one drill from its first look to its verdict."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from alerts.policy import Policy
from redline.client import ClientError
from redline.drills import control_down, engine, fault, machinery
from redline.drills.clip import write_clip
from redline.drills.damage import Damage
from redline.drills.names import DrillName
from redline.drills.report import Report, report
from redline.drills.stage import Stage, Teller, Unanswered
from redline.drills.standing import seen_instead
from redline.drills.traffic import Traffic
from redline.drills.watch import watching
from redline.settings import Stack


@dataclass(frozen=True)
class Wishes:
    """What the operator asked for. `yes`: a rollout may be started unasked."""

    recovery: bool
    own_traffic: bool
    yes: bool
    clean_up: bool
    hold_s: float | None


def hold_drill(
    name: DrillName,
    stack: Stack,
    policy: Policy,
    wishes: Wishes,
    teller: Teller,
    damage: Damage,
) -> Report:
    """Break, watch, mend, judge. `damage`: mended by whoever calls, where this is cut short.

    Raises `CannotRun` and `ClientError` where it cannot begin.
    """
    with _staged(stack, policy, wishes, teller, damage) as stage:
        instead: tuple[str, ...] = ()
        try:
            _play(name, stage, wishes)
        except Unanswered as overdue:
            instead = seen_instead(overdue.sight)
        except ClientError as err:
            if not stage.timeline.steps:
                raise
            stage.never(True, f"the stack does not answer the drill: {err}")
            instead = seen_instead(stage.watch.sight())
        traffic = stage.traffic
        return report(name, stage.timeline, instead, traffic.answered, len(traffic.failures))


@contextmanager
def _staged(
    stack: Stack, policy: Policy, wishes: Wishes, teller: Teller, damage: Damage
) -> Generator[Stage]:
    with tempfile.TemporaryDirectory() as folder, watching(stack) as watch:
        clip = Path(folder) / "drill.mp4"
        write_clip(clip)
        yield Stage(
            stack=stack,
            policy=policy,
            watch=watch,
            traffic=Traffic(stack, clip),
            teller=teller,
            recovery=wishes.recovery,
            own_traffic=wishes.own_traffic,
            damage=damage,
        )


def _play(name: DrillName, stage: Stage, wishes: Wishes) -> None:
    match name:
        case DrillName.LATENCY:
            engine.latency(stage)
        case DrillName.CACHE:
            engine.cache(stage)
        case DrillName.FAULT:
            fault.fault(stage, unasked=wishes.yes, clean_up=wishes.clean_up)
        case DrillName.PROMETHEUS_DOWN:
            machinery.silent(stage, machinery.PROMETHEUS)
        case DrillName.ALERTMANAGER_DOWN:
            machinery.silent(stage, machinery.ALERTMANAGER)
        case DrillName.CONTROL_DOWN:
            control_down.control_down(stage, wishes.hold_s)
