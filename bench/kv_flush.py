"""How soon a flush shows, and how long the sweep takes, at pools of very different sizes."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from bench.board import Figure
from bench.paged_text import prompt
from runtime.kv.cache import KvCache
from runtime.kv.cache_settings import CacheSettings
from runtime.kv.formats import PAGE_TOKENS, PageShape
from runtime.kv.index import KeyScope, block_keys
from runtime.kv.tokens import PromptTokens

SIZES = (1_000, 10_000, 100_000, 1_000_000)  # pages
FILLED = 0.5
LAYERS = 48  # of Qwen3-Omni's Thinker
SHAPE = PageShape(kv_heads=1, head_dim=2, dtype=torch.float32)  # bytes do not matter here
BLOCKS = {1_000: 4, 10_000: 16}  # of a text; longer ones fill large pools
LONGER = 128
REPEATS, QUICK_REPEATS = 5, 3
VISIBLE_MS = 1.0


@dataclass(frozen=True)
class Flushed:
    """Milliseconds from the order: to its return, to the first lookup that misses, to a new
    request's admission, to empty."""

    ordered: float
    missed: float
    admitted: float
    swept: float


def figures(*, quick: bool) -> list[Figure]:
    sizes = SIZES[:-1] if quick else SIZES
    return [f for pages in sizes for f in _of(pages, QUICK_REPEATS if quick else REPEATS)]


def _of(pages: int, repeats: int) -> Iterator[Figure]:
    cache = _half_full(pages)
    taken = [_flush(cache, pages) for _ in range(repeats)]
    worst = Flushed(*(max(getattr(t, name) for t in taken) for name in Flushed.__annotations__))
    pool = f"{pages:,} pages, half full"
    yield Figure(
        f"flush visible: {pool}", worst.missed, "ms", VISIBLE_MS,
        f"to the first lookup that misses, worst of {repeats}; the order alone:"
        f" {worst.ordered:.4f} ms; vLLM's reset, idle: 2-5 ms",
    )  # fmt: skip
    told = "worst; opening a sequence adds up the whole pool's account, flush or no flush"
    yield Figure(f"flush to the next request admitted: {pool}", worst.admitted, "ms", None, told)
    yield Figure(f"flush swept: {pool}", worst.swept, "ms", None, f"worst of {repeats}")


def _half_full(pages: int) -> KvCache[torch.Tensor]:
    bytes_ = int(pages * SHAPE.native_bytes / 0.75) + 1
    cache = KvCache[torch.Tensor](CacheSettings(bytes_, LAYERS, SHAPE, weights_digest="flush"))
    _fill(cache, pages)
    return cache


def _text(number: int, pages: int) -> PromptTokens:
    rng = np.random.default_rng(number)
    return prompt(rng.integers(0, 1000, PAGE_TOKENS * BLOCKS.get(pages, LONGER)))


def _fill(cache: KvCache[torch.Tensor], pages: int) -> None:
    """Finished texts that the index holds, until half of the pool is taken."""
    number = 0
    while _taken(cache) < FILLED * pages:
        tokens = _text(number, pages)
        sequence = cache.open(tokens, 1, salt="", write=True)
        assert sequence is not None
        cache.grow(sequence, len(tokens))
        cache.absorb(sequence, torch.empty(len(tokens), 0), None)
        cache.close(sequence)
        number += 1


def _taken(cache: KvCache[torch.Tensor]) -> int:
    return int((cache.pool.records.form > 0).sum())


def _flush(cache: KvCache[torch.Tensor], pages: int) -> Flushed:
    """One flush of a warm cache, which is filled again behind it."""
    known = _text(0, pages)
    assert _found(cache, known) > 0
    began = time.perf_counter()
    cache.invalidate(cache.pool.epoch + 1)
    ordered = time.perf_counter()
    found = _found(cache, known)
    missed = time.perf_counter()
    _admit(cache, known)
    admitted = time.perf_counter()
    cache.sweep()
    swept = time.perf_counter()
    assert found == 0
    assert cache.stale(cache.pool.epoch).pages == 0
    _fill(cache, pages)
    return Flushed(*(1e3 * (at - began) for at in (ordered, missed, admitted, swept)))


def _found(cache: KvCache[torch.Tensor], tokens: PromptTokens) -> int:
    """Blocks of a prompt that a request would find now."""
    scope = KeyScope("flush", cache.reuse.digest, cache.pool.epoch)
    return len(cache._index.match(block_keys(tokens, scope.root(""))))


def _admit(cache: KvCache[torch.Tensor], tokens: PromptTokens) -> None:
    sequence = cache.open(tokens, 1, salt="", write=False)
    assert sequence is not None
    assert sequence.cached == 0
    cache.close(sequence)
