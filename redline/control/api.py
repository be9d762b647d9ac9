"""Wire types of the control plane's own API: what `redline` and the status page read and send."""

from typing import Any

import msgspec

from alerts.firing import Firing
from alerts.ladder import Mode
from monitors.contract import Name, Observed, ResidentStatus, Wire
from monitors.rungs import shown
from redline.control.ladder_api import LadderStatus
from rollout.audience import ANYBODY, Audience
from rollout.detectable import Detectable
from rollout.plan import RolloutPlan
from rollout.status import RolloutStatus


class ControlStatus(Wire, frozen=True):
    """All that on-call asks first. `None` is unknown: nobody leads here, or nobody answers."""

    wall: float
    pid: int
    leader_epoch: int | None
    rule_source: str
    ladder_mode: Mode | None
    watchdog_age_s: float | None
    firing: tuple[Firing, ...] | None  # as far as known; each says who found it, and since when
    pending: tuple[Firing, ...]  # over their lines, and not yet for long enough
    watched: bool  # False: nobody can see the lines over the tables, so more may fire
    data_plane: Observed | None
    rollout: RolloutStatus | None
    ladders: tuple[LadderStatus, ...] = ()
    levels: dict[Name, str] = msgspec.field(default_factory=dict[Name, str])  # in words


def level_words(resident: ResidentStatus) -> str:
    """All of a resident's level, and of classes apart theirs: `full; batch: media=160x160+8k`."""
    apart = (f"{each}: {shown(level)}" for each, level in resident.apart.items())
    return "; ".join((shown(resident.level), *apart))


class StartOrder(Wire, frozen=True):
    """Begin a rollout; `None` takes the red lines' figure, or the resident that is not stable."""

    actor: str
    weight: int | None = None
    bake_s: float | None = None
    canary: str | None = None
    hurry: bool = False  # it loads at the cost of what serves
    model: str | None = None  # a checkpoint folder that A loads first, as the data plane sees it
    audience: Audience = ANYBODY


class ProposalAnswer(Wire, frozen=True):
    """The plan that an order would begin, and the smallest effects it could detect."""

    plan: RolloutPlan
    detectable: Detectable | None


class StartAnswer(Wire, frozen=True):
    """The plan that began, and the smallest effects it can detect at the present traffic."""

    plan: RolloutPlan
    detectable: Detectable | None
    status: RolloutStatus


class VerbOrder(Wire, frozen=True):
    """One of the short commands. `argument`: a reason, or a digest."""

    actor: str
    argument: str = ""


class JournalLine(Wire, frozen=True):
    """One journal entry. `story` tells it in words; None: only a restart needs it."""

    id: int
    wall: float
    leader_epoch: int
    actor: str
    kind: str
    story: str | None
    body: Any
