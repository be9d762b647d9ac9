"""The two models of the cache's bench, as the cache sees them: text in, hidden states out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from bench import smollm
from bench.board import Figure, unmeasured
from runtime.kv.formats import PageShape
from runtime.kv.rotation import Rotary
from runtime.kv.step import PagedStep
from runtime.model import attention, checkpoint
from runtime.model.checkpoint import Checkpoint
from runtime.model.shipped import SHIPPED
from runtime.model.thinker import Thinker

DENSE = "sdpa"


@dataclass(frozen=True, eq=False)
class TextModel:
    """`paged(ids, positions, step)`: hidden states `(T, hidden)` of `(T,)` packed tokens.
    `dense(ids)`: those of one text `(n,)` with no cache at all. `logits` takes either."""

    name: str
    layers: int
    shape: PageShape
    weights_digest: str
    longest: int  # tokens it was made for
    vocabulary: int
    paged: Callable[[Tensor, Tensor, PagedStep], Tensor]
    dense: Callable[[Tensor], Tensor]
    logits: Callable[[Tensor], Tensor]
    rotary: Rotary


@cache
def shipped() -> Checkpoint:
    """The first version of the tiny checkpoint."""
    return checkpoint.load(next(iter(SHIPPED.values())))


@cache
def tiny() -> TextModel:
    """The shipped checkpoint's Thinker, given text alone."""
    attention.register()
    loaded = shipped()
    config = loaded.config.thinker_config.text_config

    thinker = Thinker(loaded)
    language = loaded.model.thinker.model.language_model.config

    def paged(ids: Tensor, positions: Tensor, step: PagedStep) -> Tensor:
        language._attn_implementation = attention.NAME
        emb = thinker.embed_tokens(ids.numpy())
        where = positions.expand(3, 1, -1)
        return thinker.forward(emb.emb, where, emb.visual, (), paged=step).last_hidden

    def dense(ids: Tensor) -> Tensor:
        language._attn_implementation = DENSE
        emb = thinker.embed_tokens(ids.numpy())
        where = torch.arange(len(ids)).expand(3, 1, -1)
        return thinker.forward(emb.emb, where, emb.visual, ()).last_hidden

    return TextModel(
        name="tiny",
        layers=config.num_hidden_layers,
        shape=PageShape(config.num_key_value_heads, config.head_dim, loaded.model.dtype),
        weights_digest=loaded.weights_digest,
        longest=config.max_position_embeddings,
        vocabulary=len(loaded.tokenizer),
        paged=paged,
        dense=dense,
        logits=thinker.logits,
        rotary=thinker.rotary,
    )


@cache
def smol() -> TextModel:
    """SmolLM2-135M. Raises `WeightsMissing`."""
    attention.register()
    model, _ = smollm.load()
    config: Any = model.config

    @torch.inference_mode()
    def paged(ids: Tensor, positions: Tensor, step: PagedStep) -> Tensor:
        config._attn_implementation = attention.NAME
        out = model.model(
            input_ids=ids[None], position_ids=positions[None], use_cache=False, paged=step
        )
        return out.last_hidden_state[0]

    @torch.inference_mode()
    def dense(ids: Tensor) -> Tensor:
        config._attn_implementation = DENSE
        return model.model(input_ids=ids[None], use_cache=False).last_hidden_state[0]

    @torch.inference_mode()
    def rotary(positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = model.model.rotary_emb(torch.zeros(1), positions[:1])
        return cos[0], sin[0]

    @torch.inference_mode()
    def logits(hidden: Tensor) -> Tensor:
        return model.lm_head(hidden)

    return TextModel(
        name="SmolLM2-135M",
        layers=config.num_hidden_layers,
        shape=PageShape(config.num_key_value_heads, config.head_dim, model.dtype),
        weights_digest=smollm.SHA256,
        longest=config.max_position_embeddings,
        vocabulary=config.vocab_size,
        paged=paged,
        dense=dense,
        logits=logits,
        rotary=rotary,
    )


def on_both(what: str, of: Callable[[TextModel], Iterable[Figure]]) -> list[Figure]:
    """The figures of both models; without the pretrained weights, a row that says so."""
    rows = list(of(tiny()))
    try:
        rows += of(smol())
    except smollm.WeightsMissing as err:
        rows.append(unmeasured(f"{what}, SmolLM2-135M", str(err)))
    return rows
