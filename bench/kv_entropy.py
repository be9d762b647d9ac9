"""What entropy and residency add to a decode step: at production shapes, and on the tiny model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeTextConfig
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
    Qwen3OmniMoeThinkerTextModel,
)

from bench import entropy_ways
from bench.board import Figure
from bench.entropy_ways import WAYS, BlindStep
from bench.ragged import Filled, fill
from bench.timing import Seconds, interleave, ratio
from runtime.kv.cache_settings import OBSERVE_EVERY
from runtime.kv.formats import PageShape
from runtime.kv.step import PagedStep, Span
from runtime.model import attention, checkpoint
from runtime.model.shipped import SHIPPED

MOST = 3.0  # per cent of a decode step
CONTEXT, TINY_CONTEXT = 8192, 1024
BATCHES = (1, 8)
WORDS = {
    "columns": "one-hot columns behind V",
    "explicit": "softmax written out",
    "again": "a pass of its own",
}


def production_layer() -> Any:
    """One layer of Qwen3-30B-A3B with its experts, random weights, in bfloat16: 1.2 GB."""
    config = Qwen3OmniMoeTextConfig(
        vocab_size=64,
        hidden_size=2048,
        num_hidden_layers=1,
        num_attention_heads=32,
        num_key_value_heads=4,
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        rope_parameters={
            "rope_theta": 1e6,
            "rope_type": "default",
            "mrope_section": [24, 20, 20],
            "interleaved": True,
            "mrope_interleaved": True,
        },
        pad_token_id=0,
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = Qwen3OmniMoeThinkerTextModel(config)
    finally:
        torch.set_default_dtype(torch.float32)
    return model.eval().requires_grad_(False)


def tiny_thinker() -> Any:
    """The language model of the tiny checkpoint's Thinker: all its layers."""
    loaded = checkpoint.load(next(iter(SHIPPED.values())))
    return loaded.model.thinker.model.language_model


@dataclass(frozen=True, eq=False)
class Decode:
    """The same decode step again and again: its token is written over itself."""

    model: Any
    filled: Filled

    def run(self, name: str, make: Callable[..., PagedStep]) -> PagedStep:
        """A step with the attention of this name."""
        spans = [Span(sequence.table, 1) for sequence in self.filled.running]
        step = make(self.filled.kv.pool, spans, scratch=self.filled.kv._scratch)
        at = torch.tensor([[span.table.length - 1 for span in spans]]).expand(3, 1, -1)
        self.model.config._attn_implementation = name
        self.model(inputs_embeds=self._inputs(), position_ids=at, use_cache=False, paged=step)
        return step

    def unsampled(self) -> None:
        """As the product does 63 times of 64."""
        step = self.run(attention.NAME, lambda *a, **o: PagedStep(*a, sampled=False, **o))
        assert step.observations

    def sampled(self) -> None:
        """As it does the other time."""
        step = self.run(attention.NAME, lambda *a, **o: PagedStep(*a, sampled=True, **o))
        assert step.observations

    def way(self, name: str) -> Callable[[], PagedStep]:
        """One of those that the product does not take."""
        return lambda: self.run(f"bench_{name}", lambda *a, **o: BlindStep(*a, sampled=False, **o))

    def _inputs(self) -> Tensor:
        """Other tokens choose other experts: as many as a batch would."""
        rng = torch.Generator().manual_seed(1)
        size = (1, len(self.filled.running), self.model.config.hidden_size)
        return torch.randn(size, generator=rng).to(self.model.dtype)


@torch.inference_mode()
def measure(
    what: str, model: Any, context: int, batch: int, rounds: int, target: float | None
) -> list[Figure]:
    """Per cent that each way adds to a step without entropy, all in the same rounds."""
    config = model.config
    shape = PageShape(config.num_key_value_heads, config.head_dim, model.dtype)
    decode = Decode(model, fill(shape, config.num_hidden_layers, [context] * batch, 16))
    taken = interleave(
        {
            "unsampled": decode.unsampled,
            "sampled": decode.sampled,
            **{name: decode.way(name) for name in WAYS},
        },
        rounds,
    )
    product = ((OBSERVE_EVERY - 1) * taken["unsampled"] + taken["sampled"]) / OBSERVE_EVERY
    base = taken["none"]
    others = [f"{words}: {_words(taken[name], base)}" for name, words in WORDS.items()]
    value, interval = _added(product, base)
    return [
        Figure(
            f"{what}, batch {batch}, {context} tokens: entropy, residency 1 step in"
            f" {OBSERVE_EVERY} {interval}",
            value,
            "% of a step",
            target,
            "; ".join([f"sampled step: {_words(taken['sampled'], base)}", *others]),
        )
    ]


def _added(taken: Seconds, base: Seconds) -> tuple[float, str]:
    found = ratio(taken, base)
    value, low, high = (100 * (x - 1) for x in (found.value, found.low, found.high))
    return value, f"[{low:.1f}, {high:.1f}]"


def _words(taken: Seconds, base: Seconds) -> str:
    value, interval = _added(taken, base)
    return f"{value:.1f} % {interval}"


def figures(*, quick: bool) -> list[Figure]:
    attention.register()
    entropy_ways.register()
    rounds = 10 if quick else 60
    rows: list[Figure] = []
    for what, make, context, target in (
        ("a layer of Qwen3-30B-A3B", production_layer, CONTEXT, MOST),
        ("the tiny Thinker", tiny_thinker, TINY_CONTEXT, None),
    ):
        model = make()
        for batch in BATCHES:
            rows += measure(what, model, context, batch, rounds, target)
    return rows
