"""What an engine process will not serve: its last words, its exit code, and where it would run."""

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch

from monitors.redlines import RedLines
from runtime.engine import worker
from runtime.loads import Read
from runtime.model import weights
from runtime.residents.refusal import REFUSED_EXIT


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """No CUDA device here, and nothing of this process is set for an engine's life."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    idle = SimpleNamespace(**{name: lambda: None for name in ("disable", "enable", "freeze")})
    monkeypatch.setattr(worker, "gc", idle)
    monkeypatch.setattr(worker, "_adopt_transformers_logs", lambda: None)


def last_words(folder: Path, lines: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """Of an engine that refuses `folder`."""
    lines.write_text(RedLines().model_dump_json())
    told = f"--name a --socket s --checkpoint {folder} --version v --min-epoch 1 --lines {lines}"
    asked = worker._parse([*told.split(), "--pool-mb", "8", *more])
    with pytest.raises(SystemExit) as end:
        worker._engine(asked)
    assert end.value.code == REFUSED_EXIT
    return capsys.readouterr().err.splitlines()[-1]


def test_a_folder_that_is_not_there_is_its_last_line_and_its_own_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "nowhere"
    said = last_words(folder, tmp_path / "lines", capsys)
    assert said == f"{folder}: no such checkpoint folder"


def test_the_pool_counts_where_memory_is_checked(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = last_words(tiny_checkpoint, tmp_path / "lines", capsys, "--pool-mb", "1e9")
    assert "on the CPU" in said
    assert "1000000.00 GB KV pool" in said


def test_a_pool_without_room_for_two_extents_is_refused(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = last_words(tiny_checkpoint, tmp_path / "lines", capsys, "--pool-mb", "0.001")
    assert "bytes is too small: give it at least" in said


def test_a_device_that_is_not_there_is_named(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = last_words(tiny_checkpoint, tmp_path / "lines", capsys, "--device", "cuda:7")
    assert said.startswith("device 'cuda:7': ")


@pytest.mark.parametrize(
    ("asked", "cuda", "runs_on"),
    [
        ("auto", True, "cuda"),
        ("auto", False, "cpu"),
        ("cpu", True, "cpu"),
        ("cuda:1", False, "cuda:1"),
    ],
)
def test_auto_is_cuda_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, asked: str, cuda: bool, runs_on: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert worker._device(asked) == runs_on


def test_with_a_cuda_device_auto_loads_there(
    tiny_checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert last_words(tiny_checkpoint, tmp_path / "lines", capsys).startswith("device 'cuda': ")


def test_a_sentence_of_several_lines_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        worker._refuse("config.json: cannot\nbe used")
    assert capsys.readouterr().err == "config.json: cannot be used\n"


def checked(folder: Path, lines: Path, *more: str) -> None:
    lines.write_text(RedLines().model_dump_json())
    told = f"--name a --socket s --checkpoint {folder} --version v --min-epoch 1 --lines {lines}"
    worker._check(worker._parse([*told.split(), "--pool-mb", "8", "--check", *more]))


def test_a_check_tells_how_far_it_is_and_loads_nothing(
    tiny_checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("the weights were loaded")

    monkeypatch.setattr("runtime.model.checkpoint._load_model", load)
    checked(tiny_checkpoint, tmp_path / "lines")
    told = [msgspec.json.decode(line, type=Read) for line in capsys.readouterr().out.splitlines()]
    *seen, last = told
    assert last == Read(digest=weights.digest(weights.find(tiny_checkpoint)))
    assert seen[-1].read == seen[-1].of
    assert seen == sorted(seen, key=lambda each: each.read)


def test_a_check_counts_the_memory_that_the_old_engine_gives_back(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    huge = ("--pool-mb", "1e6")  # a TB
    with pytest.raises(SystemExit) as end:
        checked(tiny_checkpoint, tmp_path / "lines", *huge)
    assert end.value.code == REFUSED_EXIT
    assert "on the CPU" in capsys.readouterr().err
    checked(tiny_checkpoint, tmp_path / "lines", *huge, "--freed-host", "2000000000000")
