"""`redline ladder`: where each resident stands and why, and holding it by hand for a while."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redline.options import Actor, StateDir, stack_of
from redline.sentences import fail
from redline.settings import STATE_DIR

if TYPE_CHECKING:
    from alerts.parts import Part
    from monitors.contract import Level
    from redline.control.ladder_api import HoldOrder, ReleaseOrder

app = typer.Typer(
    help="Where each resident's ladder stands and why; hold it by hand for a while.",
    invoke_without_command=True,
)


class MediaWord(StrEnum):
    FULL = "full"
    P360 = "360p"
    P160 = "160"


class KvWord(StrEnum):
    NATIVE = "native"
    INT8 = "int8"


class ShedWord(StrEnum):
    OFF = "off"
    ON = "on"


class AdmissionWord(StrEnum):
    OPEN = "open"
    LIMITED = "limited"


class ClassWord(StrEnum):
    ALL = "all"
    INTERACTIVE = "interactive"
    BATCH = "batch"


Resident = Annotated[str, typer.Option("--resident", "-r", help="Whose ladder: a or b.")]


@app.callback()
def show(context: typer.Context, state_dir: StateDir = STATE_DIR) -> None:
    """Level, reason, dwell, forecast and budget of each resident, and what is held by hand."""
    if context.invoked_subcommand is None:
        from redline.client import ClientError
        from redline.ladder_shown import show_ladders

        try:
            show_ladders(stack_of(state_dir))
        except ClientError as err:
            fail(err)


@app.command("set")
def hold(
    resident: Resident,
    for_: Annotated[str, typer.Option("--for", help="How long: 90s, 30m, 2h.")],
    reason: Annotated[str, typer.Option(help="Goes into the journal.")],
    media: Annotated[MediaWord | None, typer.Option(help="Resolution and sample rate.")] = None,
    kv: Annotated[KvWord | None, typer.Option(help="Format of the KV pages.")] = None,
    shed: Annotated[ShedWord | None, typer.Option(help="Drop text when busy.")] = None,
    admission: Annotated[AdmissionWord | None, typer.Option(help="Take new sessions?")] = None,
    rung: Annotated[
        int | None,
        typer.Option(help="All parts, as the named rung has them: 0 is full.", min=0, max=5),
    ] = None,
    sessions: Annotated[
        ClassWord, typer.Option("--class", help="Whose media and admission.")
    ] = ClassWord.ALL,
    actor: Actor = "operator",
    state_dir: StateDir = STATE_DIR,
) -> None:
    """Hold parts of a resident's level until a time is over, whatever the alerts say.

    It takes the place of what was held before. Then the ladder goes on from there by its own
    rules. Exit codes: 0, it is held; 1, refused, or the stack does not answer; 2, wrong usage.
    """
    from alerts.parts import Part
    from monitors import rungs
    from monitors.contract import ALL_CLASSES, SessionClass
    from redline.control.ladder_api import HoldOrder
    from redline.operate import parse_duration

    try:
        for_s = parse_duration(for_)
    except ValueError as err:
        fail(err, 2)
    words = {Part.MEDIA: media, Part.KV: kv, Part.SHED: shed, Part.ADMISSION: admission}
    parts = {} if rung is None else _parts(rungs.RUNGS[rung])
    parts |= {part: list(type(word)).index(word) for part, word in words.items() if word}
    if not parts:
        fail("hold something: --media, --kv, --shed, --admission or --rung", 2)
    order = HoldOrder(
        resident=resident,
        classes=ALL_CLASSES if sessions is ClassWord.ALL else (SessionClass(sessions),),
        parts=parts,
        for_s=for_s,
        actor=actor,
        reason=reason,
    )
    _ask("set", order, state_dir)


@app.command("clear")
def release(
    resident: Resident,
    reason: Annotated[str, typer.Option(help="Goes into the journal.")] = "cleared",
    actor: Actor = "operator",
    state_dir: StateDir = STATE_DIR,
) -> None:
    """Hold it by hand no longer: its ladder goes on from there by its own rules."""
    from redline.control.ladder_api import ReleaseOrder

    _ask("clear", ReleaseOrder(resident=resident, actor=actor, reason=reason), state_dir)


def _parts(level: "Level") -> dict["Part", int]:
    from alerts.parts import Part

    return {part: int(getattr(level, part)) for part in Part}


def _ask(verb: str, order: "HoldOrder | ReleaseOrder", state_dir: Path) -> None:
    from redline.client import ClientError, ask
    from redline.control.ladder_api import LadderStatus
    from redline.ladder_shown import show_ladder

    stack = stack_of(state_dir)
    try:
        url = f"{stack.control_url}/api/ladder/{verb}"
        show_ladder(ask(stack, "POST", url, LadderStatus, order))
    except ClientError as err:
        fail(err)
