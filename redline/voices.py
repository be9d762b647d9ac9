"""`redline voices`: how a checkpoint's voices speak and end, so that a cut can be told."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from redline.measuring import check_folder, measuring
from redline.sentences import fail

if TYPE_CHECKING:
    from rich.console import Group

    from runtime.quality.speaking import VoiceReport, VoicesReport

_UNKNOWN = "[dim]-[/]"


def command(
    model: Annotated[Path, typer.Option(help="Checkpoint folder.")],
    texts: Annotated[
        str,
        typer.Option(help="What is read aloud: en, zh, or words (of the checkpoint that ships)."),
    ] = "en,zh",
    count: Annotated[
        int, typer.Option(help="Texts of each kind to fit to; as many to verify on.")
    ] = 200,
    seed: Annotated[int, typer.Option(help="Another seed draws other texts.")] = 0,
    device: Annotated[str, typer.Option(help="Where it runs: cpu, cuda or cuda:N.")] = "cpu",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write no file.")] = False,
    out: Annotated[Path | None, typer.Option("--json", help="Where the report goes.")] = None,
) -> None:
    """Have every voice read texts aloud, and learn how long it takes and how it ends."""
    from rich.console import Console

    from runtime.model.voices import VOICES_FILE, write

    check_folder("--json", out)
    report = run(model, texts, count, seed, device)
    Console().print(draw(report))
    if out is not None:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    if not any(voice.model.known for voice in report.voices):
        fail(
            f"no voice of {report.version} is regular enough to be judged by: "
            f"{model / VOICES_FILE} is not written; read more texts with --count"
        )
    if not dry_run:
        typer.echo(f"wrote {write(model, report.file)}")


def run(model: Path, texts: str, count: int, seed: int, device: str = "cpu") -> "VoicesReport":
    """Load, read aloud, fit and verify, with a bar on standard error. What cannot be used ends
    the command."""
    from runtime.quality.readings import named
    from runtime.quality.speaking import fit_voices

    with measuring(model, device, 0) as (loaded, progress):
        return fit_voices(loaded, named(texts), count, seed, progress)


def draw(report: "VoicesReport") -> "Group":
    """A row for each voice and language."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("voice", "language", "s/syllable", "s/word", "spread %", "ends below", "tail ms"):
        table.add_column(name, justify="left" if name in ("voice", "language") else "right")
    for voice in report.voices:
        for row in _rows(voice):
            table.add_row(*row)
    digest = report.file.weights_digest[:12]
    return Group(f"{report.version} ({digest})", table, *map(_verified, report.voices))


def _rows(voice: "VoiceReport") -> list[list[str]]:
    model = voice.model
    ends = _UNKNOWN if model.end_db is None else f"{model.end_db:+.0f} dB"
    tail = _UNKNOWN if model.tail_s is None else f"{1000 * model.tail_s:.0f}"
    if not model.paces:
        return [[voice.name, _UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN, ends, tail]]
    return [
        [
            voice.name,
            str(language),
            f"{pace.syllable:.3f}",
            f"{pace.word:.3f}",
            " ".join("-" if one is None else f"{100 * one:.0f}" for one in pace.spread),
            ends,
            tail,
        ]
        for language, pace in model.paces.items()
    ]


def _verified(voice: "VoiceReport") -> str:
    given_up = f"; given up, for whole ones broke it: {', '.join(voice.withdrawn)}"
    unfinished = f"; {voice.unfinished} never ended" if voice.unfinished else ""
    return (
        f"{voice.name}: of {voice.verified} other texts, cut in half, {voice.half_found} are told"
        f"{given_up if voice.withdrawn else ''}{unfinished}"
    )
