"""`redline calibrate`: its table, its file, and sentences for mistakes and for finding nothing."""

from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from monitors.labels import Modality
from monitors.redlines import EntropyThresholds
from redline import calibrate
from redline.cli import app
from runtime.kv.calibration import CALIBRATION_FILE, Calibration, Cell, load_policy
from runtime.kv.learned import Learned
from runtime.kv.reuse import Sign
from runtime.quality.bootstrap import Estimate
from runtime.quality.calibrate_learned import LearnedReport
from runtime.quality.calibration_report import CalibrationPlan, CalibrationReport, CellReport

run = CliRunner().invoke
SAFE = Cell(layer=1, modality=Modality.AUDIO, sign=Sign.ABOVE, threshold=0.35, guard=1.25)
CALIBRATION = Calibration(weights_digest="w" * 32, cells=(SAFE,))


def estimate(value: float) -> Estimate:
    return Estimate(value=value, low=value - 0.001, high=value + 0.001)


def row(rule: Cell | None, modality: Modality) -> CellReport:
    return CellReport(
        layer=1,
        modality=modality,
        entries=72,
        sign=Sign.ABOVE,
        share=0.5,
        loss=estimate(0.0012),
        rule=rule,
    )


def report(calibration: Calibration | None) -> CalibrationReport:
    rule = SAFE if calibration else None
    return CalibrationReport(
        version="v1",
        weights_digest="w" * 32,
        budget=0.003,
        clips=60,
        seconds=8,
        seed=0,
        native_nats=0.5,
        cells=(row(rule, Modality.AUDIO), row(None, Modality.VIDEO)),
        attempts=2,
        aliased_share=0.25,
        joint=estimate(0.0015),
        exact=estimate(0.0),
        divergence=estimate(0.0004),
        random_share=0.26,
        random=estimate(0.25),
        calibration=calibration,
    )


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Folder of a model whose calibration finds one cell safe."""
    monkeypatch.setattr(calibrate, "run", lambda model, asked, device: report(CALIBRATION))
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--loss", "little"], "write a share, as 0.3% or 0.003"),
        (["--loss", "0%"], "give one above 0"),
        (["--loss", "nan"], "give one above 0"),
        (["--count", "1"], "clips is 1: give at least 2"),
        (["--clips", "1"], "clips is 1: give at least 2"),
        (["--seconds", "0"], "seconds is 0"),
        (["--json", "nowhere/report.json"], "no such folder"),
        (["--to", "nowhere/reuse.json"], "no such folder"),
        ([], "no such checkpoint folder"),
    ],
)
def test_what_it_cannot_use_is_a_sentence_and_exit_code_2(
    tmp_path: Path, flags: list[str], says: str
) -> None:
    result = run(app, ["calibrate", "--model", str(tmp_path / "none"), *flags])
    assert result.exit_code == 2, result.output
    assert says in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(("text", "value"), [("0.3%", 0.003), ("0.003", 0.003), (" 5 % ", 0.05)])
def test_a_loss_is_a_percentage_or_a_share(text: str, value: float) -> None:
    assert calibrate.share(text) == pytest.approx(value)


def test_the_calibration_goes_into_the_models_folder(answer: Path) -> None:
    result = run(app, ["calibrate", "--model", str(answer)])
    assert result.exit_code == 0, result.output
    written = (answer / CALIBRATION_FILE).read_bytes()
    assert msgspec.json.decode(written, type=Calibration) == CALIBRATION
    assert CALIBRATION_FILE in result.output


def test_it_goes_elsewhere_where_that_is_asked_for(answer: Path) -> None:
    assert run(app, ["calibrate", "--model", "m", "--to", str(answer / "r.json")]).exit_code == 0
    assert [file.name for file in answer.iterdir()] == ["r.json"]


def test_a_dry_run_writes_no_calibration_but_all_of_it_as_json(answer: Path) -> None:
    out = answer / "report.json"
    result = run(app, ["calibrate", "--model", str(answer), "--dry-run", "--json", str(out)])
    assert result.exit_code == 0
    assert not (answer / CALIBRATION_FILE).exists()
    assert msgspec.json.decode(out.read_bytes(), type=CalibrationReport) == report(CALIBRATION)


@pytest.mark.parametrize("before", [None, b"{}"])
def test_where_nothing_is_safe_it_says_what_that_means_and_touches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes | None
) -> None:
    monkeypatch.setattr(calibrate, "run", lambda model, asked, device: report(None))
    file = tmp_path / CALIBRATION_FILE
    if before is not None:
        file.write_bytes(before)
    result = run(app, ["calibrate", "--model", str(tmp_path)])
    assert result.exit_code == 1
    assert "0.150" in result.stdout  # the figures are there all the same
    assert "nothing of v1 can be reused at a loss of 0.3 %" in result.stderr
    assert ("remove it" in result.stderr) == file.exists() == (before is not None)


def test_the_table_has_a_row_for_each_cell_and_the_control_beside_it_in_eighty_columns() -> None:
    console = Console(width=80)
    with console.capture() as shown:
        console.print(calibrate.draw(report(CALIBRATION)))
    lines = shown.get().splitlines()
    (audio,) = [line for line in lines if "audio" in line]
    assert audio.split()[:6] == ["1", "audio", "above", "0.3500", "1.250", "50"]
    assert "0.120 (0.020 to 0.220)" in audio
    (video,) = [line for line in lines if "video" in line]
    assert video.split()[:5] == ["1", "video", "never", "-", "-"]
    (random,) = [line for line in lines if "at random" in line]
    assert "26.0%" in random
    assert "25.000 (24.900 to 25.100)" in random
    assert "never aliased: image, text" in shown.get()
    assert max(map(len, lines)) <= 80


def test_a_shipped_checkpoint_is_calibrated_and_the_control_is_told(
    shipped_checkpoint: Path, tmp_path: Path
) -> None:
    target, out = tmp_path / "reuse.json", tmp_path / "report.json"
    asked = ["calibrate", "--model", str(shipped_checkpoint), "--clips", "2", "--seed", "4"]
    result = run(app, [*asked, "--to", str(target), "--json", str(out)])
    assert result.exit_code == 0, result.output
    found = msgspec.json.decode(out.read_bytes(), type=CalibrationReport)
    assert found.calibration == msgspec.json.decode(target.read_bytes(), type=Calibration)
    assert found.calibration is not None
    assert found.calibration.weights_digest == found.weights_digest
    assert {cell.layer for cell in found.calibration.cells or ()} == {1}
    assert found.joint.high <= 0.003
    assert found.random_share > 0.5
    assert "%" in result.stderr  # the bar


def test_a_learned_policy_is_trained_verified_and_loaded_again(
    shipped_checkpoint: Path, tmp_path: Path
) -> None:
    target, out = tmp_path / CALIBRATION_FILE, tmp_path / "report.json"
    asked = ["calibrate", "--model", str(shipped_checkpoint), "--clips", "2", "--seed", "4"]
    result = run(app, [*asked, "--policy", "learned", "--to", str(target), "--json", str(out)])
    assert result.exit_code == 0, result.output
    assert "foretold" in result.stdout
    found = msgspec.json.decode(out.read_bytes(), type=LearnedReport)
    assert found.joint.high <= 0.003
    assert found.random_share > 0.0
    rule = load_policy(tmp_path, found.weights_digest, 4, None, EntropyThresholds()).rule
    assert isinstance(rule, Learned)
    assert found.calibration is not None
    assert found.calibration.learned is not None
    assert (rule.limit, rule.guard) == (
        found.calibration.learned.limit,
        found.calibration.learned.guard,
    )
    assert {where[0] for where in rule.nets} == {1}


def test_the_plan_is_what_the_options_say() -> None:
    plan = calibrate.plan("1%", 4, 6, 2, 1000)
    assert plan == CalibrationPlan(0.01, clips=4, seconds=6, seed=2, pool_bytes=1000)
