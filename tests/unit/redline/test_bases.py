"""`redline bases`: its lines, its file, and sentences for finding nothing."""

from pathlib import Path

import msgspec
import pytest
import torch
from typer.testing import CliRunner

from redline import bases
from redline.cli import app
from runtime.kv.fitting import SubspaceFit, TooFewTokens
from runtime.kv.subspace_file import SUBSPACE_FILE, load
from runtime.quality import bases as learning
from runtime.quality.bases import Bases, BasesReport
from runtime.quality.bootstrap import Estimate
from runtime.quality.calibration_report import CalibrationPlan

run = CliRunner().invoke


def rotary(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return positions, positions


def found(bits: float | None) -> Bases:
    fit = SubspaceFit(2, 8)
    fit.add(*torch.randn(2, 2, 50, 2, 4))
    report = BasesReport(
        version="v1",
        weights_digest="w" * 32,
        budget=0.003,
        clips=60,
        seconds=8,
        seed=0,
        bits=bits,
        loss=Estimate(value=0.0012, low=0.0002, high=0.0022),
        token_bytes=132,
        native_bytes=2048,
        bases_bytes=82824,
    )
    return Bases(report, fit.fit(3.0, rotary))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    asked: list[CalibrationPlan] = []

    def fake(model: Path, plan: CalibrationPlan, device: str = "cpu") -> Bases:
        asked.append(plan)
        return found(2.25 if plan.loss > 0.001 else None)

    monkeypatch.setattr(bases, "run", fake)
    return tmp_path


def test_bases_that_hold_are_written_and_said_in_lines(folder: Path) -> None:
    said = run(app, ["bases", "--model", str(folder), "--json", str(folder / "all.json")])
    assert said.exit_code == 0
    assert "2.25 bits a number at a loss of at most 0.3 %" in said.output
    assert "a token takes 132 bytes instead of 2048 (15.52 times less)" in said.output
    cpu = torch.device("cpu")
    written = load(folder, "w" * 32, rotary, cpu, layers=2, channels=8)
    assert written.units.keys() == {(0, 1)}
    report = msgspec.json.decode((folder / "all.json").read_bytes(), type=BasesReport)
    assert report == found(2.25).report


def test_a_dry_run_writes_nothing(folder: Path) -> None:
    assert run(app, ["bases", "--model", str(folder), "--dry-run"]).exit_code == 0
    assert not (folder / SUBSPACE_FILE).exists()


def test_where_nothing_holds_nothing_is_written_and_it_says_what_to_do(folder: Path) -> None:
    said = run(app, ["bases", "--model", str(folder), "--loss", "0.01%"])
    assert said.exit_code == 1
    assert "nothing is written; allow more with --loss" in " ".join(said.output.split())
    assert not (folder / SUBSPACE_FILE).exists()


def test_too_few_tokens_end_in_a_sentence(
    shipped_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*_: object) -> Bases:
        raise TooFewTokens("20 tokens are too few for 128 channels: calibrate on more")

    monkeypatch.setattr(learning, "calibrate_bases", short)
    said = run(app, ["bases", "--model", str(shipped_checkpoint), "--dry-run"])
    assert said.exit_code == 1
    assert "calibrate on more" in said.output
