"""Ragged requests with the same random keys and values in pages and in padded dense caches."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from monitors.labels import Modality
from runtime.kv.cache import KvCache
from runtime.kv.cache_settings import CacheSettings
from runtime.kv.formats import PageShape
from runtime.kv.sequence import Sequence
from runtime.kv.tokens import CODE, PromptTokens, layout

# A clip of 320x240 behind a system prompt: 2 s of pictures and 2 s of sound in turns.
_TURN = ((Modality.VIDEO, 96), (Modality.AUDIO, 26))
_SYSTEM = 40
SLACK = 1.5  # of the pages that the sequences need: what they grow by, and half-open extents


@dataclass(frozen=True, eq=False)
class Filled:
    """Running sequences and, of each, the K and V that its pages hold: `(layers, tokens,
    kv_heads, head_dim)`."""

    kv: KvCache[Tensor]
    running: list[Sequence]
    keys: list[Tensor]
    values: list[Tensor]


def prompt(length: int) -> PromptTokens:
    """Text, then video and audio in turns."""
    runs = [(Modality.TEXT, _SYSTEM), *(_TURN * (1 + length // 122))]
    codes = np.concatenate([np.full(n, CODE[kind], np.int8) for kind, n in runs])[:length]
    positions = np.tile(np.arange(length), (3, 1))
    return PromptTokens(np.zeros(length, np.int64), codes, positions)


def fill(shape: PageShape, layers: int, lengths: SequenceOf[int], room: int) -> Filled:
    """Sequences of these lengths with room for `room` more tokens. The keys have the spread that
    makes attention neither flat nor a single peak."""
    rng = torch.Generator().manual_seed(0)
    prompts = [prompt(n) for n in lengths]
    pages = layers * sum(len(layout(p.codes)) + room // 16 + 2 for p in prompts)
    kv: KvCache[Tensor] = KvCache(
        CacheSettings(
            pool_bytes=int(SLACK * pages * shape.native_bytes) + 64 * shape.native_bytes,
            layers=layers,
            shape=shape,
            weights_digest="random",
        )
    )
    running, keys, values = [], [], []
    for tokens in prompts:
        sequence = kv.open(tokens, room, salt="", write=False)
        assert sequence is not None
        size = (layers, len(tokens), shape.kv_heads, shape.head_dim)
        k, v = (torch.randn(size, generator=rng).to(shape.dtype) for _ in range(2))
        step = kv.step([kv.grow(sequence, len(tokens))], observed=False)
        for layer in range(layers):
            step.write(layer, k[layer], v[layer])
        sequence.table.seal_complete()
        running.append(sequence)
        keys.append(k)
        values.append(v)
    return Filled(kv, running, keys, values)


def left_padded(halves: SequenceOf[Tensor]) -> Tensor:
    """`(layers, batch, kv_heads, longest, head_dim)`, each sequence at the right end."""
    longest = max(half.shape[1] for half in halves)
    padded = [torch.nn.functional.pad(h, (0, 0, 0, 0, longest - h.shape[1], 0)) for h in halves]
    return torch.stack(padded, 1).transpose(2, 3).contiguous()


def real(lengths: NDArray[np.int64]) -> Tensor:
    """`(batch, longest)`: 1 for tokens, 0 for the padding at the left."""
    longest = int(lengths.max())
    return torch.from_numpy((np.arange(longest) >= longest - lengths[:, None]).astype(np.int64))
