"""Output, entropy in both definitions and received mass of paged attention against float64."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from monitors.labels import Modality
from runtime.kv.cache import KvCache
from runtime.kv.entropy import TokenEntropy
from runtime.kv.formats import PageShape
from runtime.kv.observation import Observation
from runtime.kv.pool import Pages
from runtime.kv.sequence import Sequence
from runtime.kv.step import PagedStep
from runtime.kv.tokens import CODE
from runtime.model import partial
from runtime.model.attention import paged_attention
from tests.unit.kv.tiny_text import SETTINGS, opened, prompt

T, A, V = Modality.TEXT, Modality.AUDIO, Modality.VIDEO
Array = NDArray[np.float64]
KV_HEADS, DIM = 2, 16
NATS = 1e-4
Attention = tuple[torch.Tensor, torch.Tensor, Observation]  # queries, output, what was seen


@dataclass(frozen=True)
class Dense:
    """One head of one query, from the definitions, in float64."""

    weights: Array  # (tokens,)
    out: Array  # (head_dim,)
    mass_nats: float
    token_nats: float


def dense(query: Array, keys: Array, values: Array, codes: NDArray[np.int8], scale: float) -> Dense:
    """`keys` and `values` `(tokens, head_dim)` up to and with the query's own token."""
    scores = keys @ query * scale
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    present = np.unique(codes)
    mass = np.array([weights[codes == code].sum() for code in present])
    others = weights[codes != codes[-1]]
    if len(present) < 2:
        return Dense(weights, weights @ values, np.nan, np.nan)
    return Dense(weights, weights @ values, nats_of(mass), nats_of(others / others.sum()))


def nats_of(shares: Array) -> float:
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum())


class Attended:
    """A cache of one layer, and paged attention called on random vectors."""

    def __init__(self, seed: int, group: int, token_entropy: TokenEntropy) -> None:
        self.kv: KvCache = KvCache(
            replace(
                SETTINGS,
                layers=1,
                shape=PageShape(KV_HEADS, DIM, torch.float32),
                token_entropy=token_entropy,
            )
        )
        # What an earlier owner of the memory left there is no number.
        self.kv.pool.arena.rows.fill_(torch.nan)
        self.heads = KV_HEADS * group
        self.scale = 0.7
        self._random = torch.Generator().manual_seed(seed)

    def step(self, work: list[tuple[Sequence, int]]) -> list[Attention]:
        """Each sequence grows by so many tokens; queries, output and what was seen of each."""
        step = self.kv.step([self.kv.grow(s, new) for s, new in work], observed=True)
        return self.run(step, sum(new for _, new in work))

    def run(self, step: PagedStep, total: int) -> list[Attention]:
        """Over `total` new tokens."""
        query = 2 * torch.randn(1, self.heads, total, DIM, generator=self._random)
        key, value = torch.randn(2, 1, KV_HEADS, total, DIM, generator=self._random)
        layer = SimpleNamespace(layer_idx=0)
        out, _ = paged_attention(layer, query, key, value, None, self.scale, step)
        sizes = [span.new for span in step.spans]
        parts = zip(query[0].split(sizes, 1), out[0].split(sizes), step.observations, strict=True)
        return list(parts)

    def check(
        self, sequence: Sequence, query: torch.Tensor, out: torch.Tensor, seen: Observation
    ) -> None:
        """Against `dense`, query by query, over what the pages hold now."""
        table = sequence.table
        keys, values = (
            half[table.block_of.astype(np.int64), table.offset_of.astype(np.int64)].double().numpy()
            for half in self.kv.pool.gather(table.matrix()[0])
        )
        assert seen.sample is not None
        token_nats, received = seen.sample.token_nats, seen.sample.received
        new, group = query.shape[1], self.heads // KV_HEADS
        for row in range(new):
            stop = table.length - new + row + 1
            exact = [
                dense(
                    query[head, row].double().numpy(),
                    keys[:stop, head // group],
                    values[:stop, head // group],
                    table.codes[:stop],
                    self.scale,
                )
                for head in range(self.heads)
            ]
            assert out[row].numpy() == pytest.approx(np.stack([e.out for e in exact]), abs=1e-5)
            for found, mine in (
                (seen.nats, [e.mass_nats for e in exact]),
                (token_nats, [e.token_nats for e in exact]),
            ):
                measured = found is seen.nats or row == new - 1 or self.every
                wanted = np.mean(mine) if measured else np.nan
                assert found[0, row] == pytest.approx(wanted, abs=NATS, nan_ok=True)
        weights = np.mean([e.weights for e in exact], axis=0)
        assert received[0] == pytest.approx(np.bincount(table.block_of, weights), abs=1e-5)

    @property
    def every(self) -> bool:
        return self.kv._token_entropy is TokenEntropy.EVERY_QUERY


def ragged(seed: int) -> list[tuple[tuple[Modality, int], ...]]:
    """Runs of random modality and length; the first is of one modality alone."""
    rng = np.random.default_rng(seed)
    kinds = list(Modality)
    prompts: list[tuple[tuple[Modality, int], ...]] = [
        ((kinds[rng.integers(4)], int(rng.integers(1, 60))),)
    ]
    for _ in range(rng.integers(1, 5)):
        runs = rng.integers(1, 7)
        prompts.append(
            tuple((kinds[rng.integers(4)], int(rng.integers(1, 45))) for _ in range(runs))
        )
    return prompts


def leave(kv: KvCache, sequence: Sequence) -> None:
    """Pages stay native."""


def quantise_some(kv: KvCache, sequence: Sequence) -> None:
    kv.pool.moves.quantise(np.unique(sequence.table.matrix())[::2])


def offload_some(kv: KvCache, sequence: Sequence) -> None:
    pages = np.unique(sequence.table.matrix())
    kv.pool.moves.quantise(pages[::3])
    kv.pool.moves.offload(pages[1::3])


@pytest.mark.parametrize("token_entropy", TokenEntropy)
@pytest.mark.parametrize("move", [leave, quantise_some, offload_some])
@pytest.mark.parametrize("seed", range(4))
def test_slices_and_ragged_decode_equal_the_dense_oracle(
    seed: int, move: Callable[[KvCache, Sequence], None], token_entropy: TokenEntropy
) -> None:
    world = Attended(seed, group=1 + seed % 3, token_entropy=token_entropy)
    running = [opened(world.kv, prompt(*runs, seed=i)) for i, runs in enumerate(ragged(seed))]
    slices = [max(1, len(s.tokens) // 2) for s in running]
    rest = [len(s.tokens) - cut for s, cut in zip(running, slices, strict=True)]
    for sizes in (slices, rest, [1] * len(running), [1] * len(running)):
        work = [(s, new) for s, new in zip(running, sizes, strict=True) if new]
        for (sequence, _), (query, out, seen) in zip(work, world.step(work), strict=True):
            world.check(sequence, query, out, seen)
            sequence.table.seal_complete()
            move(world.kv, sequence)


def test_a_long_sequence_beside_short_ones_is_cut_and_merged_exactly() -> None:
    world = Attended(7, group=2, token_entropy=TokenEntropy.LAST_QUERY)
    running = [
        opened(world.kv, prompt((T, 21), (V, 900), (A, 300), (T, 35), seed=1)),
        opened(world.kv, prompt((T, 5), seed=2)),
        opened(world.kv, prompt((A, 1), (V, 1), (T, 1), seed=3)),
    ]
    for sequence in running:
        world.step([(sequence, len(sequence.tokens))])
    work = [(sequence, 1) for sequence in running]
    for (sequence, _), (query, out, seen) in zip(work, world.step(work), strict=True):
        world.check(sequence, query, out, seen)


def test_reading_in_many_rounds_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.kv.step.ROUND_BYTES", 1)
    world = Attended(3, group=2, token_entropy=TokenEntropy.LAST_QUERY)
    running = [opened(world.kv, prompt(*runs, seed=i)) for i, runs in enumerate(ragged(3))]
    world.step([(s, len(s.tokens)) for s in running])
    work = [(sequence, 1) for sequence in running]
    for (sequence, _), (query, out, seen) in zip(work, world.step(work), strict=True):
        world.check(sequence, query, out, seen)


def test_the_plain_kernel_of_other_devices_equals_the_fused_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runtime.model.attention.attend", partial.attend_plainly)
    test_slices_and_ragged_decode_equal_the_dense_oracle(1, quantise_some, TokenEntropy.EVERY_QUERY)


def test_a_page_is_a_hit_where_the_prefetcher_had_it_in_time() -> None:
    world = Attended(5, group=1, token_entropy=TokenEntropy.LAST_QUERY)
    running = opened(world.kv, prompt((T, 20), (V, 40), (T, 20)))
    world.step([(running, 80)])
    late = running.table.matrix()[0, 2:4].copy()

    def arrivals(layer: int, pages: Pages) -> NDArray[np.bool_]:
        return ~np.isin(pages, late)

    span = world.kv.grow(running, 1)
    step = PagedStep(world.kv.pool, [span], sampled=True, arrivals=arrivals)
    seen = world.run(step, 1)[0][2].sample
    assert seen is not None
    missed = seen.lookup[0] - seen.hit[0]
    assert missed[CODE[V]] == pytest.approx(seen.received[0, 2:4].sum(), rel=0.06)
    assert missed.sum() == missed[CODE[V]] > 0
