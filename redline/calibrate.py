"""`redline calibrate`: what a checkpoint may reuse at a given loss, and the file that says so."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from redline.measuring import MEGABYTE, check_folder, measuring
from redline.sentences import fail

if TYPE_CHECKING:
    from rich.console import Group

    from runtime.quality.bootstrap import Estimate
    from runtime.quality.calibrate_learned import LearnedReport
    from runtime.quality.calibration_report import CalibrationPlan, CalibrationReport, CellReport

_ABSENT = "[dim]-[/]"


class Policy(StrEnum):
    """What decides which entries alias."""

    THRESHOLDS = "thresholds"
    LEARNED = "learned"


def command(
    model: Annotated[Path, typer.Option(help="Checkpoint folder.")],
    loss: Annotated[
        str,
        typer.Option(help="How far the perplexity of right answers may rise, as 0.3% or 0.003."),
    ] = "0.3%",
    count: Annotated[
        int, typer.Option("--count", "--clips", help="Clips to search on; as many to verify on.")
    ] = 60,
    seconds: Annotated[int, typer.Option(help="Length of each clip.")] = 8,
    policy: Annotated[
        Policy, typer.Option(help="Thresholds of entropy, or small nets that are trained here.")
    ] = Policy.THRESHOLDS,
    seed: Annotated[int, typer.Option(help="Another seed draws other clips.")] = 0,
    pool_mb: Annotated[float, typer.Option(help="KV pool, MB.")] = 256.0,
    device: Annotated[str, typer.Option(help="Where it runs: cpu, cuda or cuda:N.")] = "cpu",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write no calibration.")] = False,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Where the calibration goes; without it, into the folder."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--json", help="Where all of it goes.")] = None,
) -> None:
    """Find what a checkpoint may reuse of the layer below at a given loss, and verify it."""
    from rich.console import Console

    from runtime.kv.calibration import CALIBRATION_FILE, write

    check_folder("--json", out)
    check_folder("--to", to)
    asked = plan(loss, count, seconds, seed, int(pool_mb * MEGABYTE))
    if policy is Policy.LEARNED:
        from redline.calibrate_learned import draw as draw_learned

        report = run_learned(model, asked, device)
        Console().print(draw_learned(report))
    else:
        report = run(model, asked, device)
        Console().print(draw(report))
    if out is not None:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    target = model / CALIBRATION_FILE if to is None else to
    if report.calibration is None:
        fail(_nothing_safe(report, target))
    if not dry_run:
        write(target, report.calibration)
        typer.echo(f"wrote {target}")


def plan(loss: str, count: int, seconds: int, seed: int, pool_bytes: int) -> "CalibrationPlan":
    """The plan of these options. One that cannot be followed ends the command."""
    from runtime.quality.calibration_report import CalibrationPlan
    from runtime.quality.plan import PlanError

    try:
        return CalibrationPlan(share(loss), count, seconds, seed, pool_bytes)
    except PlanError as err:
        fail(err, 2)


def share(text: str) -> float:
    """Of "0.3%" or "0.003". Anything else ends the command."""
    number, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        value = float(number)
    except ValueError:
        fail(f"--loss {text}: write a share, as 0.3% or 0.003", 2)
    return value / 100 if percent else value


def run(model: Path, asked: "CalibrationPlan", device: str = "cpu") -> "CalibrationReport":
    """Load and calibrate, with a bar on standard error. What cannot be used ends the command."""
    from runtime.quality.calibrate import calibrate

    with measuring(model, device, asked.pool_bytes) as (loaded, progress):
        return calibrate(loaded, asked, progress)


def run_learned(model: Path, asked: "CalibrationPlan", device: str = "cpu") -> "LearnedReport":
    """The same for a learned rule."""
    from runtime.quality.calibrate_learned import calibrate_learned

    with measuring(model, device, asked.pool_bytes) as (loaded, progress):
        return calibrate_learned(loaded, asked, progress)


def draw(report: "CalibrationReport") -> "Group":
    """A row for each layer and modality, and what all of them together cost."""
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
    for name in ("layer", "modal", "side", "nats", "guard", "alone %", "loss alone %"):
        table.add_column(name, justify="left" if name in ("modal", "side") else "right")
    for row in report.cells:
        table.add_row(*_row(row))
    return Group(table, _unseen(report), _together(report))


def _asked(report: "CalibrationReport") -> str:
    what = f"{report.version} ({report.weights_digest[:12]})"
    how = f"{report.clips} clips of {report.seconds} s, seed {report.seed}"
    return f"{what}\nreuse at a loss of {100 * report.budget:g} %, {how}"


def _row(row: "CellReport") -> list[str]:
    rule = row.rule
    return [
        str(row.layer),
        str(row.modality),
        "[dim]never[/]" if rule is None else str(rule.sign),
        _ABSENT if rule is None else f"{rule.threshold:.4f}",
        _ABSENT if rule is None or rule.guard is None else f"{rule.guard:.3f}",
        f"{100 * row.share:.0f} [dim]of {row.entries}[/]",
        loss_words(row.loss),
    ]


def _unseen(report: "CalibrationReport") -> str:
    from monitors.labels import Modality

    absent = sorted(set(Modality) - {row.modality for row in report.cells})
    return f"no entries here, so never aliased: {', '.join(absent)}" if absent else ""


def _together(report: "CalibrationReport") -> str:
    """Against entries drawn at random: whether entropy is the right ruler on this model."""
    exact, apart = report.exact, report.divergence
    points = f"{100 * exact.value:+.1f} [dim]({100 * exact.low:+.1f} to {100 * exact.high:+.1f})[/]"
    return (
        f"together, on {report.clips} other clips (attempt {report.attempts}):\n"
        f"  aliased {report.aliased_share:.1%}, loss % {loss_words(report.joint)}\n"
        f"  at random {report.random_share:.1%}, loss % {loss_words(report.random)}\n"
        f"  right word for word, points {points}; nats a token from full KV {apart.value:.2g}\n"
        "loss: rise of the right answers' perplexity; in brackets: intervals of 95 %"
    )


def loss_words(found: "Estimate") -> str:
    """In per cent, with its interval."""
    low, high = (_percent(figure) for figure in (found.low, found.high))
    return f"{_percent(found.value)} [dim]({low} to {high})[/]"


def _percent(figure: float) -> str:
    return f"{100 * figure:.3f}"


def _nothing_safe(report: "CalibrationReport | LearnedReport", target: Path) -> str:
    kept = f"; {target} is left as it was: remove it, or reuse goes on by it"
    return (
        f"nothing of {report.version} can be reused at a loss of {100 * report.budget:g} %: no "
        f"calibration is written, and reuse stays off" + (kept if target.exists() else "")
    )
