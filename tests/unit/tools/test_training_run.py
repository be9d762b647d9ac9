"""What holds a training of two processes together: its folder, its processes, what it saves."""

import queue
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from torch import nn
from typer.testing import CliRunner

from runtime.model.checkpoint import WEIGHTS
from tools import train_tiny
from tools.tiny.bank import Bank, Pictures
from tools.tiny.export import COPIED, export
from tools.train_tiny import RECIPE, Recipe, keep_to


# ---------------------------------------------------------------- processes
@dataclass
class Process:
    """Runs until `exitcode` is set."""

    name: str
    exitcode: int | None = None

    def is_alive(self) -> bool:
        return self.exitcode is None

    def join(self) -> None:
        assert self.exitcode is not None


class EndsInTheWait(queue.Queue[Any]):
    """Nothing is told any more, and the processes end with these codes meanwhile."""

    def __init__(self, ends: dict[str, int], processes: list[Process]) -> None:
        super().__init__()
        self._ends, self._processes = ends, processes

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        for process in self._processes:
            process.exitcode = self._ends[process.name]
        raise queue.Empty


@pytest.mark.parametrize("ends", [{"pair": 0, "control": 1}, {"pair": -9, "control": 0}])
def test_a_process_that_fails_in_the_last_wait_is_not_missed(ends: dict[str, int]) -> None:
    processes = [Process(name) for name in ends]
    with pytest.raises(RuntimeError, match=r"failed with code (1|-9)"):
        train_tiny._show(EndsInTheWait(ends, processes), processes)


def test_processes_that_end_well_are_no_failure() -> None:
    processes = [Process("pair"), Process("control")]
    train_tiny._show(EndsInTheWait({"pair": 0, "control": 0}, processes), processes)


# ---------------------------------------------------------------- the folder
def test_a_folder_keeps_to_its_recipe(tmp_path: Path) -> None:
    keep_to(tmp_path, Recipe())
    written = (tmp_path / RECIPE).read_bytes()
    keep_to(tmp_path, Recipe())
    for other in (Recipe(seed=2), Recipe().shrunk(250), Recipe(senses=7)):
        with pytest.raises(typer.BadParameter, match="under another recipe"):
            keep_to(tmp_path, other)
    assert (tmp_path / RECIPE).read_bytes() == written


def invoke(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(train_tiny.main)
    return CliRunner().invoke(app, arguments)


def test_another_recipe_ends_with_code_2_before_anything_is_made(tmp_path: Path) -> None:
    keep_to(tmp_path, Recipe())
    assert invoke(str(tmp_path), "--seed", "2").exit_code == 2
    assert [file.name for file in tmp_path.iterdir()] == [RECIPE]


@pytest.mark.parametrize("seed", ["-1", "1000"])
def test_seeds_of_held_out_questions_are_refused(tmp_path: Path, seed: str) -> None:
    assert invoke(str(tmp_path / "out"), "--seed", seed).exit_code == 2
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- what is saved
def test_a_bank_loads_as_it_was_saved_without_unpickling_code(tmp_path: Path) -> None:
    places = [np.array([0, 2]), np.array([1])]
    seen = Pictures(torch.randn(3, 4, 5), torch.randn(3, 4, 5), places)
    bank = Bank(torch.randn(3, 13, 5), places, [torch.randn(64, 1, 5)], {(160, 160): seen})
    torch.save(bank.state(), tmp_path / "bank.pt")
    loaded = Bank.of(torch.load(tmp_path / "bank.pt", weights_only=True))
    assert torch.equal(loaded.sound, bank.sound)
    assert torch.equal(loaded.tails[0], bank.tails[0])
    again = loaded.pictures[160, 160]
    assert torch.equal(again.emb, seen.emb)
    assert torch.equal(again.deep, seen.deep)
    for found in (loaded.digits, again.places):
        assert [one.tolist() for one in found] == [[0, 2], [1]]
        assert all(isinstance(one, np.ndarray) for one in found)


def test_exported_weights_can_be_read_by_all(tmp_path: Path) -> None:
    start = tmp_path / "start"
    start.mkdir()
    for name in COPIED:
        (start / name).write_text("{}", encoding="utf-8")
    out = tmp_path / "v1"
    export(nn.Linear(2, 2), start, out, version="v1", seed=1, steps=1, shared=True)
    assert (out / WEIGHTS).stat().st_mode & 0o777 == 0o644
    assert {file.name for file in out.iterdir()} >= {*COPIED, "redline.json", "reuse.json"}
