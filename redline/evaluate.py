"""`redline eval`: how well a checkpoint answers, as a table and as JSON."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from redline.measuring import MEGABYTE, check_folder, measuring
from redline.sentences import fail

if TYPE_CHECKING:
    from rich.console import Group

    from runtime.quality.plan import Plan
    from runtime.quality.score import KvUse, Report, TaskScore

_ABSENT = "[dim]-[/]"


def command(
    model: Annotated[Path, typer.Option(help="Checkpoint folder.")],
    kv: Annotated[
        str,
        typer.Option(
            help="checkpoint (as its calibration says), native, reuse, lowest50, random50, each "
            "with +int8, +int4, +subspace or without; one of these alone is behind native."
        ),
    ] = "checkpoint",
    rung: Annotated[int, typer.Option(help="Rung of the ladder; 0 is full fidelity.")] = 0,
    tasks: Annotated[
        str | None, typer.Option(help="As digits,colours; without it, all.", show_default=False)
    ] = None,
    seconds: Annotated[int, typer.Option(help="Length of each clip.")] = 8,
    count: Annotated[int, typer.Option(help="Samples of each task.")] = 200,
    speech: Annotated[bool, typer.Option(help="Let it speak, and read the sound back.")] = False,
    seed: Annotated[int, typer.Option(help="Another seed draws other samples.")] = 0,
    pool_mb: Annotated[float, typer.Option(help="KV pool, MB.")] = 256.0,
    device: Annotated[str, typer.Option(help="Where it runs: cpu, cuda or cuda:N.")] = "cpu",
    out: Annotated[Path | None, typer.Option("--json", help="Where all of it goes.")] = None,
) -> None:
    """Ask a checkpoint held-out questions that have a right answer, and score what it says."""
    from rich.console import Console

    check_folder("--json", out)
    asked = plan(kv, rung, tasks, seconds, count, speech, seed, int(pool_mb * MEGABYTE))
    report = run(model, asked, device)
    Console().print(draw(report))
    if out is not None:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")


def plan(
    kv: str,
    rung: int,
    tasks: str | None,
    seconds: int,
    count: int,
    speech: bool,
    seed: int,
    pool_bytes: int,
) -> "Plan":
    """The plan of these options. One that cannot be followed ends the command."""
    from runtime.quality.plan import KvPolicy, Plan, PlanError, tasks_named
    from runtime.quality.tasks import Kind

    try:
        return Plan(
            tasks=tuple(Kind) if tasks is None else tasks_named(tasks),
            policy=KvPolicy.named(kv),
            rung=rung,
            seconds=seconds,
            count=count,
            speech=speech,
            seed=seed,
            pool_bytes=pool_bytes,
        )
    except PlanError as err:
        fail(err, 2)


def run(model: Path, asked: "Plan", device: str = "cpu") -> "Report":
    """Load and evaluate, with a bar on standard error. What cannot be used ends the command."""
    from runtime.quality.evaluate import evaluate

    with measuring(model, device, asked.pool_bytes) as (loaded, progress):
        return evaluate(loaded, asked, progress)


def draw(report: "Report") -> "Group":
    """One line on what was asked, a row for each task, and what the KV policy did."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table

    table = Table(
        title=_asked(report),
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for name in ("task", "n", "exact match %", "nats a token", "spoken %", "read back %"):
        table.add_column(name, justify="left" if name == "task" else "right")
    for row in report.tasks:
        table.add_row(*_row(row))
    return Group(table, _kv(report.kv_use))


def _asked(report: "Report") -> str:
    what = f"{report.version} ({report.weights_digest[:12]})"
    how = f"kv {report.policy}, rung {report.rung}"
    return f"{what}\n{how}, clips of {report.seconds} s, seed {report.seed}"


def _row(row: "TaskScore") -> list[str]:
    exact, nats = row.exact, row.nats
    return [
        str(row.task),
        str(row.n),
        f"{_percent(exact.value)} [dim]({_percent(exact.low)}-{_percent(exact.high)})[/]",
        f"{nats.value:.4f} [dim]({nats.low:.4f}-{nats.high:.4f})[/]",
        _ABSENT if row.spoken is None else _percent(row.spoken.value),
        _ABSENT if row.read_back is None else _percent(row.read_back.value),
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _kv(use: "KvUse") -> str:
    done = "nothing could alias"
    if use.aliased_share is not None:
        done = f"aliased {use.aliased_share:.1%} of {use.eligible} entries that might"
    saved = use.bytes_per_token / use.native_bytes_per_token - 1.0
    size = f"{use.bytes_per_token:.0f} bytes a token, native {use.native_bytes_per_token:.0f}"
    return f"reuse {use.rule}:\n{done}; {size} ({saved:+.1%})\nin brackets: intervals of 95 %"
