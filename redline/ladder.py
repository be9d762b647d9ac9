"""`redline ladder`: where each resident stands and why, and holding it by hand for a while."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alerts.parts import RUNGS as RUNGS_OF
from alerts.parts import Part
from monitors.contract import ALL_CLASSES, Level, SessionClass
from monitors.rungs import RUNGS, word
from redline.options import Actor, StateDir, stack_of
from redline.sentences import fail
from redline.settings import STATE_DIR

if TYPE_CHECKING:
    from redline.control.ladder_api import HoldOrder, ReleaseOrder

app = typer.Typer(
    help="Where each resident's ladder stands and why; hold it by hand for a while.",
    invoke_without_command=True,
)
WORDS: dict[Part, dict[str, int]] = {
    part: {word(rung).partition("+")[0]: int(rung) for rung in rungs}
    for part, rungs in RUNGS_OF.items()
}
"""What a rung of a part is called here: its word, without the sample rate that goes with it."""


def _rung_of(part: Part, what: str) -> Any:
    """The option that says a rung of a part by its word."""

    def parse(said: str) -> int:
        if said not in WORDS[part]:
            raise typer.BadParameter(f"{said!r} is none of {', '.join(WORDS[part])}")
        return WORDS[part][said]

    return typer.Option(help=what, parser=parse, metavar="|".join(WORDS[part]))


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
    media: Annotated[int | None, _rung_of(Part.MEDIA, "Resolution and sample rate.")] = None,
    kv: Annotated[int | None, _rung_of(Part.KV, "Format of the KV pages.")] = None,
    shed: Annotated[int | None, _rung_of(Part.SHED, "Drop text when busy.")] = None,
    admission: Annotated[int | None, _rung_of(Part.ADMISSION, "Take new sessions?")] = None,
    rung: Annotated[
        int | None,
        typer.Option(
            help="All parts, as the named rung has them: 0 is full.", min=0, max=len(RUNGS) - 1
        ),
    ] = None,
    sessions: Annotated[
        SessionClass | None,
        typer.Option("--class", help="Whose media and admission; everybody's unless said."),
    ] = None,
    actor: Actor = "operator",
    state_dir: StateDir = STATE_DIR,
) -> None:
    """Hold parts of a resident's level until a time is over, whatever the alerts say.

    It takes the place of what was held before. Then the ladder goes on from there by its own
    rules. Exit codes: 0, it is held; 1, refused, or the stack does not answer; 2, wrong usage.
    """
    from redline.control.ladder_api import HoldOrder
    from redline.operate import parse_duration

    try:
        for_s = parse_duration(for_)
    except ValueError as err:
        fail(err, 2)
    said = {Part.MEDIA: media, Part.KV: kv, Part.SHED: shed, Part.ADMISSION: admission}
    parts = {} if rung is None else _parts(RUNGS[rung])
    parts |= {part: rung for part, rung in said.items() if rung is not None}
    if not parts:
        fail("hold something: --media, --kv, --shed, --admission or --rung", 2)
    order = HoldOrder(
        resident=resident,
        classes=ALL_CLASSES if sessions is None else (sessions,),
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


def _parts(level: Level) -> dict[Part, int]:
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
