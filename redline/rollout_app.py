"""`redline rollout`: bring a new version to traffic, or take it out."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from redline.options import Actor, StateDir, stack_of
from redline.sentences import fail
from redline.settings import STATE_DIR, Stack

app = typer.Typer(help="Bring a new version to traffic, or take it out.", no_args_is_help=True)


@app.command("start")
def start(
    model: Annotated[
        str | None,
        typer.Option(
            help="Checkpoint folder that A loads first, while B serves; the data plane must see it "
            "under the same path."
        ),
    ] = None,
    weight: Annotated[
        int | None, typer.Option(help="Percent of new sessions for A.", min=1, max=90)
    ] = None,
    bake: Annotated[
        str | None, typer.Option(help="How long at that weight, and at 100 %: 90s, 10m.")
    ] = None,
    hurry: Annotated[
        bool,
        typer.Option("--hurry", help="Load at full priority, at B's cost; else in the background."),
    ] = False,
    allow: Annotated[
        list[str], typer.Option(help="API key of a client for A, or @FILE of keys; else nobody's.")
    ] = [],  # noqa: B006 - typer reads it, and nobody writes to it
    deny: Annotated[
        list[str], typer.Option(help="API key of a client that A never gets, or @FILE of keys.")
    ] = [],  # noqa: B006
    mirror: Annotated[
        int, typer.Option(help="Percent of B's sessions that A gets copies of.", min=0, max=100)
    ] = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Begin unasked.")] = False,
    actor: Actor = "operator",
    state_dir: StateDir = STATE_DIR,
) -> None:
    """Begin: A gets its share of new sessions and is judged by evidence (S4.4).

    Says first what today's traffic can detect, and asks. Exit codes: 1, not begun, or called off
    while A loads; 2, wrong usage, or a model that is refused: A is as it was; 3, begun, and no
    longer followed.
    """
    from redline.audience import audience_of
    from redline.control.api import StartOrder
    from redline.operate import parse_duration
    from redline.rollout_start import ModelRefused, OutOfSight, start_rollout

    try:
        bake_s = None if bake is None else parse_duration(bake)
        audience = audience_of(allow, deny, mirror)
    except ValueError as err:
        fail(err, 2)
    folder = None if model is None else str(Path(model).expanduser().absolute())
    order = StartOrder(
        actor=actor,
        weight=weight,
        bake_s=bake_s,
        audience=audience,
        model=folder,
        hurry=hurry,
    )

    def begin(stack: Stack) -> None:
        try:
            if not start_rollout(stack, order, lambda question: yes or _confirmed(question)):
                fail("not started")
        except ModelRefused as err:
            fail(err, 2)
        except OutOfSight as err:
            fail(err, 3)

    operate(begin, state_dir)


def _confirmed(question: str) -> bool:
    """Nobody there to answer is a no."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        typer.echo("", err=True)
        return False


@app.command("status")
def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Live, until Ctrl-C.")] = False,
    state_dir: StateDir = STATE_DIR,
) -> None:
    """Phase, weight, and the evidence on each red line."""
    from redline.operate import show_rollout, watch_rollout

    try:
        operate(watch_rollout if watch else show_rollout, state_dir)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@app.command("promote")
def promote(actor: Actor = "operator", state_dir: StateDir = STATE_DIR) -> None:
    """Give A its next share now, if the evidence and B's capacity allow it."""
    verb("promote", actor, state_dir)


@app.command("hold")
def hold(actor: Actor = "operator", state_dir: StateDir = STATE_DIR) -> None:
    """Stay at this share, for a bake at most; a breach still rolls back. Then A goes to 0."""
    verb("hold", actor, state_dir)


@app.command("resume")
def resume(actor: Actor = "operator", state_dir: StateDir = STATE_DIR) -> None:
    """Go on after a hold, where it began."""
    verb("resume", actor, state_dir)


@app.command("rollback")
def rollback(
    reason: Annotated[str, typer.Option(help="Goes into the journal.")] = "operator's decision",
    actor: Actor = "operator",
    state_dir: StateDir = STATE_DIR,
) -> None:
    """Take A out now: cut over, fence, drain, flush, verify, quarantine.

    Before A has traffic it calls the rollout off, and nothing is quarantined. Exit codes: 1,
    refused, or a step of it is not proved yet.
    """
    verb("rollback", actor, state_dir, reason)


@app.command("clear-quarantine")
def clear(
    digest: Annotated[str, typer.Argument(help="Weights digest, as `rollout status` shows it.")],
    actor: Actor = "operator",
    state_dir: StateDir = STATE_DIR,
) -> None:
    """Allow a version again that a rollback has put under quarantine."""
    verb("clear-quarantine", actor, state_dir, digest)


@app.command("log")
def log(
    number: Annotated[
        int | None, typer.Argument(help="One rollout, by the number at its head.")
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Every rollout, and what is between them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    state_dir: StateDir = STATE_DIR,
) -> None:
    """The story of the last rollout: what was decided, by whom, when, and what was seen then."""
    from redline.rollout_log import show_log

    operate(lambda stack: show_log(stack, number, whole=all_, as_json=as_json), state_dir)


def verb(name: str, actor: str, state_dir: Path, argument: str = "") -> None:
    """One of the short commands."""
    from redline.operate import command

    operate(lambda stack: command(stack, name, actor, argument), state_dir)


def operate(action: Callable[[Stack], None], state_dir: Path) -> None:
    """Do it with the running stack; ends the command with a sentence where that fails."""
    from redline.client import ClientError

    try:
        action(stack_of(state_dir))
    except ClientError as err:
        fail(err)
