"""The whole cache under any order of work: whatever happens, each sequence reads what it wrote,
nobody reads another's, and every count and byte is exact."""

import hashlib
from dataclasses import dataclass, field

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from monitors.contract import KvRung
from monitors.labels import Modality
from runtime.kv.cache import KvCache
from runtime.kv.cache_settings import CacheSettings
from runtime.kv.fitting import SubspaceFit
from runtime.kv.formats import Format, PageShape
from runtime.kv.observation import Observation
from runtime.kv.pool import StaleEpoch
from runtime.kv.reuse import AtRandom, ReusePolicy, off
from runtime.kv.sequence import Sequence
from runtime.kv.slabs import EXTENT_PAGES, PoolExhausted
from runtime.kv.step import PagedStep
from runtime.kv.tiers import TierLimits
from runtime.kv.tokens import CODE, MediaSpan, PromptTokens

SHAPE = PageShape(kv_heads=1, head_dim=4, dtype=torch.float32)
LAYERS = 4
POOL_BYTES = int(10 * EXTENT_PAGES * SHAPE.native_bytes / 0.75) + 8
LOSS = {Format.NATIVE: 0.01, Format.INT8: 0.02, Format.INT4: 0.2, Format.SUBSPACE: 0.2}
REUSE = ReusePolicy("on", AtRandom(0.5), (1,))


def rotary(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    angle = positions[0].float()[:, None] * torch.tensor([0.5, 0.05]).repeat(2)
    return angle.cos(), angle.sin()


def numbers(name: str) -> torch.Tensor:
    """K and V `(layers, 2, kv_heads, head_dim)`, the same for the same name."""
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "little")
    drawn = np.random.default_rng(seed).normal(size=(LAYERS, 2, SHAPE.kv_heads, SHAPE.head_dim))
    return torch.from_numpy(drawn).float()


def bases() -> SubspaceFit:
    fit = SubspaceFit(LAYERS, SHAPE.channels, solo=(0,))
    drawn = torch.stack([numbers(f"calibration {i}") for i in range(200)], 1)
    fit.add(drawn[:, :, 0], drawn[:, :, 1])
    return fit


SUBSPACE = bases().fit(6.0, rotary)


def tokens(text: int, audio: int, seed: int, digest: str) -> PromptTokens:
    codes = np.array([CODE[Modality.TEXT]] * text + [CODE[Modality.AUDIO]] * audio, np.int8)
    ids = np.random.default_rng(seed).integers(0, 50, len(codes))
    media = (MediaSpan(text, text + audio, digest),) if audio else ()
    return PromptTokens(ids, codes, np.tile(np.arange(len(codes)), (3, 1)), media)


@dataclass(eq=False)
class Life:
    """One sequence, and the numbers that were written at each place."""

    sequence: Sequence
    salt: str
    digest: str
    names: list[str] = field(default_factory=list)

    def next_names(self, count: int) -> list[str]:
        """A token's numbers follow from all that a key must tell apart, and from its past."""
        names, asked = list(self.names), self.sequence.tokens
        for at in range(len(names), len(names) + count):
            own = f"answer {at} {id(self)}"
            if at < len(asked):
                heard = any(span.start <= at < span.stop for span in asked.media)
                own = f"{asked.ids[at]} {self.digest if heard else ''}"
            past = names[-1] if names else self.salt
            names.append(hashlib.blake2b(f"{past}|{own}".encode(), digest_size=8).hexdigest())
        return names[len(self.names) :]


class CacheLife(RuleBasedStateMachine):
    """A small pool, so that it is exhausted, evicted and pressed all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.lives: list[Life] = []
        self.pinned: list[np.ndarray] = []

    @initialize(storage=st.sampled_from(list(Format)), reuse=st.booleans(), host=st.booleans())
    def begin(self, storage: Format, reuse: bool, host: bool) -> None:
        self.storage = storage
        self.worst = LOSS[storage]
        self.kv: KvCache = KvCache(
            CacheSettings(
                pool_bytes=POOL_BYTES,
                layers=LAYERS,
                shape=SHAPE,
                weights_digest="w",
                observe_every=10**9,
                limits=TierLimits(high=0.3, low=0.15, blocks_per_step=12),
                reuse=REUSE if reuse else off("here"),
                storage=storage,
                host_bytes=None if host else 0,
                subspace=SUBSPACE,
            )
        )

    # ------------------------------------------------------------ a sequence's life
    @rule(
        text=st.sampled_from([5, 16, 40, 90]),
        audio=st.sampled_from([0, 13, 40]),
        seed=st.integers(0, 1),
        salt=st.sampled_from(["", "tenant"]),
        digest=st.sampled_from(["clip", "other"]),
        slices=st.sampled_from([(), (40,), (64, 64), (33, 64, 64)]),
    )
    def open(
        self, text: int, audio: int, seed: int, salt: str, digest: str, slices: tuple[int, ...]
    ) -> None:
        asked = tokens(text, audio, seed, digest if audio else "")
        sequence = self.kv.open(asked, 60, salt=salt, write=True)
        if sequence is None:
            return
        life = Life(sequence, salt, digest if audio else "")
        life.names = life.next_names(sequence.cached)
        self.lives.append(life)
        for count in slices:
            if life in self.lives:
                self._grow(life, count, observed=True)

    @precondition(lambda self: self.lives)
    @rule(pick=st.integers(0, 99), count=st.sampled_from([1, 7, 64]), observed=st.booleans())
    def grow(self, pick: int, count: int, observed: bool) -> None:
        self._grow(self.lives[pick % len(self.lives)], count, observed=observed)

    def _grow(self, life: Life, count: int, *, observed: bool) -> None:
        room = life.sequence.table.capacity - life.sequence.table.length
        count = min(count, room)
        if count == 0:
            return
        had = life.sequence.table.length
        try:
            span = self.kv.grow(life.sequence, count)
        except PoolExhausted:
            assert life.sequence.table.length >= had
            self._close(life)
            return
        step = self.kv.step([span], observed=False)
        self._run(life, step, count, observed=observed)

    def _run(self, life: Life, step: PagedStep, count: int, *, observed: bool) -> None:
        names = life.next_names(count)
        written = torch.stack([numbers(name) for name in names], 1)
        positions = torch.from_numpy(life.sequence.table.positions[:, len(life.names) :])
        for layer in range(LAYERS):
            cos, sin = (half.unsqueeze(-2) for half in rotary(positions))
            keys = written[layer, :, 0]
            low, high = keys.chunk(2, -1)
            turned = keys * cos + torch.cat([-high, low], -1) * sin
            step.write(layer, turned, written[layer, :, 1])
        life.names += names
        seen = Observation(np.full((LAYERS, count), 0.1 if observed else np.nan, np.float32), None)
        self.kv.absorb(life.sequence, torch.zeros(count, 3), seen)
        self.settle(1)

    @precondition(lambda self: self.lives)
    @rule(pick=st.integers(0, 99))
    def fork(self, pick: int) -> None:
        life = self.lives[pick % len(self.lives)]
        try:
            twin = self.kv.fork(life.sequence)
        except PoolExhausted:
            return
        if twin is not None:
            self.lives.append(Life(twin, life.salt, life.digest, list(life.names)))

    @precondition(lambda self: self.lives)
    @rule(pick=st.integers(0, 99))
    def cancel(self, pick: int) -> None:
        self._close(self.lives[pick % len(self.lives)])

    def _close(self, life: Life) -> None:
        self.lives.remove(life)
        self.kv.close(life.sequence)

    # ------------------------------------------------------------ what happens to pages
    @rule(kv=st.sampled_from(list(KvRung)))
    def quantise(self, kv: KvRung) -> None:
        self.kv.set_kv(kv)
        self.kv.settle()
        self.worst = max(self.worst, LOSS[Format.INT8])

    @rule(times=st.integers(1, 3))
    def settle(self, times: int) -> None:
        for _ in range(times):
            self.kv.settle()
        self.worst = max(self.worst, LOSS[Format.INT8])

    @precondition(lambda self: self.lives)
    @rule(pick=st.integers(0, 99))
    def pin(self, pick: int) -> None:
        pages = np.unique(self.lives[pick % len(self.lives)].sequence.table.matrix())
        self.kv.pool.pin(pages)
        self.pinned.append(pages)

    @precondition(lambda self: self.pinned)
    @rule()
    def unpin(self) -> None:
        self.kv.pool.unpin(self.pinned.pop())

    @rule()
    def evict(self) -> None:
        self.kv._index.evict()

    @rule()
    def flush(self) -> None:
        epoch = self.kv.pool.epoch + 1
        self.kv.invalidate(epoch)
        for life in list(self.lives):
            try:
                self.kv.step([self.kv.grow(life.sequence, 1)], observed=False)
            except (StaleEpoch, PoolExhausted, ValueError):
                pass
            else:
                raise AssertionError("a sequence of an old epoch may not write")
            self._close(life)
        while self.pinned:
            self.unpin()
        self.kv.sweep()
        assert set(vars(self.kv.stale(epoch)).values()) == {0}
        assert self.kv.pool.arena.books.used_bytes == 0
        assert self.kv.pool.host.nbytes == 0

    # ------------------------------------------------------------ what always holds
    @invariant()
    def nothing_is_broken(self) -> None:
        assert self.kv.check() == ()

    @invariant()
    def every_sequence_reads_what_was_written(self) -> None:
        for life in self.lives:
            self._reads(life)

    def _reads(self, life: Life) -> None:
        table, count = life.sequence.table, len(life.names)
        if not count:
            return
        exact = torch.stack([numbers(name) for name in life.names], 1)
        rotation = table.rotation(slice(None), rotary)
        places = (table.block_of[:count], table.offset_of[:count])
        block, slot = (torch.from_numpy(of.astype(np.int64)) for of in places)
        for layer, pages in enumerate(table.matrix()):
            keys, values = self.kv.pool.gather(pages, rotation)
            found = torch.stack(
                [rotation[block, slot].undo(keys[block, slot]), values[block, slot]], 1
            )
            source = torch.full((count,), layer)
            for index, owner in enumerate(table.blocks):
                if layer in owner.aliased:
                    source[block == index] = layer - 1
            meant = exact[source, torch.arange(count)]
            lost = (found - meant).flatten(1).norm(dim=1) / meant.flatten(1).norm(dim=1)
            assert lost.max() <= 1.0
            assert lost.median() <= self.worst + 0.02


TestCacheLife = CacheLife.TestCase
TestCacheLife.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
