"""`redline inject`: break one resident's engine on purpose; `redline drill` is the whole story."""

from typing import Annotated

import typer

from monitors.contract import DrillKind, DrillOrder, DrillReport
from redline.options import StateDir, stack_of
from redline.sentences import fail
from redline.settings import STATE_DIR, Stack

DEFAULT_AMOUNT: dict[DrillKind, float] = {
    DrillKind.SLOW: 0.3,  # seconds a step
    DrillKind.DESYNC: 0.4,  # seconds of sound against picture
    DrillKind.PRESSURE: 0.9,  # share of the pool
}
"""Of the kinds that have an amount; the others are all or nothing."""

Kind = Annotated[
    DrillKind,
    typer.Argument(
        help="slow: steps take AMOUNT s longer. truncate: speech stops early. desync: sound "
        "AMOUNT s off. corrupt: frames damaged. pressure: AMOUNT of the pool pinned. "
        "kill: the process dies. lying_flush: a flush empties nothing."
    ),
]
Resident = Annotated[str, typer.Option("--resident", "-r", help="Whose engine: a or b.")]
Seconds = Annotated[float, typer.Option(help="How long; 0 ends it now.")]
Amount = Annotated[float | None, typer.Option(help="How much; each kind has its default.")]


def command(
    kind: Kind,
    resident: Resident = "a",
    seconds: Seconds = 60.0,
    amount: Amount = None,
    state_dir: StateDir = STATE_DIR,
) -> None:
    """Break one resident's engine on purpose: the engine itself, never a metric."""
    from redline.client import ClientError

    try:
        report = start(stack_of(state_dir), kind, resident, seconds, amount)
    except ClientError as err:
        fail(err)
    typer.echo(f"{report.kind} on {report.resident}: {report.detail}")


def start(
    stack: Stack, kind: DrillKind, resident: str, seconds: float, amount: float | None
) -> DrillReport:
    """Tell the data plane; it ends by itself after `seconds` (0 ends it now)."""
    from redline.client import ask

    order = DrillOrder(
        kind=kind,
        seconds=seconds,
        amount=DEFAULT_AMOUNT.get(kind, 0.0) if amount is None else amount,
    )
    url = f"{stack.runtime_url}/control/residents/{resident}/drill"
    return ask(stack, "POST", url, DrillReport, order)
