"""Decode steps of ragged requests: through pages, and through Hugging Face's padded batch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaModel

from bench.board import Figure
from bench.ragged import Filled, fill, left_padded, real
from bench.timing import interleave, ratio
from runtime.kv.formats import PageShape
from runtime.kv.step import Span
from runtime.model import attention, checkpoint
from runtime.model.shipped import SHIPPED

BATCH = 8
SHORTEST, LONGEST = 128, 2048
CLOSE = 1e-3


@dataclass(frozen=True, eq=False)
class Text:
    """A language model, and how many rows its position ids have."""

    name: str
    model: Any
    axes: int

    @property
    def shape(self) -> PageShape:
        config = self.model.config
        return PageShape(config.num_key_value_heads, config.head_dim, self.model.dtype)

    def positions(self, at: Tensor) -> Tensor:
        return at if self.axes == 1 else at.expand(self.axes, *at.shape)


def shipped_thinker() -> Text:
    """The language model of the tiny checkpoint's Thinker."""
    loaded = checkpoint.load(next(iter(SHIPPED.values())))
    return Text("tiny", loaded.model.thinker.model.language_model, axes=3)


def smol_shaped() -> Text:
    """SmolLM2-135M's shape with random weights: the speed of a step is the same."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=64,
        max_position_embeddings=8192,
        pad_token_id=0,
    )
    return Text("SmolLM2-135M", LlamaModel(config).eval().requires_grad_(False), axes=1)


class Pages:
    """Decodes as the engine does: grow, step, forward, take in."""

    def __init__(self, text: Text, filled: Filled) -> None:
        self._text, self._filled = text, filled

    def step(self, ids: Tensor) -> Tensor:
        """`(batch,)` tokens to `(batch, hidden)`."""
        kv, running = self._filled.kv, self._filled.running
        at = torch.tensor([sequence.table.length for sequence in running])
        spans: list[Span] = [kv.grow(sequence, 1) for sequence in running]
        step = kv.step(spans, observed=False)
        self._text.model.config._attn_implementation = attention.NAME
        out = self._text.model(
            input_ids=ids[None],
            position_ids=self._text.positions(at[None]),
            use_cache=False,
            paged=step,
        )
        hidden = out.last_hidden_state[0]
        for index, sequence in enumerate(running):
            kv.absorb(sequence, hidden[index, None], step.observations[index])
        return hidden


class Padded:
    """Hugging Face's own: one batch, padded at the left, over a `DynamicCache`."""

    def __init__(self, text: Text, filled: Filled) -> None:
        self._text = text
        self._cache = DynamicCache(config=text.model.config)
        keys, values = left_padded(filled.keys), left_padded(filled.values)
        for layer in range(len(keys)):
            self._cache.update(keys[layer], values[layer], layer)
        self._lengths = np.array([half.shape[1] for half in filled.keys])

    def step(self, ids: Tensor) -> Tensor:
        """`(batch,)` tokens to `(batch, hidden)`."""
        at = torch.from_numpy(self._lengths)
        self._lengths = self._lengths + 1
        self._text.model.config._attn_implementation = "sdpa"
        out = self._text.model(
            input_ids=ids[:, None],
            attention_mask=real(self._lengths),
            position_ids=self._text.positions(at[:, None]),
            cache=self._cache,
            use_cache=True,
        )
        return out.last_hidden_state[:, 0]


@torch.inference_mode()
def compare(make: Callable[[], Text], rounds: int) -> Figure:
    """Seconds of a step through pages over those of the padded batch.

    Raises `ArithmeticError` where the two do not say the same.
    """
    text = make()
    lengths = np.linspace(SHORTEST, LONGEST, BATCH).astype(int).tolist()
    filled = fill(text.shape, text.model.config.num_hidden_layers, lengths, rounds + 8)
    ids = torch.arange(BATCH) + 5
    pages, padded = Pages(text, filled), Padded(text, filled)
    apart = float((pages.step(ids) - padded.step(ids)).abs().max())
    if not apart < CLOSE:
        raise ArithmeticError(f"{text.name}: pages and the padded batch are {apart:.1e} apart")
    ways = {"pages": lambda: pages.step(ids), "padded": lambda: padded.step(ids)}
    taken = interleave(ways, rounds)
    found = ratio(taken["pages"], taken["padded"])
    middle = {name: 1e3 * float(np.median(seconds)) for name, seconds in taken.items()}
    return Figure(
        f"{text.name}: paged decode over padded DynamicCache, batch {BATCH} of"
        f" {SHORTEST}..{LONGEST} tokens [{found.low:.2f}, {found.high:.2f}]",
        found.value,
        "x the time",
        1.0,
        f"goal 0.67; {middle['pages']:.1f} ms against {middle['padded']:.1f} ms",
    )


def figures(*, quick: bool) -> list[Figure]:
    attention.register()
    rounds = 8 if quick else 40
    return [compare(make, rounds) for make in (shipped_thinker, smol_shaped)]
