"""The ladder's entries in the journal: their kinds, what is in them, and how they are told."""

from alerts.ladder import Event, Measured, Mode, Move
from alerts.overrides import Override, OverrideEnded
from alerts.parts import RUNGS, Part
from monitors.contract import Wire
from monitors.journal import Entry
from monitors.rungs import word

MOVED, MODE = "ladder.moved", "ladder.mode"
OVERRIDE, OVERRIDE_ENDED = "ladder.override", "ladder.override_ended"
MEASURED = "ladder.measured"

KINDS: dict[str, type[Event]] = {
    MOVED: Move,
    OVERRIDE: Override,
    OVERRIDE_ENDED: OverrideEnded,
    MEASURED: Measured,
}
"""Whose fold a ladder is."""
_KIND_OF = {body: kind for kind, body in KINDS.items()}


class ModeSet(Wire, frozen=True):
    """Body of a `ladder.mode` entry."""

    mode: Mode


def kind_of(event: Event) -> str:
    """The kind under which an event is journalled."""
    return _KIND_OF[type(event)]


def read(entry: Entry) -> Event:
    """The event of an entry of one of `KINDS`. Raises `msgspec.ValidationError`."""
    return entry.read_as(KINDS[entry.kind])


def told(event: Event) -> str:
    """An event as a sentence."""
    match event:
        case Move():
            seen = event.seen.told()
            return (
                f"{event.version}: {event.part} to rung {event.rung}, "
                f"{rung_word(event.part, event.rung)} ({event.reason}{seen and f'; {seen}'})"
            )
        case Override():
            for_s = event.until - event.at
            return f"{event.version}: {held(event)} by hand for {for_s:.0f} s ({event.reason})"
        case OverrideEnded():
            return f"{event.version}: held by hand no longer ({event.reason})"
        case Measured():
            return (
                f"{event.version}: one media rung better takes {event.ratio:.2f} times the work "
                f"of rung {event.rung}"
            )


def held(override: Override) -> str:
    """What an override holds, and of whom."""
    whom = "" if override.is_for_all else f" for {' and '.join(override.classes)} sessions"
    return f"{parts_held(override)}{whom}"


def parts_held(override: Override) -> str:
    """The parts that an override holds, and where."""
    return ", ".join(f"{part} at {rung_word(part, rung)}" for part, rung in override.parts.items())


def rung_word(part: Part, rung: int) -> str:
    """A rung of a part, as people read it."""
    return word(RUNGS[part](rung))
