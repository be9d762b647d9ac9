"""`redline drill NAME`: breaks something, watches, and says whether the runbook is true."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redline.drills.names import DrillName
from redline.options import LinesFile, StateDir, policy_of, stack_of
from redline.sentences import fail
from redline.settings import STATE_DIR, Stack

if TYPE_CHECKING:
    from alerts.policy import Policy
    from redline.drills.report import Report
    from redline.drills.run import Wishes
    from redline.drills.stage import Teller

NOT_ANSWERED, CANNOT_RUN, INTERRUPTED = 1, 2, 130

Name = Annotated[
    DrillName,
    typer.Argument(
        help="cache: the pool is short of memory. latency: every step is slow. fault: a canary's "
        "speech is cut off. The others stop or kill a process of the stack."
    ),
]
Recovery = Annotated[
    bool, typer.Option(help="Wait until all is as before, which takes the ladder's dwell.")
]
OwnTraffic = Annotated[
    bool,
    typer.Option(help="Send requests meanwhile. Without: a few that are looked at, no more."),
]
Yes = Annotated[bool, typer.Option("--yes", help="fault: start a rollout unasked.")]
CleanUp = Annotated[bool, typer.Option("--clean-up", help="fault: lift the quarantine after it.")]
Hold = Annotated[
    float | None,
    typer.Option(help="control-down: stop it for so many seconds, rather than kill it.", min=1),
]
AsJson = Annotated[bool, typer.Option("--json", help="The timeline as JSON, on one line.")]


def command(
    name: Name,
    recovery: Recovery = True,
    traffic: OwnTraffic = True,
    yes: Yes = False,
    clean_up: CleanUp = False,
    hold: Hold = None,
    as_json: AsJson = False,
    lines: LinesFile = None,
    state_dir: StateDir = STATE_DIR,
) -> None:
    """Break something on purpose, watch the system answer, and print when it did what.

    Exit codes: 0, it answered as its runbook says; 1, it did not; 2, the drill cannot run.
    --lines is for a stack that another machine started.
    """
    import msgspec
    from rich.console import Console

    from redline.drills.report import draw
    from redline.drills.run import Wishes

    if hold is not None and name is not DrillName.CONTROL_DOWN:
        fail("--hold is for control-down alone", CANNOT_RUN)
    wishes = Wishes(recovery=recovery, own_traffic=traffic, yes=yes, clean_up=clean_up, hold_s=hold)
    found = _hold(name, wishes, lines, state_dir)
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
    else:
        Console().print(draw(found))
    raise typer.Exit(0 if found.answered else NOT_ANSWERED)


def _hold(name: DrillName, wishes: "Wishes", lines: Path | None, state_dir: Path) -> "Report":
    """The drill, under the lock, told of on standard error; ends the command where it cannot be."""
    from redline.client import ClientError
    from redline.drills.damage import Damage
    from redline.drills.lock import Busy, only_drill_in
    from redline.drills.run import hold_drill
    from redline.drills.stage import CannotRun

    stack = stack_of(state_dir, CANNOT_RUN)
    policy, damage = _policy(stack, lines), Damage()
    try:
        with (
            only_drill_in(state_dir, name),
            _telling(name) as teller,
            damage.mended_at_the_end(),
        ):
            return hold_drill(name, stack, policy, wishes, teller, damage)
    except KeyboardInterrupt:
        fail(f"interrupted; {damage.told}", INTERRUPTED)
    except typer.Abort:
        if damage.interrupted:
            fail(f"interrupted; {damage.told}", INTERRUPTED)
        fail("nobody answers here: say --yes", CANNOT_RUN)
    except (Busy, CannotRun, ClientError, OSError) as err:
        fail(err, CANNOT_RUN)


def _policy(stack: Stack, lines: Path | None) -> "Policy":
    """What the stack was started with, or what is said here."""
    from alerts.policy import make
    from monitors.redlines import RedLines

    if lines is not None:
        return policy_of(lines)
    return make(stack.lines or RedLines(), stack.rules)


@contextmanager
def _telling(name: DrillName) -> Generator["Teller"]:
    """A line for each step on standard error, and one that moves for what is awaited."""
    from rich.console import Console

    from redline.drills.stage import Teller

    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    with console.status(f"drill {name}") as status:

        def confirm(question: str) -> bool:
            status.stop()  # nobody could answer beside a line that moves
            try:
                return typer.confirm(question, err=True)
            finally:
                status.start()

        yield Teller(
            tell=lambda line: console.print(f"  {line}"),
            wait_for=lambda what: status.update(f"drill {name}: {what}"),
            confirm=confirm,
        )
