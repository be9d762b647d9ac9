"""Copies of a checkpoint that ships, changed as tests need them."""

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Qwen2Tokenizer

from runtime.kv.calibration import CALIBRATION_FILE
from runtime.model import weights
from runtime.model.checkpoint import MANIFEST, WEIGHTS

HEAD = "thinker.lm_head.weight"


def endless(shipped: Path, folder: Path, version: str) -> Path:
    """A copy of `shipped` whose text never ends by itself, and which is not calibrated.

    The end's row of the Thinker's head becomes the mean of the rows of all words. So its logit is
    the mean of theirs, which is never the highest.
    """
    shutil.copytree(shipped, folder)
    (folder / CALIBRATION_FILE).unlink()
    tensors = load_file(folder / WEIGHTS)
    tokenizer = Qwen2Tokenizer.from_pretrained(folder)
    markers = tokenizer.added_tokens_decoder
    words = [place for place in tokenizer.get_vocab().values() if place not in markers]
    tensors[HEAD][tokenizer.eos_token_id] = tensors[HEAD][words].float().mean(0)
    change_weights(folder, tensors)
    edit(folder / MANIFEST, version=version)
    return folder


def change_weights(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Other weights, and the manifest's digest to match."""
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    edit(folder / MANIFEST, weights_digest=weights.digest([folder / WEIGHTS]))


def edit(path: Path, **changes: object) -> None:
    """Values of a JSON file's object."""
    found = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**found, **changes}), encoding="utf-8")


def forget_digest(folder: Path) -> None:
    """Leave the manifest without a digest, so that any weights may stand beside it."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    del manifest["weights_digest"]
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
