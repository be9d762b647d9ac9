"""Attention over the page pool, plugged into the stock language model by name.

The model is called with `use_cache=False` and `paged=PagedStep(...)`, inputs packed as
`(1, tokens, hidden)` with positions `(3, 1, tokens)`. The name is deliberately not registered as
a mask function, so that the model builds no mask.
"""

import functools
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from runtime.kv.step import Batch, Look, PagedStep
from runtime.model.partial import attend, spread

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
    grouped = query[0].unflatten(0, (key.shape[1], -1))  # query heads by the K/V head they share
    if paged.batch is not None:
        return _attend_batch(paged, paged.batch, layer, grouped, scaling)[None], None
    outs, start = [], 0
    for span, look in zip(paged.spans, paged.looks, strict=True):
        part = grouped[:, :, start : start + span.new]
        outs.append(_attend_span(paged, look, layer, part, scaling))
        start += span.new
    return torch.cat(outs)[None], None


def _attend_batch(step: PagedStep, batch: Batch, layer: int, query: Tensor, scale: float) -> Tensor:
    """One new token per sequence. `query` `(kv_heads, group, spans, head_dim)`; returns
    `(spans, heads, head_dim)`."""
    asked = query.permute(2, 0, 1, 3).index_select(0, batch.asks)  # a query for each piece
    outs, lses, close = [], [], []
    for read, part in zip(batch.reads, asked.split(batch.sizes), strict=True):
        keys, values = (half.transpose(1, 2) for half in step.read(layer, read))
        out, lse = attend(part, keys, values, read.bias, scale)
        outs.append(out.flatten(1, 2))
        lses.append(lse.flatten(1, 2))
        if step.sampled:
            close.append(spread(part, keys, read.bias, lse, scale))
    lse = torch.cat(lses)
    seated = batch.seat_lse(lse)
    batch.view.note(seated)
    share = batch.unseat(seated.softmax(1))
    if step.sampled:
        for read, part, (blocks, _) in zip(
            batch.reads, share.split(batch.sizes), close, strict=True
        ):
            step.note_mass(layer, read, (part[:, :, None] * blocks.flatten(1, 2)).mean(1))
        batch.view.note_inside(batch.seat(torch.cat([nats.flatten(1, 2) for _, nats in close])))
    out = torch.cat(outs) * share[:, :, None]  # summed in float32, whatever the pool holds
    return batch.summed(out.flatten(1)).unflatten(1, out.shape[1:]).to(query.dtype)


def _attend_span(step: PagedStep, look: Look, layer: int, query: Tensor, scale: float) -> Tensor:
    """The new tokens of one sequence. `query` `(kv_heads, group, new, head_dim)`; returns
    `(new, heads, head_dim)`."""
    outs, lses, close = [], [], []
    for read in look.reads:
        keys, values = (
            half[0].transpose(0, 1)[:, None].expand(-1, query.shape[1], -1, -1)
            for half in step.read(layer, read)
        )
        out, lse = attend(query, keys, values, read.bias, scale)
        if step.sampled:
            close.append(_spread_rows(step.closer, query, keys, read.bias, lse, scale))
        outs.append(out)
        lses.append(lse if read.blind is None else lse.masked_fill(read.blind, -torch.inf))
    lse = torch.stack(lses)
    by_query = lse.flatten(1, 2).permute(2, 0, 1)
    look.view.note(by_query)
    if step.sampled:
        for read, share, (blocks, _) in zip(
            look.reads, by_query[-1].softmax(0), close, strict=True
        ):
            last = blocks[:, :, -1].flatten(0, 1)
            step.note_mass(layer, read, (share[:, None] * last).mean(0))
        inside = torch.stack([nats.flatten(0, 1) for _, nats in close])
        look.view.note_inside(inside.permute(2, 0, 1))
    merged = outs[0]
    if len(outs) > 1:
        parts = (out * w for out, w in zip(outs, lse.softmax(0)[..., None], strict=True))
        merged = functools.reduce(torch.add, parts).to(query.dtype)
    return merged.permute(2, 0, 1, 3).flatten(1, 2)


def _spread_rows(
    rows: slice, query: Tensor, keys: Tensor, bias: Tensor | None, lse: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """`spread` of some of the queries."""
    if bias is not None and bias.shape[2] > 1:
        bias = bias[:, :, rows]
    return spread(query[:, :, rows], keys, bias, lse[:, :, rows], scale)
