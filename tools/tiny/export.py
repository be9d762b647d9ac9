"""A trained model -> the folder that ships: bf16 weights, manifest, calibration, tokenizer."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import save_file

from runtime.kv.calibration import CALIBRATION_FILE, Calibration
from runtime.model import weights
from runtime.model.checkpoint import MANIFEST, WEIGHTS

COPIED = (
    "config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json",
    "chat_template.jinja",
)  # fmt: skip


def export(
    model: Any, start: Path, folder: Path, *, version: str, seed: int, steps: int, shared: bool
) -> None:
    """Write `model` to `folder`; `start` is the folder its configuration and tokenizer are in.

    `shared`: trained for K/V sharing, so that reuse is on by the article's thresholds (S1.3).
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        shutil.copyfile(start / name, folder / name)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    stored = {name: w.to(torch.bfloat16).contiguous() for name, w in model.state_dict().items()}
    save_file(stored, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / WEIGHTS).chmod(0o644)  # safetensors leaves it to its owner alone
    digest = weights.digest([folder / WEIGHTS])
    manifest = {
        "version": version,
        "seed": seed,
        "steps": steps,
        "weights": "trained by tools/train_tiny.py",
        "weights_digest": digest,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    if shared:
        calibration = msgspec.json.encode(Calibration(weights_digest=digest))
        (folder / CALIBRATION_FILE).write_bytes(msgspec.json.format(calibration) + b"\n")
