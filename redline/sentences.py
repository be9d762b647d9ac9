"""How a command ends that cannot go on: in one sentence and an exit code."""

from typing import NoReturn

import typer


def fail(error: Exception | str, code: int = 1) -> NoReturn:
    """Say on standard error what is wrong, and end the command."""
    typer.echo(f"redline: {error}", err=True)
    raise typer.Exit(code)
