"""A model that does just what it did, and whose layers have nothing to share."""

import torch

from runtime.model.checkpoint import Checkpoint

TIMES = 100.0


def own_scale(loaded: Checkpoint, layer: int = 0) -> None:
    """Make the values of `layer` a hundred times larger and its output projection smaller by as
    much: what the layer says stays, but the layer above, reading its pages, is shouted at."""
    attention = loaded.model.thinker.model.language_model.layers[layer].self_attn
    with torch.no_grad():
        attention.v_proj.weight.mul_(TIMES)
        attention.o_proj.weight.div_(TIMES)
