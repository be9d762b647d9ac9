"""The skeleton that the tiny checkpoints are trained from: a whole Qwen3-Omni that knows nothing.

The very architecture with its configuration, tokenizer and processor figures, and random weights.
What ships is trained from it (`tools/train_tiny.py`) and lies in `runtime/model/shipped`.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import Qwen3OmniMoeForConditionalGeneration

from runtime.model import tiny_config, tiny_tokenizer, weights
from runtime.model.checkpoint import FIGURES, MANIFEST, WEIGHTS


def create(folder: Path, *, version: str, seed: int) -> Path:
    """Write config, tokenizer, chat template, processor figures, weights and manifest.

    The same seed gives the same bytes on one kind of CPU, and so the same digest. Returns
    `folder`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tiny_tokenizer.build()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = Qwen3OmniMoeForConditionalGeneration(tiny_config.build(tokenizer)).eval()
        draw_weights(model)
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_file(model.state_dict(), folder / WEIGHTS, metadata={"format": "pt"})
    manifest = {
        "version": version,
        "seed": seed,
        "weights": "random, see runtime/model/tiny.py",
        "weights_digest": weights.digest([folder / WEIGHTS]),
    }
    for name, content in ((FIGURES, tiny_config.FIGURES), (MANIFEST, manifest)):
        (folder / name).write_text(json.dumps(content, indent=2), encoding="utf-8")
    return folder


def draw_weights(model: Any) -> None:
    """Normal weights scaled by fan-in (one small scale for all leaves inputs without effect)."""
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            if name == "bias":
                weight.zero_()
            elif weight.dim() > 1:
                weight.normal_(std=_fan_in(module, weight) ** -0.5)


def _fan_in(module: nn.Module, weight: Tensor) -> float:
    """How many inputs one output sums up."""
    match module:
        case nn.Embedding():
            return 1.0
        case nn.ConvTranspose1d():
            return module.in_channels * module.kernel_size[0] / module.stride[0]
        case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
            return float(weight[0].numel())
        case _:
            return float(weight.shape[-1])
