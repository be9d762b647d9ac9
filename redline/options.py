"""Options that several commands share, and what they stand for."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redline.sentences import fail
from redline.settings import SettingsError, Stack, find_stack

if TYPE_CHECKING:
    from alerts.policy import Policy
    from monitors.redlines import RedLines

StateDir = Annotated[
    Path,
    typer.Option("--state-dir", help="Where the stack keeps its state.", envvar="REDLINE_STATE"),
]
Actor = Annotated[
    str, typer.Option("--actor", help="Who asks; goes into the journal.", envvar="USER")
]
LinesFile = Annotated[
    Path | None,
    typer.Option(
        "--lines", help="A redline.yaml: figures and rules that override those that ship."
    ),
]


def stack_of(state_dir: Path, code: int = 1) -> Stack:
    """The running stack; ends the command with this code where there is none."""
    try:
        return find_stack(state_dir)
    except SettingsError as err:
        fail(err, code)


def duration_of(text: str, option: str) -> float:
    """Seconds above 0 of `90s` or `2h`; ends the command with 2 where the text is no such time."""
    from alerts.promql import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as err:
        fail(f"{option}: {err}", 2)
    return seconds if seconds > 0 else fail(f"{option}: give a time above 0", 2)


def policy_of(path: Path | None, base: "RedLines | None" = None) -> "Policy":
    """What ships with a `redline.yaml` over it (`base`: the figures under it); ends the command
    where that cannot be used."""
    from alerts import policy
    from monitors.redlines import RedLinesError

    try:
        return policy.load(path, base)
    except RedLinesError as err:
        fail(err, 2)
