"""The cache of one resident: pool, index, encoder outputs, entropy, reuse and tiers together.

The engine opens a sequence, grows it, runs a step over it and lets `absorb` take in what the
step saw; between steps `settle` moves pages. All of it belongs to one thread.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Generic

import numpy as np
import torch
from torch import Tensor

from monitors.cache_table import CacheCell
from monitors.contract import KvRung
from runtime.kv.account import fill_rate, held_before
from runtime.kv.admission import Admission
from runtime.kv.aliasing import decide
from runtime.kv.audit import check
from runtime.kv.cache_settings import CacheSettings
from runtime.kv.cells import cells
from runtime.kv.encoders import EncoderCache, T
from runtime.kv.entropy import EntropyBuffer
from runtime.kv.eviction import block_cost
from runtime.kv.formats import PAGE_TOKENS, Format
from runtime.kv.index import Entry, Key, KeyMemo, KeyScope, PrefixIndex, block_keys
from runtime.kv.observation import Observation, Sample
from runtime.kv.packing import Packer, waiting
from runtime.kv.pool import PagePool
from runtime.kv.prefetch import side_stream
from runtime.kv.records import Pages
from runtime.kv.residency import ResidencyTable
from runtime.kv.reuse import off
from runtime.kv.scratch import Scratch
from runtime.kv.sequence import Sequence
from runtime.kv.slabs import PoolExhausted
from runtime.kv.step import PagedStep, Span
from runtime.kv.table import PageTable
from runtime.kv.tiers import Tiers
from runtime.kv.tokens import TEXT, PromptTokens, layout, restorable_blocks

SIDE_SHARE = 0.125  # of the pool's bytes, each: encoder outputs, and Talker states


@dataclass(frozen=True)
class Stale:
    """What is still held of older epochs; `bytes` counts all four."""

    pages: int
    host_pages: int
    encoder_outputs: int
    talker_states: int
    bytes: int


class KvCache(Generic[T]):
    """`T` is what the encoders put out for one media slice."""

    def __init__(self, settings: CacheSettings) -> None:
        side = int(settings.pool_bytes * SIDE_SHARE)
        self.pool = PagePool(
            settings.shape,
            settings.layers,
            settings.pool_bytes - 2 * side,
            settings.epoch,
            settings.device,
            host_bytes=settings.host_bytes,
            subspace=settings.subspace,
        )
        self.reuse = settings.reuse
        self.encoders: EncoderCache[T] = EncoderCache(side)
        self.residency = ResidencyTable(settings.layers)
        self.entropy = EntropyBuffer(settings.layers)
        self.tiers = Tiers(self.pool, self.entropy, settings.limits)
        self.prefix_hit_tokens = 0
        self.prefix_lookup_tokens = 0
        self._storage = settings.storage
        self._packer = Packer(self.pool, settings.storage, waiting(settings.reuse))
        self._admission = Admission(
            self.pool,
            self.pool.contents.page_bytes(settings.storage),
            self.pool.contents.page_bytes(max(settings.storage, Format.INT8)),
        )
        self._index = PrefixIndex(self.pool, side)
        self._keys = KeyMemo()
        self._weights_digest = settings.weights_digest
        self._observe_every = settings.observe_every
        self._token_entropy = settings.token_entropy
        self._scratch = Scratch(settings.shape.dtype, settings.device)
        self._transport = settings.transport or side_stream(settings.device)
        self._steps = 0
        self._sequences: list[Sequence] = []

    # ------------------------------------------------------------ a sequence's life
    @property
    def usual_forms(self) -> set[int]:
        """Of pages that no pressure has touched."""
        return {Format.NATIVE, *self._packer.forms}

    @property
    def live_sequences(self) -> int:
        return len(self._sequences)

    def open(
        self, tokens: PromptTokens, max_new: int, *, salt: str, write: bool
    ) -> Sequence | None:
        """A sequence with its cached prefix in place, or `None` while the pool has no room.

        Raises `PromptTooLong`.
        """
        need = self._admission.need(_blocks(tokens, max_new), len(tokens), max_new)
        table = PageTable(self.pool, len(tokens) + max_new, tokens.positions)
        root = self._root(salt, self.pool.epoch)
        keys = self._keys.keys(tokens, root)
        sequence = Sequence(tokens, table, self.entropy.open(), root, keys, write, need)
        self._adopt_prefix(sequence)
        self._sequences.append(sequence)
        if not self._fits():
            self.close(sequence)
            return None
        self.prefix_lookup_tokens += len(tokens)
        self.prefix_hit_tokens += sequence.cached
        if write:
            self._index.use(keys[: sequence.indexed])
        return sequence

    def probe(self, tokens: PromptTokens, *, salt: str, epoch: int | None = None) -> int:
        """Prompt tokens that `open` would restore; looking leaves no trace.

        `epoch`: under the keys of this epoch, say one that was flushed; `None`: of the pool's own.
        """
        root = self._root(salt, self.pool.epoch if epoch is None else epoch)
        blocks = restorable_blocks(tokens)
        found = len(self._index.match(block_keys(tokens, root)[: len(blocks)]))
        return blocks[found - 1][1] if found else 0

    def open_apart(self, tokens: PromptTokens, max_new: int) -> Sequence | None:
        """A sequence on full KV, or `None` without room for it: no prefix is adopted, and as
        `absorb` is not to be called, nothing of it is aliased, quantised or kept."""
        need = self._admission.apart(_blocks(tokens, max_new), self._sequences)
        if need is None:
            return None
        table = PageTable(self.pool, len(tokens) + max_new, tokens.positions)
        sequence = Sequence(tokens, table, self.entropy.open(), b"", [], False, need)
        self._sequences.append(sequence)
        return sequence

    def close(self, sequence: Sequence) -> None:
        """Give everything back. A second call does nothing."""
        if sequence in self._sequences:
            self._sequences.remove(sequence)
            self.entropy.close(sequence.row)
            sequence.table.close()
            sequence.states = None

    def fork(self, sequence: Sequence) -> Sequence | None:
        """A second sequence that goes on from where this one is, or `None` while the pool has no
        room. It leaves no trace in the index. Raises `PoolExhausted` or `StaleEpoch`."""
        self.pool.admit(sequence.table.epoch)
        table = sequence.table.fork(self._new_block)
        twin = replace(
            sequence,
            table=table,
            row=self.entropy.fork(sequence.row),
            write=False,
            states=None if sequence.states is None else sequence.states.clone(),
            hit=sequence.hit.copy(),
            lookup=sequence.lookup.copy(),
        )
        self._sequences.append(twin)
        if not self._fits():
            self.close(twin)
            return None
        return twin

    def grow(self, sequence: Sequence, count: int) -> Span:
        """Room for the next `count` tokens; evicts unused prefixes. Raises `PoolExhausted`."""
        sequence.table.extend(sequence.next_codes(count).tolist(), self._new_block)
        return Span(sequence.table, count)

    def step(self, spans: Iterable[Span], *, observed: bool) -> PagedStep:
        """A forward over grown sequences; sampled when its turn comes or `observed` asks."""
        self._steps += 1
        due = self._steps % self._observe_every == 0
        return PagedStep(
            self.pool,
            list(spans),
            sampled=observed or due,
            token_entropy=self._token_entropy,
            scratch=self._scratch,
            transport=self._transport,
        )

    def absorb(self, sequence: Sequence, states: Tensor, seen: Observation | None) -> None:
        """After a step: `states` `(new, hidden)` are the Talker layer's of its new tokens."""
        start = sequence.table.length - len(states)
        self._keep_states(sequence, start, states)
        sequence.table.seal_complete()
        if seen is not None:
            self._take_in(sequence, start, seen)
        decide(sequence, self.reuse, self.entropy)
        self._packer.pack(sequence)
        self._insert_complete(sequence)

    # ------------------------------------------------------------ orders
    def set_kv(self, kv: KvRung) -> int:
        """Choose the storage format; returns the pages `settle` will turn to int8."""
        self.tiers.kv = kv
        return len(self.tiers.unquantised()) if kv is KvRung.INT8 else 0

    def stop_reuse(self, reason: str) -> None:
        """Alias no more. Running sequences keep their pages; from now keys carry another policy's
        digest, so that what was kept under this one never matches again."""
        self.reuse = off(reason)
        for sequence in self._sequences:
            sequence.write = False  # under its old keys nobody would find it

    def settle(self) -> int:
        """Move some pages between formats and tiers; 0 when there is nothing left to move."""
        return self.tiers.settle(self._sequences)

    def invalidate(self, min_epoch: int) -> None:
        """Everything misses from now, and writes of running sequences are refused."""
        self.pool.advance(min_epoch)

    def sweep(self) -> None:
        """Empty the older epochs. Close their sequences first."""
        self.tiers.forget()
        self._scratch.forget()
        self._index.sweep(self.pool.epoch)
        self.encoders.sweep(self.pool.epoch)

    def stale(self, epoch: int) -> Stale:
        """What is held of epochs before `epoch`."""
        held = held_before(self.pool.records, epoch)
        states, state_bytes = self._index.states_before(epoch)
        encoded, encoded_bytes = self.encoders.held_before(epoch)
        return Stale(
            pages=held.pages,
            host_pages=held.host_pages,
            encoder_outputs=encoded,
            talker_states=states,
            bytes=held.bytes + state_bytes + encoded_bytes,
        )

    def new_page(self, layer: int, modality: int) -> int:
        """An empty page; evicts unused prefixes for it. Raises `PoolExhausted`."""
        while True:
            try:
                return self.pool.allocate(layer, modality, self.pool.epoch)
            except PoolExhausted:
                roomier = self.pool.moves.compact() or self._index.evict()
                if not (roomier or self.tiers.make_room(self._sequences)):
                    raise

    # ------------------------------------------------------------ what is so
    def cells(self) -> tuple[CacheCell, ...]:
        """Table 1 (S4.1), a cell per layer and modality."""
        return cells(self.pool, self.residency, self.reuse, self._sequences)

    def live_native_bytes(self) -> int:
        """What is live on the device, were none of it quantised by order."""
        return self.pool.live_bytes_at(self._storage)

    def reserved_bytes(self) -> int:
        """Device bytes taken in all: pages, Talker states, encoder outputs, bases and scratch."""
        bases = 0 if self.pool.contents.subspace is None else self.pool.contents.subspace.nbytes
        pages = self.pool.arena.nbytes + self._scratch.nbytes + bases
        return pages + self._index.state_bytes + self.encoders.nbytes

    def device_bytes(self) -> int | None:
        """All that this process holds of its device, by the device's allocator; `None` on a CPU."""
        device = self.pool.device
        return torch.cuda.memory_reserved(device) if device.type == "cuda" else None

    @property
    def table_entries(self) -> int:
        """Of running sequences: a page of a layer and block each."""
        return sum(sequence.taken for sequence in self._sequences)

    @property
    def prefix_evictions(self) -> int:
        """Blocks that the index gave up for room; it only grows."""
        return self._index.evictions

    def fill_rate(self) -> float | None:
        """Share of the slots of live pages in use; `None` while nothing is live."""
        return fill_rate(self.pool.records, PAGE_TOKENS)

    def check(self) -> tuple[str, ...]:
        """Broken invariants in words; empty is good."""
        uses = (sequence.table.matrix().ravel() for sequence in self._sequences)
        return check(self.pool, uses, self._index.pages())

    # ------------------------------------------------------------ inside
    def _root(self, salt: str, epoch: int) -> Key:
        return KeyScope(self._weights_digest, self.reuse.digest, epoch).root(salt)

    def _fits(self) -> bool:
        """Whether the open sequences have room. A lone one has none to wait for: a few unused int8
        pages can hold extents that count as less than they are."""
        while self._admission.room(self._sequences) < 0:
            if len(self._sequences) > 1 or not self._index.evict():
                return False
        return True

    def _adopt_prefix(self, sequence: Sequence) -> None:
        """Take over cached blocks."""
        blocks = restorable_blocks(sequence.tokens)
        found = self._index.match(sequence.keys[: len(blocks)])
        for (start, stop), entry in zip(blocks, found, strict=False):
            self.pool.retain(entry.pages)
            sequence.table.adopt(entry.modality, entry.pages.copy(), stop - start)
            if entry.states is not None:
                self._keep_states(sequence, start, entry.states)
        sequence.table.seal_complete()
        sequence.cached = sequence.table.length
        sequence.decided = sequence.indexed = len(found)
        sequence.packed = sequence.packed_waiting = len(found)

    def _new_block(self, modality: int) -> Pages:
        pages = np.zeros(self.pool.layers, np.int64)
        for layer in range(self.pool.layers):
            try:
                pages[layer] = self.new_page(layer, modality)
            except PoolExhausted:
                self.pool.release(pages[:layer])
                raise
        return pages

    def _keep_states(self, sequence: Sequence, start: int, states: Tensor) -> None:
        """Rows of prompt tokens; those of text stay, nobody reads them."""
        length = len(sequence.tokens)
        if start >= length:
            return
        if sequence.states is None:
            sequence.states = states.new_zeros(length, states.shape[1])
        part = states[: length - start]
        sequence.states[start : start + len(part)] = part

    def _take_in(self, sequence: Sequence, start: int, seen: Observation) -> None:
        self.entropy.write(sequence.row, start, seen.nats)
        self.record(sequence, start, seen)

    def record(self, sequence: Sequence, start: int, seen: Observation) -> None:
        """For table 1; reuse and pressure go by the rest."""
        codes = sequence.table.codes[start:]
        self.residency.entropy.add(seen.nats, codes)
        if seen.sample is not None:
            self.residency.token_entropy.add(seen.sample.token_nats, codes)
            self._take_in_masses(sequence, start, seen.sample)

    def _take_in_masses(self, sequence: Sequence, start: int, seen: Sample) -> None:
        sequence.sampled = True
        sequence.hit += seen.hit.sum(0)
        sequence.lookup += seen.lookup.sum(0)
        self.residency.add_masses(seen.hit, seen.lookup)
        sequence.table.received.note(seen.received)
        if start >= len(sequence.tokens):  # an answer is what pages are kept for
            self.tiers.experience.learn(seen.received, sequence.cells())

    def _insert_complete(self, sequence: Sequence) -> None:
        """Put complete prompt blocks into the index; with reuse on, only settled ones."""
        if not sequence.write or sequence.table.epoch != self.pool.epoch:
            return
        ready = min(sequence.table.complete(), len(sequence.keys))
        if self.reuse.on:
            ready = min(ready, sequence.decided)
        for index in range(sequence.indexed, ready):
            self._index.insert(sequence.keys[index], self._entry(sequence, index))
        sequence.indexed = max(sequence.indexed, ready)

    def _entry(self, sequence: Sequence, index: int) -> Entry:
        block = sequence.table.blocks[index]
        tokens = sequence.table.tokens_of(index)
        states = sequence.states if block.modality != TEXT else None
        return Entry(
            parent=sequence.parent_key(index),
            modality=block.modality,
            pages=block.pages.copy(),
            states=None if states is None else states[tokens].clone(),
            epoch=sequence.table.epoch,
            cost=block_cost(tokens.start, tokens.stop, media=block.modality != TEXT),
        )


def _blocks(tokens: PromptTokens, max_new: int) -> list[tuple[int, int]]:
    """Of a prompt and an answer of so many tokens."""
    answer = np.full(max_new, TEXT, np.int8)
    return layout(np.concatenate([tokens.codes, answer]))
