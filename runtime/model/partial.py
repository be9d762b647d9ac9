"""Attention over part of the keys: its output and log-sum-exp, so that parts can be merged."""

import torch
from torch import Tensor

from runtime.kv.formats import PAGE_TOKENS


def attend(
    query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scaling: float
) -> tuple[Tensor, Tensor]:
    """Output `(a, b, n, head_dim)` and natural log-sum-exp `(a, b, n)` in float32.

    `query` `(a, b, n, head_dim)`, `keys` and `values` `(a, b, slots, head_dim)`, `bias` as
    broadcast to `(a, b, n, slots)`. Where a query sees nothing the output is finite and the
    log-sum-exp is undefined.
    """
    if query.device.type != "cpu":
        return attend_plainly(query, keys, values, bias, scaling)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(
        query, keys, values, 0.0, False, attn_mask=bias, scale=scaling
    )


def attend_plainly(
    query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scaling: float
) -> tuple[Tensor, Tensor]:
    """`attend` for devices without that kernel; it holds all the weights at once."""
    scores = _scores(query, keys, bias, scaling)
    lse = scores.logsumexp(-1)
    lse = lse.masked_fill(lse.isinf(), 0.0)
    weights = (scores - lse[..., None]).exp()
    return (weights.to(values.dtype) @ values), lse


def spread(
    query: Tensor, keys: Tensor, bias: Tensor | None, lse: Tensor, scaling: float
) -> tuple[Tensor, Tensor]:
    """How attention is spread within what `attend` saw: by block, `(a, b, n, blocks)`, summing to
    1, and its entropy in nats, `(a, b, n)`. No second softmax: `lse` is `attend`'s."""
    weights = (_scores(query, keys, bias, scaling) - lse[..., None]).exp()
    blocks = weights.unflatten(-1, (-1, PAGE_TOKENS)).sum(-1)
    return blocks, torch.special.entr(weights).sum(-1)


def _scores(query: Tensor, keys: Tensor, bias: Tensor | None, scaling: float) -> Tensor:
    scores = (query @ keys.transpose(-1, -2)).float() * scaling
    return scores if bias is None else scores + bias
