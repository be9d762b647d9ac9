"""`redline bases`: in how few bits a checkpoint's KV pages can be kept at a given loss."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from redline.calibrate import plan
from redline.measuring import MEGABYTE, check_folder, measuring
from redline.sentences import fail

if TYPE_CHECKING:
    from rich.console import Group

    from runtime.quality.bases import Bases, BasesReport
    from runtime.quality.calibration_report import CalibrationPlan


def command(
    model: Annotated[Path, typer.Option(help="Checkpoint folder.")],
    loss: Annotated[
        str,
        typer.Option(help="How far the perplexity of right answers may rise, as 0.3% or 0.003."),
    ] = "0.3%",
    count: Annotated[
        int, typer.Option("--count", "--clips", help="Clips to learn on; as many for each check.")
    ] = 60,
    seconds: Annotated[int, typer.Option(help="Length of each clip.")] = 8,
    seed: Annotated[int, typer.Option(help="Another seed draws other clips.")] = 0,
    pool_mb: Annotated[float, typer.Option(help="KV pool, MB.")] = 256.0,
    device: Annotated[str, typer.Option(help="Where it runs: cpu, cuda or cuda:N.")] = "cpu",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write no bases.")] = False,
    out: Annotated[Path | None, typer.Option("--json", help="Where the report goes.")] = None,
) -> None:
    """Learn the bases of `--storage subspace`, and verify what they cost."""
    from rich.console import Console

    from runtime.kv.subspace_file import save

    check_folder("--json", out)
    found = run(model, plan(loss, count, seconds, seed, int(pool_mb * MEGABYTE)), device)
    report = found.report
    Console().print(draw(report))
    if out is not None:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    if report.bits is None:
        fail(
            f"no basis tried keeps to a loss of {100 * report.budget:g} %: nothing is written;"
            " allow more with --loss, judge on more clips with --clips, or store pages as int8"
        )
    if not dry_run:
        typer.echo(f"wrote {save(found.subspace, model, report.weights_digest)}")


def run(model: Path, asked: "CalibrationPlan", device: str = "cpu") -> "Bases":
    """Load, learn and verify, with a bar on standard error. What cannot be used ends the
    command."""
    from runtime.kv.fitting import TooFewTokens
    from runtime.quality.bases import calibrate_bases

    with measuring(model, device, asked.pool_bytes) as (loaded, progress):
        try:
            return calibrate_bases(loaded, asked, progress)
        except TooFewTokens as err:
            fail(err)


def draw(report: "BasesReport") -> "Group":
    """What a token takes before and after, and what that costs."""
    from rich.console import Group

    bits = "no number of bits" if report.bits is None else f"{report.bits:g} bits a number"
    lost = report.loss
    ratio = report.native_bytes / report.token_bytes
    return Group(
        f"{report.version} ({report.weights_digest[:12]}), {report.clips} clips of"
        f" {report.seconds} s, seed {report.seed}",
        f"{bits} at a loss of at most {100 * report.budget:g} %: measured"
        f" {100 * lost.value:.2f} % [{100 * lost.low:.2f}, {100 * lost.high:.2f}]",
        f"a token takes {report.token_bytes} bytes instead of {report.native_bytes}"
        f" ({ratio:.2f} times less), the bases {report.bases_bytes:,} bytes in all",
    )
