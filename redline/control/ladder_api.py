"""Wire types of the ladder in the control plane's own API: how it stands, and orders by hand."""

from alerts.decide import Hold
from alerts.ladder import Move
from alerts.overrides import Override
from alerts.parts import Part
from monitors.contract import Level, Name, SessionClass, Wire


class PartStatus(Wire, frozen=True):
    """One part of a version's ladder. `dwell_left_s`: until it may go back a rung, where nothing
    else `holds` it; `moves_left`: of this hour's, for easing."""

    part: Part
    rung: int
    word: str
    since: float | None  # wall seconds; None: it never moved
    why: str
    evidence: str
    dwell_left_s: float
    forecast: str  # one rung better; empty on the best one
    holds: tuple[Hold, ...]
    moves_left: int


class LadderStatus(Wire, frozen=True):
    """The ladder of a resident's version: what is wanted of interactive sessions, of classes
    apart from them, and why. `override`: what a human holds, and until when; `held`: its parts in
    words; `would`: what is only not done because it is a dry run."""

    resident: Name
    version: str
    level: Level
    apart: dict[SessionClass, Level]
    parts: tuple[PartStatus, ...]
    override: Override | None
    held: str = ""
    would: tuple[Move, ...] = ()


class HoldOrder(Wire, frozen=True):
    """Hold parts of a resident's level for `for_s`, whatever the alerts say."""

    resident: Name
    classes: tuple[SessionClass, ...]
    parts: dict[Part, int]
    for_s: float
    actor: str
    reason: str


class ReleaseOrder(Wire, frozen=True):
    """Hold a resident by hand no longer."""

    resident: Name
    actor: str
    reason: str = "cleared"
