"""One hash table for all modalities (S1.1): block key -> the block's pages of all layers.

A key covers everything a block's content depends on, so a hit needs all of it equal: the chain
of blocks before it, token ids, modality, positions, media identity, tenant, weights, reuse
calibration and epoch (DESIGN 5). Form and tier are not in it: quantising keeps hits.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from runtime.kv.pool import PagePool
from runtime.kv.records import Pages
from runtime.kv.tokens import PromptTokens, complete_blocks

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
        return _digest(*(part.encode() for part in parts))


def block_keys(tokens: PromptTokens, root: Key) -> list[Key]:
    """The chained key of each complete block of a prompt."""
    keys, parent = [], root
    for start, stop in complete_blocks(tokens.codes):
        media = [
            f"{span.digest}+{max(start, span.start) - span.start}"
            for span in tokens.media
            if span.start < stop and start < span.stop
        ]
        parent = _digest(
            parent,
            tokens.ids[start:stop].tobytes(),
            tokens.codes[start:stop].tobytes(),
            np.ascontiguousarray(tokens.positions[:, start:stop]).tobytes(),
            *(part.encode() for part in media),
        )
        keys.append(parent)
    return keys


def _digest(*parts: bytes) -> Key:
    """Each part goes in with its length, so that no two lists of parts run together."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()


@dataclass(eq=False)
class Entry:
    """A complete block. `states` `(tokens, hidden)`: what the Talker needs of media tokens."""

    parent: Key
    modality: int
    pages: Pages
    states: Tensor | None
    epoch: int
    children: int = 0

    @property
    def state_bytes(self) -> int:
        return 0 if self.states is None else self.states.nbytes


class PrefixIndex:
    """The hash table, least recently used first. It holds its pages in the pool.

    `state_budget`: bytes that the Talker's states may take before old entries go.
    """

    def __init__(self, pool: PagePool, state_budget: int) -> None:
        self._pool = pool
        self._budget = state_budget
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self.state_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def pages(self) -> Iterator[Pages]:
        """What the index holds, for the audit."""
        return (entry.pages for entry in self._entries.values())

    def match(self, keys: Sequence[Key]) -> list[Entry]:
        """The longest cached chain that starts `keys`. A parent stays younger than its child."""
        found: list[Entry] = []
        for key in keys:
            entry = self._entries.get(key)
            if entry is None:
                break
            found.append(entry)
        for key in reversed(keys[: len(found)]):
            self._entries.move_to_end(key)
        return found

    def insert(self, key: Key, entry: Entry) -> None:
        """Keep a complete block. A key that is there already stays as it is."""
        if key in self._entries:
            return
        self._entries[key] = entry
        self.state_bytes += entry.state_bytes
        self._pool.hold(entry.pages)
        if entry.parent in self._entries:
            self._entries[entry.parent].children += 1
            self._entries.move_to_end(entry.parent)
        while self.state_bytes > self._budget and self.evict():
            pass

    def evict(self) -> bool:
        """Drop the least recently used leaf that no sequence uses; False when there is none."""
        for key, entry in self._entries.items():
            if entry.children == 0 and not self._pool.records.uses[entry.pages].any():
                self._remove(key)
                return True
        return False

    def sweep(self, epoch: int) -> None:
        """Drop every entry of an epoch before `epoch`."""
        for key in [k for k, e in self._entries.items() if e.epoch < epoch]:
            self._remove(key)

    def states_before(self, epoch: int) -> tuple[int, int]:
        """Entries of older epochs that still keep Talker states, and the bytes of those."""
        old = [e for e in self._entries.values() if e.epoch < epoch and e.states is not None]
        return len(old), sum(entry.state_bytes for entry in old)

    def _remove(self, key: Key) -> None:
        entry = self._entries.pop(key)
        self.state_bytes -= entry.state_bytes
        if entry.parent in self._entries:
            self._entries[entry.parent].children -= 1
        self._pool.drop(entry.pages)
