"""The ladders as text in a terminal."""

from collections.abc import Iterator
from datetime import datetime

from rich.console import Console
from rich.markup import escape

from alerts.decide import Hold
from monitors.rungs import shown
from redline.client import ask
from redline.control.api import ControlStatus
from redline.control.ladder_api import LadderStatus, PartStatus
from redline.control.ladder_events import held, rung_word
from redline.settings import Stack


def show_ladders(stack: Stack) -> None:
    """The ladder of every resident."""
    status = ask(stack, "GET", f"{stack.control_url}/api/status", ControlStatus)
    console = Console()
    mode = "unknown, nobody leads here" if status.ladder_mode is None else status.ladder_mode
    console.print(f"ladder: {mode}")
    for each in status.ladders:
        _print(console, each)
    if not status.ladders:
        console.print("no resident has been seen: the data plane does not answer")


def show_ladder(status: LadderStatus) -> None:
    """One of them."""
    _print(Console(), status)


def _print(console: Console, status: LadderStatus) -> None:
    console.print(f"[bold]{status.resident}[/] {escape(status.version)}: {shown(status.level)}")
    for line in _lines(status):
        console.print(f"  {escape(line)}")


def _lines(status: LadderStatus) -> Iterator[str]:
    for session_class, level in status.apart.items():
        yield f"{session_class} sessions: {shown(level)}"
    if status.override is not None:
        override = status.override
        yield (
            f"held by hand until {_clock(override.until)}: {held(override)}"
            f" ({override.actor}: {override.reason})"
        )
    for move in status.would:
        word = rung_word(move.part, move.rung)
        yield f"dry run: {move.part} would go to {word} now: {move.reason}"
    for part in status.parts:
        yield from _part(part)


def _part(part: PartStatus) -> Iterator[str]:
    if part.since is None:
        return
    yield f"{part.part} {part.word} since {_clock(part.since)}: {part.why}"
    if part.evidence:
        yield f"  seen then: {part.evidence}"
    if part.rung:
        waits = "; ".join(_hold(hold, part) for hold in part.holds)
        yield f"  one rung better: {part.forecast}; {waits or 'comes back at the next tick'}"
    yield f"  moves left this hour: {part.moves_left}"


def _hold(hold: Hold, part: PartStatus) -> str:
    return f"{hold}, {part.dwell_left_s:.0f} s left" if hold is Hold.DWELL else str(hold)


def _clock(wall: float) -> str:
    return datetime.fromtimestamp(wall).strftime("%H:%M:%S")
