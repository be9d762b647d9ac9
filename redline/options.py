"""Options that several commands share, and what they stand for."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redline.sentences import fail
from redline.settings import SettingsError, Stack, find_stack

if TYPE_CHECKING:
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
    typer.Option("--lines", help="A redline.yaml that overrides the article's figures."),
]


def stack_of(state_dir: Path) -> Stack:
    """The running stack; ends the command where there is none."""
    try:
        return find_stack(state_dir)
    except SettingsError as err:
        fail(err)


def lines_of(path: Path | None) -> "RedLines | None":
    """What a `redline.yaml` says; ends the command where it cannot be used."""
    from monitors import redlines

    try:
        return None if path is None else redlines.load(path)
    except redlines.RedLinesError as err:
        fail(err, 2)
