"""A text model driven over the cache under test: prefill in slices, dictate, decode greedily."""

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bench import smollm, text
from bench.models import TextModel
from monitors.labels import Modality
from runtime.kv.cache import KvCache
from runtime.kv.cache_settings import CacheSettings
from runtime.kv.sequence import Sequence
from runtime.kv.slabs import EXTENT_PAGES
from runtime.kv.tokens import CODE, PREFILL_TOKENS, TEXT, PromptTokens, layout

Ids = NDArray[np.int64]
SLICE = 16  # tokens dictated a step
SLACK = 1.25  # of the pages that a text needs: what the arena keeps back, and half-open extents


def held_out(model: TextModel, count: int, length: int, *, seed: int = 0) -> list[Ids]:
    """`count` windows of `length` ids at seeded places, apart from each other where they fit;
    words for SmolLM2, noise for the tiny checkpoint, which knows no prose."""
    rng = np.random.default_rng(seed)
    if model.name == "tiny":
        return list(rng.integers(0, model.vocabulary, (count, length)))
    _, tokenizer = smollm.load()
    ids = np.array(tokenizer.encode(text.prose()).ids, np.int64)
    stride = max(1, (len(ids) - length) // count)
    starts = [
        min(n * stride + int(rng.integers(0, stride)), len(ids) - length) for n in range(count)
    ]
    return [ids[start : start + length] for start in starts]


def prompt(ids: Ids, codes: NDArray[np.int8] | None = None) -> PromptTokens:
    """All text, unless `codes` `(n,)` call stretches of it other modalities: entropy across
    modalities is undefined on text alone."""
    positions = np.tile(np.arange(len(ids)), (3, 1))
    return PromptTokens(
        ids, np.full(len(ids), TEXT, np.int8) if codes is None else codes, positions
    )


def pool_bytes(model: TextModel, *lengths: int, slack: float = SLACK) -> int:
    """Enough for native sequences of these many tokens together."""
    blocks = sum(len(layout(np.full(n, TEXT, np.int8))) for n in lengths)
    pages = slack * blocks * model.layers + 4 * EXTENT_PAGES
    return int(pages * model.shape.native_bytes)


def settings(model: TextModel, bytes_: int, **changes: Any) -> CacheSettings:
    made = CacheSettings(
        pool_bytes=int(bytes_ / 0.75),  # a quarter is set aside for encoder outputs and states
        layers=model.layers,
        shape=model.shape,
        weights_digest=model.weights_digest,
    )
    return replace(made, **changes)


class PagedText:
    """`kv` is the cache as any settings make it; nothing here decides for it."""

    def __init__(self, model: TextModel, made: CacheSettings) -> None:
        self.model = model
        self.kv: KvCache[Any] = KvCache(made)

    def open(self, tokens: PromptTokens, max_new: int, *, write: bool = False) -> Sequence:
        """Raises `PromptTooLong`, and `ValueError` where open sequences leave no room."""
        found = self.kv.open(tokens, max_new, salt="", write=write)
        if found is None:
            raise ValueError("the bench's pool has no room for this sequence: size it up")
        return found

    def feed(
        self, work: SequenceOf[tuple[Sequence, Ids]], *, observed: bool = False
    ) -> list[Tensor]:
        """One packed forward: each sequence grows by its ids; hidden states `(new, hidden)`."""
        kv, sizes = self.kv, [len(ids) for _, ids in work]
        starts = [sequence.table.length for sequence, _ in work]
        spans = [kv.grow(sequence, len(ids)) for sequence, ids in work]
        step = kv.step(spans, observed=observed)
        positions = [torch.arange(at, at + n) for at, n in zip(starts, sizes, strict=True)]
        ids = torch.from_numpy(np.concatenate([ids for _, ids in work]))
        hidden = list(self.model.paged(ids, torch.cat(positions), step).split(sizes))
        for index, ((sequence, _), part) in enumerate(zip(work, hidden, strict=True)):
            kv.absorb(
                sequence, part[:, :0], step.observations[index]
            )  # no Talker listens: states of no width
        return hidden

    def prefill(self, sequence: Sequence, *, observed: bool = False) -> Tensor:
        """What is left of the prompt, in the engine's slices; the last hidden state `(1, hidden)`.

        `observed` watches every slice; the engine would watch the last one only.
        """
        last = torch.empty(0)
        while not sequence.prefilled:
            at, end = sequence.table.length, len(sequence.tokens)
            stop = min(at + PREFILL_TOKENS, end)
            ids = sequence.tokens.ids[at:stop]
            (hidden,) = self.feed([(sequence, ids)], observed=observed or stop == end)
            last = hidden[-1:]
            self.kv.settle()
        return last

    def dictate(
        self,
        sequence: Sequence,
        last: Tensor,
        ids: Ids,
        size: int = SLICE,
        note: Callable[[Tensor], None] = lambda _: None,
    ) -> NDArray:
        """Nats of each of `ids` behind the prompt `(n,)`, `size` tokens a step, the cache settled
        between steps. `last`: what `prefill` returned; `note` is shown the logits of each step."""
        nats: list[float] = []
        for start in range(0, len(ids), size):
            part = ids[start : start + size]
            (hidden,) = self.feed([(sequence, part)])
            logits = self.model.logits(torch.cat([last, hidden[:-1]]))
            note(logits)
            seen = logits.double().log_softmax(-1)
            nats += (-seen[torch.arange(len(part)), torch.from_numpy(part)]).tolist()
            last = hidden[-1:]
            self.settle()
        return np.array(nats)

    def decode(self, sequence: Sequence, last: Tensor, count: int) -> list[int]:
        """Greedy tokens."""
        tokens: list[int] = []
        for _ in range(count):
            tokens.append(int(self.model.logits(last).argmax(-1)))
            (last,) = self.feed([(sequence, np.array(tokens[-1:], np.int64))])
            self.kv.settle()
        return tokens

    def settle(self) -> None:
        """Move pages until nothing is left to move."""
        while self.kv.settle():
            pass


def as_modalities(length: int) -> NDArray[np.int8]:
    """`(length,)` codes that call the quarters of one text text, audio, video and text again, so
    that entropy across modalities is defined at all on a model of text."""
    kinds = (Modality.TEXT, Modality.AUDIO, Modality.VIDEO, Modality.TEXT)
    quarter = np.arange(length) * len(kinds) // max(1, length)
    return np.array([CODE[kind] for kind in kinds], np.int8)[quarter]
