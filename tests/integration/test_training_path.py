"""The training script, start to end, on so few steps that it learns nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from runtime.model import checkpoint
from tools.train_tiny import BANK, Recipe

pytestmark = pytest.mark.slow
SHRINK = 250


def training(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tools.train_tiny", str(folder), "--shrink", str(SHRINK)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, text=True, start_new_session=True)


def test_a_stopped_training_goes_on_and_leaves_checkpoints_that_load(tmp_path: Path) -> None:
    first = training(tmp_path)
    interrupted = tmp_path / "dialogues.state"
    deadline = time.monotonic() + 240
    while not interrupted.exists():
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait(30)
    steps = Recipe().shrunk(SHRINK).first[0].steps
    assert 0 < torch.load(interrupted, weights_only=True)["done"] < steps
    banked = (tmp_path / BANK).stat().st_mtime_ns
    assert not (tmp_path / "tiny-omni-2").exists()

    assert training(tmp_path).wait(900) == 0
    assert (tmp_path / BANK).stat().st_mtime_ns == banked
    digests = set()
    for version in ("tiny-omni-1", "tiny-omni-2", "control"):
        loaded = checkpoint.load(tmp_path / version)
        manifest = json.loads((tmp_path / version / "redline.json").read_text("utf-8"))
        assert manifest["version"] == loaded.version == version
        assert manifest["weights_digest"] == loaded.weights_digest
        assert (tmp_path / version / "reuse.json").exists() == (version != "control")
        digests.add(loaded.weights_digest)
    assert len(digests) == 3
