"""`redline notify`: who is told of rollouts, and a notice to try it with."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redline.options import LinesFile, StateDir, policy_of
from redline.sentences import fail
from redline.settings import STATE_DIR

if TYPE_CHECKING:
    from alerts.notify import Receiver


def command(
    test: Annotated[
        bool, typer.Option("--test", help="Send each of them a notice that says it is a test.")
    ] = False,
    lines: LinesFile = None,
    state_dir: StateDir = STATE_DIR,
) -> None:
    """The receivers of notices that a `redline.yaml` names, or those of the stack started here.

    Exit codes: 0, each has a URL and, with --test, took the notice; 1, one has none, or did not
    take it; 2, wrong usage. The control plane reads `url_env` from its own environment, this
    command from its shell's.
    """
    receivers = policy_of(lines).notify if lines is not None else _of_stack(state_dir)
    if not receivers:
        typer.echo("nobody is told of rollouts: name receivers under `notify:` (docs/policy.md)")
        return
    found = [_tried(receiver) if test else _addressed(receiver) for receiver in receivers]
    if not all(found):
        raise typer.Exit(1)


def _of_stack(state_dir: Path) -> "tuple[Receiver, ...]":
    from pydantic import ValidationError

    from redline.control.settings import ControlSettings

    path = state_dir / "control.json"
    try:
        return ControlSettings.model_validate_json(path.read_bytes()).notify
    except OSError as err:
        fail(f"{path}: {err.strerror}; start a stack with `redline up`, or give --lines", 2)
    except ValidationError as err:
        fail(f"{path}: {err}", 2)


def _addressed(receiver: "Receiver") -> bool:
    from alerts.notify import NoAddress

    what = f"{receiver.name}: {receiver.form}, {', '.join(receiver.tell)}"
    try:
        receiver.url()
    except NoAddress as err:
        typer.echo(f"{what}; {err}")
        return False
    typer.echo(f"{what}; its URL is in {receiver.place}")
    return True


def _tried(receiver: "Receiver") -> bool:
    import httpx

    from alerts.notify import Happening
    from redline.control.notices import Notice
    from redline.control.notifier import NotTold, send

    notice = Notice(
        id=0, wall=time.time(), event=Happening.STARTED, actor="redline notify", version=None,
        title="This is a test of Redline's notices", details=("no rollout has begun",),
    )  # fmt: skip

    async def once() -> None:
        async with httpx.AsyncClient() as client:
            await send(client, receiver, notice)

    try:
        asyncio.run(once())
    except NotTold as err:
        typer.echo(f"{receiver.name}: not told: {err}")
        return False
    typer.echo(f"{receiver.name}: told")
    return True
