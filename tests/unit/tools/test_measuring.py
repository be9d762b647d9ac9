"""A figure that was measured stands for the weights it was measured on, and for no others."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.quality.score import Report
from tests.unit.quality.reports import answer, report
from tools import measure_tiny
from tools.measure_tiny import jobs, measure

JOB = jobs(20)[0]


def retrain(folder: Path, digest: str) -> None:
    (folder / JOB.version).mkdir(exist_ok=True)
    manifest = {"version": JOB.version, "weights_digest": digest}
    (folder / JOB.version / "redline.json").write_text(json.dumps(manifest), encoding="utf-8")


def test_a_report_is_kept_until_the_weights_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def loaded(folder: Path) -> str:
        return json.loads((folder / "redline.json").read_text("utf-8"))["weights_digest"]

    def evaluate(digest: Any, _plan: Any) -> Report:
        measured.append(digest)
        return report([answer(0)], weights_digest=digest)

    monkeypatch.setattr(measure_tiny.checkpoint, "load", loaded)
    monkeypatch.setattr(measure_tiny, "evaluate", evaluate)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    (tmp_path / "figures").mkdir()
    for digest in ("aa", "aa", "bb", "bb"):
        retrain(tmp_path, digest)
        assert measure(tmp_path, JOB).weights_digest == digest
    assert measured == ["aa", "bb"]
