"""`redline up` with a checkpoint that cannot be served: one sentence, exit code 2, no process."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import psutil

from tests.support.ports import free_ports
from tests.support.stack import CLI

ENOUGH_S = 90.0  # far below the 180 s after which `up` gives up waiting


def test_missing_shards_are_named_and_nothing_is_left(
    tmp_path: Path, tiny_checkpoint: Path
) -> None:
    folder = _without_shards(tiny_checkpoint, tmp_path / "half-downloaded")
    state = tmp_path / "state"
    names = ("runtime", "control", "prometheus", "alertmanager")
    ports = [f"--{n}-port={p}" for n, p in zip(names, free_ports(4), strict=True)]
    flags = ["--no-prometheus", "--model-a", str(folder), "--state-dir", str(state)]
    began = time.monotonic()
    done = subprocess.run(
        [*CLI, "up", *flags, *ports], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr == (
        f"redline: resident 'a' cannot serve: {folder}: 2 of 2 weight files are missing: "
        "model-1.safetensors, model-2.safetensors; restore the folder, or download it again\n"
    )
    assert "Traceback" not in done.stdout
    assert time.monotonic() - began < ENOUGH_S
    assert [p for p in psutil.process_iter() if str(state) in _command(p)] == []
    assert not (state / "stack.json").exists()


def _without_shards(whole: Path, folder: Path) -> Path:
    """A folder whose index names two files that never came."""
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    index = {"weight_map": {"x": "model-1.safetensors", "y": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it ended just now
        return ""
