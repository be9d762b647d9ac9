"""K/V sharing while training: some layers read blocks, drawn at random, of the layer below.

What a page-table alias does later (DESIGN 5) is done here to a dense forward: a query that stands
at least 64 tokens behind a chosen block finds the K and V of the layer below there; nearer ones
find the layer's own. The geometry is the cache's own: whole blocks, never the first, never the
newest 64 tokens, layers in pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface

from runtime.kv.reuse import NEWEST_TOKENS, SINK_BLOCKS
from runtime.kv.tokens import layout

NAME = "redline_sharing"


@dataclass
class Sharing:
    """Passed to the language model as the forward argument `sharing`.

    `chosen` (B, T): tokens of shared blocks; `stops` (B, T): where each token's block ends.
    """

    layers: tuple[int, ...]
    chosen: Tensor
    stops: Tensor
    below: tuple[Tensor, Tensor] | None = None


def draw_sharing(
    codes: Sequence[Any], longest: int, layers: tuple[int, ...], share: float, rng: Any
) -> Sharing:
    """Blocks of each row chosen with probability `share`; `codes`: (T,) modality codes a row."""
    chosen = np.zeros((len(codes), longest), bool)
    stops = np.full((len(codes), longest), longest + NEWEST_TOKENS)
    for row, of in enumerate(codes):
        for index, (start, stop) in enumerate(layout(of)):
            stops[row, start:stop] = stop
            chosen[row, start:stop] = index >= SINK_BLOCKS and rng.random() < share
    return Sharing(layers, torch.from_numpy(chosen), torch.from_numpy(stops))


def register() -> None:
    """Make the attention known to transformers by `NAME`."""
    AttentionInterface.register(NAME, _attend)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    sharing: Sharing | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """`query` (B, heads, T, head_dim), `key` and `value` with kv_heads -> (B, T, heads, dim)."""
    below = None
    if sharing is not None:
        below, sharing.below = sharing.below, (key, value)
    if sharing is None or module.layer_idx not in sharing.layers:
        out = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling, enable_gqa=True
        )
        return out.transpose(1, 2), None
    assert below is not None
    at = torch.arange(query.shape[2])
    causal = at[:, None] >= at[None]
    shared = sharing.chosen[:, None] & (sharing.stops[:, None] <= at[:, None] - NEWEST_TOKENS)
    mask = torch.cat([causal & ~shared, causal & shared], dim=2)[:, None]
    out = functional.scaled_dot_product_attention(
        query,
        torch.cat([key, below[0]], dim=2),
        torch.cat([value, below[1]], dim=2),
        attn_mask=mask,
        scale=scaling,
        enable_gqa=True,
    )
    return out.transpose(1, 2), None
