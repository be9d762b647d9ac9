"""`redline eval`: its table, its JSON, and sentences for mistakes."""

from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from redline import evaluate
from redline.cli import app
from runtime.quality.score import Report
from tests.unit.quality.reports import answer, report

run = CliRunner().invoke


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--kv", "half"], "lowest50, random50"),
        (["--tasks", "smells"], "digits, colours"),
        (["--rung", "9"], "0, 1, 2, 3, 4, 5"),
        (["--count", "0"], "count is 0"),
        (["--json", "nowhere/report.json"], "no such folder"),
        ([], "no such checkpoint folder"),
    ],
)
def test_what_it_cannot_use_is_a_sentence_and_exit_code_2(
    tmp_path: Path, flags: list[str], says: str
) -> None:
    result = run(app, ["eval", "--model", str(tmp_path / "none"), *flags])
    assert result.exit_code == 2, result.output
    assert says in result.output
    assert "Traceback" not in result.output


def test_a_checkpoint_is_asked_and_all_of_it_written(tiny_checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    model = ["eval", "--model", str(tiny_checkpoint), "--kv", "reuse+int8", "--seed", "3"]
    size = ["--tasks", "text,image", "--count", "2", "--json", str(out)]
    result = run(app, [*model, *size])
    assert result.exit_code == 0, result.output
    found = msgspec.json.decode(out.read_bytes(), type=Report)
    assert (found.version, found.policy, found.seed) == ("tiny-test-1", "reuse+int8", 3)
    assert [(t.task, t.n) for t in found.tasks] == [("text", 2), ("image", 2)]
    assert "kv reuse+int8, rung 0" in result.stdout
    assert "%" in result.stderr  # the bar


def drawn(made: Report) -> str:
    console = Console(width=80)
    with console.capture() as shown:
        console.print(evaluate.draw(made))
    return shown.get()


def test_the_table_shows_scores_with_their_intervals_in_eighty_columns() -> None:
    answers = [answer(i, "red" if i else "blue", nats=0.5, spoken=("red",)) for i in range(20)]
    shown = drawn(report(answers, speech=True))
    (row,) = [line for line in shown.splitlines() if "image" in line]
    assert row.split()[:3] == ["image", "20", "95.0"]
    assert "0.5000 (0.5000-0.5000)" in row
    assert row.split()[-2:] == ["100.0", "95.0"]
    assert "v1 (0123456789ab)" in shown
    assert "nothing could alias" in shown


def test_the_table_shows_no_speech_as_none() -> None:
    (row,) = [line for line in drawn(report([answer(0)])).splitlines() if "image" in line]
    assert row.split()[-2:] == ["-", "-"]
    assert "100.0 (2.5-100.0)" in row
