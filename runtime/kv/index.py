"""One hash table for all modalities (S1.1): block key -> the block's pages of all layers.

A key covers everything a block's content depends on, so a hit needs all of it equal: the chain
of blocks before it, token ids, modality, positions, media identity, tenant, weights, reuse
calibration and epoch (DESIGN 5). Form and tier are not in it: quantising keeps hits.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor

from runtime.kv.eviction import Ranking
from runtime.kv.pool import PagePool
from runtime.kv.records import Pages
from runtime.kv.tokens import MediaSpan, PromptTokens, complete_blocks

Key = bytes


@dataclass(frozen=True)
class KeyScope:
    """What all keys of one resident and epoch share."""

    weights_digest: str
    calibration_digest: str
    epoch: int

    def root(self, salt: str) -> Key:
        """Parent of a sequence's first key; `salt` keeps tenants apart."""
        parts = (self.weights_digest, self.calibration_digest, str(self.epoch), salt)
        return _digest(b"root", *(part.encode() for part in parts))


def block_keys(tokens: PromptTokens, root: Key) -> list[Key]:
    """The chained key of each complete block of a prompt."""
    columns = np.column_stack([tokens.ids, tokens.codes, tokens.positions.T]).astype(np.int64)
    starts = [span.start for span in tokens.media]
    stops = [span.stop for span in tokens.media]
    keys, parent = [], root
    for start, stop in complete_blocks(tokens.codes):
        media = tokens.media[bisect_right(stops, start) : bisect_left(starts, stop)]
        places = (_place(span, start, stop) for span in media)
        parent = _digest(b"block", parent, columns[start:stop].tobytes(), *places)
        keys.append(parent)
    return keys


def _place(span: MediaSpan, start: int, stop: int) -> bytes:
    """Which tokens of the block `[start, stop)` are which tokens of which slice."""
    first, last = max(start, span.start), min(stop, span.stop)
    return f"{first - span.start} {first - start} {last - start} {span.digest}".encode()


def _digest(kind: bytes, *parts: bytes) -> Key:
    """Each part goes in with its length, so that no two lists of parts run together; `kind` keeps
    roots and blocks apart."""
    state = hashlib.blake2b(digest_size=16, person=kind)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()


class KeyMemo:
    """Keys of prompts that are still around, so that one that waits for room is hashed once.

    A prompt is known by identity, and again under each new root (a flush, another policy).
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[PromptTokens, tuple[Key, list[Key]]] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._known)

    def keys(self, tokens: PromptTokens, root: Key) -> list[Key]:
        """`block_keys`; not to be changed."""
        known = self._known.get(tokens)
        if known is None or known[0] != root:
            known = self._known[tokens] = (root, block_keys(tokens, root))
        return known[1]


@dataclass(eq=False)
class Entry:
    """A complete block. `states` `(tokens, hidden)`: what the Talker needs of media tokens.

    `cost`: of computing it again (`eviction.block_cost`).
    """

    parent: Key
    modality: int
    pages: Pages
    states: Tensor | None
    epoch: int
    cost: float

    @property
    def state_bytes(self) -> int:
        return 0 if self.states is None else self.states.nbytes


class PrefixIndex:
    """The hash table. It holds its pages in the pool.

    Leaves go first, those worth least; a block outlives all that continue it (`eviction`).
    `state_budget`: bytes that the Talker's states may take before entries go.
    """

    def __init__(self, pool: PagePool, state_budget: int) -> None:
        self._pool = pool
        self._budget = state_budget
        self._entries: dict[Key, Entry] = {}
        self._children: Counter[Key] = Counter()  # of keys that may be gone, or roots, too
        self._ranking: Ranking[Key] = Ranking(self._nbytes)
        self.state_bytes = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._entries)

    def pages(self) -> Iterator[Pages]:
        """What the index holds, for the audit."""
        return (entry.pages for entry in self._entries.values())

    def match(self, keys: Sequence[Key]) -> list[Entry]:
        """The longest cached chain that starts `keys`. Looking leaves no trace."""
        found: list[Entry] = []
        for key in keys:
            entry = self._entries.get(key)
            if entry is None:
                break
            found.append(entry)
        return found

    def use(self, keys: Sequence[Key]) -> None:
        """Matched entries were taken over by a sequence: they are worth the more."""
        for key in keys:
            self._ranking.use(key)

    def insert(self, key: Key, entry: Entry) -> None:
        """Keep a complete block. A key that is there already stays as it is."""
        if key in self._entries:
            return
        self._entries[key] = entry
        self.state_bytes += entry.state_bytes
        self._pool.hold(entry.pages)
        self._ranking.add(key, entry.cost)
        self._adopt(key, entry.parent)
        while self.state_bytes > self._budget and self.evict():
            pass

    def evict(self) -> bool:
        """Drop the leaf that is worth least, of those that no sequence uses and nobody pins;
        False when there is none."""
        key = self._ranking.take(self._in_use)
        if key is None:
            return False
        self._remove(key)
        self.evictions += 1
        return True

    def sweep(self, epoch: int) -> None:
        """Drop every entry of an epoch before `epoch`."""
        for key in [k for k, e in self._entries.items() if e.epoch < epoch]:
            self._ranking.forget(key)
            self._remove(key)

    def states_before(self, epoch: int) -> tuple[int, int]:
        """Entries of older epochs that still keep Talker states, and the bytes of those."""
        old = [e for e in self._entries.values() if e.epoch < epoch and e.states is not None]
        return len(old), sum(entry.state_bytes for entry in old)

    def _adopt(self, key: Key, parent: Key) -> None:
        """Under its parent, which is no leaf any more. A parent that went while a sequence still
        wrote behind it may come back: then its children are waiting for it."""
        self._children[parent] += 1
        if parent in self._entries:
            self._ranking.withdraw(parent)
        if not self._children[key]:
            self._ranking.offer(key)

    def _remove(self, key: Key) -> None:
        entry = self._entries.pop(key)
        self.state_bytes -= entry.state_bytes
        self._pool.drop(entry.pages)
        self._children[entry.parent] -= 1
        if not self._children[entry.parent]:
            del self._children[entry.parent]
            if entry.parent in self._entries:
                self._ranking.offer(entry.parent)

    def _in_use(self, key: Key) -> bool:
        pages = self._entries[key].pages
        records = self._pool.records
        return bool((records.uses[pages] + records.pins[pages]).any())

    def _nbytes(self, key: Key) -> int:
        """Of its pages as they are now, one that two layers share counted once, and its states."""
        entry = self._entries[key]
        return entry.state_bytes + int(self._pool.records.bytes_of(np.unique(entry.pages)).sum())
