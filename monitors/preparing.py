"""Wire types of what makes a resident ready for a rollout: a rehearsed breach, a new model."""

from typing import Annotated

import msgspec

from monitors.contract import Count, Epoch, Name, Wire


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
