"""Where training starts: the tiny architecture in a folder, and weights scaled by fan-in.

Transformers' own small deviation (0.02) leaves a model this narrow without signal: it learned
nothing in 800 steps.
"""

from typing import Any

import torch
from torch import Tensor, nn

EMBEDDING_STD = 0.35
POSITION_STD = 0.02
RESIDUAL_GAIN = 0.5  # of what is added to the residual stream
HEAD_GAIN = 0.3
LAYER_SCALE = 0.3
OUTPUT_GAIN = 0.02  # of the last convolution: start almost silent
_ADDED = ("o_proj", "down_proj", "out_proj", "fc2", "linear_fc2", "attn.proj")


@torch.no_grad()
def draw(model: Any, seed: int) -> None:
    """Fresh weights for every part of the model."""
    torch.manual_seed(seed)
    for path, module in model.named_modules():
        for name, weight in module.named_parameters(recurse=False):
            _draw(module, f"{path}.{name}", weight)
    output = model.code2wav.decoder[-1].conv
    output.weight *= OUTPUT_GAIN
    output.bias.zero_()


def _draw(module: nn.Module, path: str, weight: Tensor) -> None:
    if path.endswith("gamma") or "layer_scale" in path:
        weight.fill_(LAYER_SCALE)
    elif "pos_embed" in path:
        weight.normal_(std=POSITION_STD)
    elif isinstance(module, nn.Embedding):
        weight.normal_(std=0.5 if "code2wav" in path else EMBEDDING_STD)
    elif weight.dim() > 1:
        weight.normal_(std=_fan_in(module, weight) ** -0.5)
        if any(name in path for name in _ADDED):
            weight *= RESIDUAL_GAIN
        if "head" in path:
            weight *= HEAD_GAIN


def _fan_in(module: nn.Module, weight: Tensor) -> float:
    """How many inputs one output sums up."""
    match module:
        case nn.ConvTranspose1d():
            return module.in_channels * module.kernel_size[0] / module.stride[0]
        case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
            return float(weight[0].numel())
        case _:
            return float(weight.shape[-1])
