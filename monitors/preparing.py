"""Wire types of what makes a resident ready for a rollout: a rehearsed breach, a new model."""

from enum import StrEnum
from typing import Annotated

import msgspec

from monitors.wire import Count, Epoch, Name, Wire


class RehearsalOrder(Wire, frozen=True):
    """Put so many marked requests with a hard fault into the evidence log, as of this resident:
    whoever reads it must call a breach, and count none of them. `rehearsal`: an id, new each time.
    """

    leader_epoch: Epoch
    rehearsal: Name
    requests: Annotated[int, msgspec.Meta(ge=1, le=1_000)]


class RehearsalReport(Wire, frozen=True):
    """The entries that are in the evidence log when this is sent."""

    resident: Name
    rehearsal: Name
    entries: Count


Version = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]


class LoadOrder(Wire, frozen=True):
    """Load the `checkpoint` folder, as the data plane sees it, into a resident that serves
    nobody, in place of the model it has. `load`: an id; what was taken once is not done again.
    `hurry`: at the priority of everything else, at the cost of what serves."""

    leader_epoch: Epoch
    load: Name
    checkpoint: str
    version: Version
    hurry: bool = False


class LoadStage(StrEnum):
    """How far the loading of a new model into a resident is."""

    CHECKING = "checking"  # beside the engine that is there; nothing is unloaded
    STARTING = "starting"  # the engine's process starts with it
    LOADED = "loaded"
    REFUSED = "refused"  # `detail` says why; the resident is as it was


class Loading(Wire, frozen=True):
    """The newest model that a resident was ordered to load. `read`: of its bytes, while they are
    checked; None: unknown."""

    load: Name
    checkpoint: str
    version: str
    stage: LoadStage
    detail: str = ""
    read: float | None = None
