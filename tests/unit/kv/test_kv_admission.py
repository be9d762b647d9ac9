"""At the edge of what a pool can hold: a lone sequence is refused or served, never left waiting
and never taken in to die."""

import numpy as np
import pytest
import torch

from monitors.labels import Modality
from runtime.kv.admission import PromptTooLong
from runtime.kv.cache import KvCache
from runtime.kv.cache_settings import CacheSettings
from runtime.kv.formats import Format
from runtime.kv.observation import Observation
from runtime.kv.slabs import EXTENT_PAGES
from runtime.kv.tokens import CODE, PREFILL_TOKENS, PromptTokens
from tests.unit.kv.test_cache_life import LAYERS, SHAPE, SUBSPACE

ANSWER = 20


def pool(storage: Format, host: float, extents: int = 12) -> KvCache:
    pages = extents * EXTENT_PAGES * SHAPE.native_bytes
    return KvCache(
        CacheSettings(
            pool_bytes=int(pages / 0.75) + 8,
            layers=LAYERS,
            shape=SHAPE,
            weights_digest="w",
            observe_every=10**9,
            storage=storage,
            host_bytes=int(host * pages),
            subspace=SUBSPACE,
        )
    )


def prompt(length: int, run: int) -> PromptTokens:
    """Text and sound in turns of `run` tokens, which leave blocks part-filled."""
    codes = np.array([CODE[Modality.TEXT], CODE[Modality.AUDIO]], np.int8)
    codes = codes[np.arange(length) // run % 2]
    ids = np.arange(length)
    return PromptTokens(ids, codes, np.tile(ids, (3, 1)))


def served(kv: KvCache, length: int, run: int) -> bool:
    """False where it is refused; anything but an answer fails the test."""
    try:
        sequence = kv.open(prompt(length, run), ANSWER, salt="", write=False)
    except PromptTooLong:
        return False
    assert sequence is not None, "neither refused nor admitted, though it is alone"
    while sequence.table.length < length + ANSWER:
        left = max(length - sequence.table.length, 1)
        count = min(PREFILL_TOKENS, left)
        kv.step([kv.grow(sequence, count)], observed=False)
        seen = Observation(np.full((LAYERS, count), np.nan, np.float32), None)
        kv.absorb(sequence, torch.zeros(count, 3), seen)
        kv.settle()
    assert kv.check() == ()
    kv.close(sequence)
    return True


@pytest.mark.parametrize("storage", list(Format))
@pytest.mark.parametrize("host", [0.0, 1.0])
@pytest.mark.parametrize("run", [2, 5, 16, 1000])
def test_a_lone_prompt_at_the_edge_is_refused_or_answered(
    storage: Format, host: float, run: int
) -> None:
    low, high = 1, 20_000
    assert served(pool(storage, host), low, run)
    assert not served(pool(storage, host), high, run)
    while high - low > 8:
        middle = (low + high) // 2
        if served(pool(storage, host), middle, run):
            low = middle
        else:
            high = middle
    for length in range(low, high + 1, 3):
        served(pool(storage, host), length, run)
