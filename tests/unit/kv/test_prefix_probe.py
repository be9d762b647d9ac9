"""Looking without touching: what a lookup would restore, now or under a flushed epoch's keys."""

from pathlib import Path

import msgspec
import pytest

from monitors.labels import Modality
from runtime.kv.cache import KvCache
from runtime.kv.tokens import PromptTokens
from runtime.model import checkpoint
from tests.support.asking import ask
from tests.unit.engine.driving import Driver
from tests.unit.kv.test_kv_cache import small
from tests.unit.kv.tiny_text import TinyText, cache, opened, prompt

T, A, V = Modality.TEXT, Modality.AUDIO, Modality.VIDEO
MIXED = prompt((T, 20), (V, 37), (A, 13), (T, 20))


def served(tiny: TinyText, kv: KvCache, tokens: PromptTokens = MIXED) -> None:
    running = opened(kv, tokens)
    tiny.prefill(kv, running)
    kv.close(running)


def press(kv: KvCache, until_gone: PromptTokens) -> None:
    """Take page after page, until a prompt's first evicted block shows."""
    before = kv.probe(until_gone, salt="")
    while kv.probe(until_gone, salt="") == before:
        kv.new_page(0, 0)


@pytest.mark.parametrize(
    "other",
    [MIXED, prompt((T, 20), (V, 37), (A, 13), (T, 30)), prompt((T, 20), (V, 20)), prompt((T, 9))],
    ids=["same", "longer", "branching", "short"],
)
def test_a_probe_tells_what_opening_restores(tiny: TinyText, other: PromptTokens) -> None:
    kv = cache()
    served(tiny, kv)
    told = kv.probe(other, salt="")
    assert told == opened(kv, other).cached
    assert kv.probe(other, salt="another tenant") == 0


def test_a_probe_leaves_no_trace(tiny: TinyText) -> None:
    kv = small(60)
    for seed in range(2):
        served(tiny, kv, prompt((T, 60), seed=seed))
    before = (kv.prefix_hit_tokens, kv.prefix_lookup_tokens, kv.cells(), kv.stale(1))
    for _ in range(9):
        assert kv.probe(prompt((T, 60), seed=0), salt="") == 48
    assert (kv.prefix_hit_tokens, kv.prefix_lookup_tokens, kv.cells(), kv.stale(1)) == before
    press(kv, until_gone=prompt((T, 60), seed=0))
    assert kv.probe(prompt((T, 60), seed=1), salt="") == 48  # the older went first all the same


def test_a_flush_is_seen_under_both_epochs_keys(tiny: TinyText) -> None:
    kv = cache()
    served(tiny, kv)
    assert (kv.probe(MIXED, salt=""), kv.probe(MIXED, salt="", epoch=0)) == (86, 86)
    kv.invalidate(1)
    assert kv.probe(MIXED, salt="") == 0
    assert kv.probe(MIXED, salt="", epoch=0) == 86  # it cannot be read, but it is there
    kv.sweep()
    assert kv.probe(MIXED, salt="", epoch=0) == 0


def test_only_what_a_sequence_took_over_counts_as_use(tiny: TinyText) -> None:
    """A prompt that waits tries again at every step: that makes nothing popular."""
    kv = small(60)
    for seed in range(2):
        served(tiny, kv, prompt((T, 33), seed=seed))
    running = opened(kv, prompt((T, 100), seed=9), max_new=70)
    for _ in range(9):
        assert kv.open(prompt((T, 33), seed=0), 100, salt="", write=True) is None
    kv.close(running)
    kv.close(opened(kv, prompt((T, 33), seed=1)))
    press(kv, until_gone=prompt((T, 33), seed=0))
    assert kv.probe(prompt((T, 33), seed=1), salt="") == 32


# ---------------------------------------------------------------- in the engine
def test_an_engine_looks_a_witness_up_under_the_flushed_epochs_keys(tiny_checkpoint: Path) -> None:
    driver = Driver(checkpoint.load(tiny_checkpoint))
    driver.run(ask("r", media=2))

    def probe(name: str, epoch: int) -> tuple[int, int | None]:
        asked, arrays = ask(name, media=2, max_tokens=1, cache_write=False)
        end = driver.run((msgspec.structs.replace(asked, probe_epoch=epoch), arrays))
        return end.cached_tokens, end.stale_tokens

    here, there = probe("before", 0)
    assert here == there
    assert here > 0
    driver.engine._cache.invalidate(1)  # a flush that forgets to sweep
    assert probe("between", 0) == (0, here)
    assert driver.engine.flush(2).complete
    assert probe("after", 0) == (0, 0)
    assert driver.run(ask("r2", media=2)).stale_tokens is None


def test_an_engine_tells_what_its_caches_did(tiny_checkpoint: Path) -> None:
    driver = Driver(checkpoint.load(tiny_checkpoint), pool_bytes=1_400_000)
    driver.run(ask("one", "Is it?", media=2))
    parts = driver.engine.snapshot()
    assert (parts.encoder_hits, parts.encoder_lookups) == (0, 3)
    asked, arrays = ask("two", "Is it?", media=2)
    (turn,) = asked.turns
    moved = msgspec.structs.replace(turn, parts=(turn.parts[-1], *turn.parts[:-1]))
    driver.run((msgspec.structs.replace(asked, turns=(moved,)), arrays))
    parts = driver.engine.snapshot()
    assert (parts.encoder_hits, parts.encoder_lookups) == (3, 6)
    assert parts.prefix_evictions == 0
    for seed in range(12):
        driver.run(ask(f"r{seed}", "word " * 30 + str(seed), media=2, seed=seed))
    assert driver.engine.snapshot().prefix_evictions > 0
