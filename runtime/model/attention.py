"""Attention over the page pool, plugged into the stock language model by name.

The model is called with `use_cache=False` and `paged=PagedStep(...)`, inputs packed as
`(1, tokens, hidden)` with positions `(3, 1, tokens)`. The name is deliberately not registered as
a mask function, so that the model builds no mask.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface

from runtime.kv.entropy import cross_modal_entropy
from runtime.kv.step import Observation, PagedStep

NAME = "redline_paged"


def register() -> None:
    """Make `NAME` known to transformers; a language model whose `_attn_implementation` it is
    reads and writes its K/V in the pool of the step it is called with."""
    AttentionInterface.register(NAME, paged_attention)


def paged_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    paged: PagedStep,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention of packed new tokens over their sequences' pages.

    `query` `(1, heads, tokens, head_dim)`; `key` and `value` the same with kv_heads. Returns
    `(1, tokens, heads, head_dim)`.
    """
    layer = module.layer_idx
    paged.write(layer, key[0].transpose(0, 1), value[0].transpose(0, 1))
    attend = _attend_batch if paged.decode else _attend_spans
    return attend(paged, layer, query[0], scaling)[None], None


def _attend_batch(step: PagedStep, layer: int, query: Tensor, scaling: float) -> Tensor:
    """One new token per sequence: one call for all. `query` `(heads, spans, head_dim)`."""
    keys, values = step.read_batch(layer)
    heads, spans, dim = query.shape
    grouped = query.transpose(0, 1).reshape(spans, keys.shape[2], -1, dim)
    mask = step.lengths_mask()
    out = functional.scaled_dot_product_attention(
        grouped,
        keys.transpose(1, 2),
        values.transpose(1, 2),
        attn_mask=None if mask is None else mask[:, None, None],
        scale=scaling,
    )
    for index, observation in enumerate(step.observations):
        length = step.spans[index].table.length
        _observe(observation, layer, query[:, index : index + 1], keys[index, :length], scaling)
    return out.reshape(spans, heads, dim)


def _attend_spans(step: PagedStep, layer: int, query: Tensor, scaling: float) -> Tensor:
    """Sequence by sequence, for prefill. `query` `(heads, tokens, head_dim)`."""
    outs, start = [], 0
    for index, span in enumerate(step.spans):
        keys, values = step.read(layer, index)
        part = query[:, start : start + span.new]
        outs.append(_causal(part, keys, values, scaling))
        if step.observations:
            _observe(step.observations[index], layer, part, keys, scaling)
        start += span.new
    return torch.cat(outs, 1).transpose(0, 1)


def _causal(query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
    """The last `new` of `tokens` queries, `(heads, new, head_dim)` in and out."""
    groups = query.shape[0] // keys.shape[1]
    k, v = (half.transpose(0, 1).repeat_interleave(groups, 0) for half in (keys, values))
    return functional.scaled_dot_product_attention(
        query[None], k[None], v[None], attn_mask=_mask(query, keys), scale=scaling
    )[0]


def _mask(query: Tensor, keys: Tensor) -> Tensor:
    """`(new, tokens)`: a query sees the tokens before it and itself."""
    new, tokens = query.shape[1], keys.shape[0]
    return torch.ones(new, tokens, dtype=torch.bool, device=query.device).tril(tokens - new)


def _observe(
    observation: Observation, layer: int, query: Tensor, keys: Tensor, scaling: float
) -> None:
    """Entropy and mass of `(heads, new, head_dim)` queries over `(tokens, kv_heads, head_dim)`."""
    groups = query.shape[0] // keys.shape[1]
    k = keys.transpose(0, 1).repeat_interleave(groups, 0).float()
    scores = (query.float() @ k.transpose(1, 2)) * scaling
    weights = scores.masked_fill(~_mask(query, keys), -torch.inf).softmax(-1)
    nats = cross_modal_entropy(weights @ observation.onehot, observation.in_view)
    observation.note(layer, nats, weights[:, -1].mean(0))
