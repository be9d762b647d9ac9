"""Whether a sequence has room: what it will come to need against what is there, in bytes.

A sequence that the device alone could never hold is admitted with the host's help: what is beyond
its part of the device is planned to be there, so that others find room beside it.
"""

from collections.abc import Collection, Sequence

import numpy as np

from runtime.kv.account import evictable_bytes
from runtime.kv.pool import PagePool
from runtime.kv.sequence import Need
from runtime.kv.sequence import Sequence as Running
from runtime.kv.tokens import PREFILL_TOKENS

LONG_SHARE = 0.5  # of the device, that a sequence too long for it may come to keep


class PromptTooLong(ValueError):
    """The prompt and its answer can never fit the pool; the client can mend it."""


class Admission:
    """`stored_bytes`: of a page at rest on the device; `host_page_bytes`: of one on the host.

    Both are counted as their share of an extent, of which slots leave a rest.
    """

    def __init__(self, pool: PagePool, stored_bytes: int, host_page_bytes: int) -> None:
        self._pool = pool
        self._stored = _share_of_extent(pool, stored_bytes)
        self._host_size = host_page_bytes

    def need(self, blocks: Sequence[tuple[int, int]], prompt: int, answer: int) -> Need:
        """Of a sequence of these blocks. Raises `PromptTooLong` where it can never fit."""
        pool, pages = self._pool, len(blocks) * self._pool.layers
        fresh = _in_a_slice(blocks) * pool.layers
        alone = Need(pages, self._stored, pool.shape.native_bytes, fresh)
        if alone.owed(0) <= self._device_bytes():
            return alone
        most = self._at_rest(fresh) + pool.host.most(self._host_size)
        if pages > most or fresh > pool.arena.native_pages:
            raise PromptTooLong(
                f"a prompt of {prompt} tokens and an answer of up to {answer} need {pages} cache"
                f" pages; this resident has {most}: send less or ask for less"
            )
        kept = int(LONG_SHARE * self._at_rest(fresh))
        away = min(pages - kept, pool.host.most(self._host_size))
        return Need(pages, self._stored, pool.shape.native_bytes, fresh, away)

    def apart(self, blocks: Sequence[tuple[int, int]], running: Collection[Running]) -> Need | None:
        """Of a sequence that stays native; `None` where that would cost others their pages.

        Where pages are packed it takes free room alone: what is evicted then frees few native
        pages.
        """
        native, pages = self._pool.shape.native_bytes, len(blocks) * self._pool.layers
        free = self._pool.arena.free_native() * native - _owed(running)
        if self._stored >= native:
            free += evictable_bytes(self._pool.records)
        return Need(pages, native, native, fresh=0) if pages * native <= free else None

    def room(self, running: Collection[Running]) -> int:
        """Device bytes to be had, less what running sequences may still take.

        For a lone sequence all of the host counts: rather slow than never.
        """
        pool = self._pool
        free = pool.arena.free_native() * pool.shape.native_bytes
        evictable = evictable_bytes(pool.records)
        spill = pool.host.room(self._host_size)
        if len(running) > 1:
            spill = min(spill, sum(s.to_leave() for s in running))
        return free + evictable + self._stored * spill - _owed(running)

    def _at_rest(self, fresh: int) -> int:
        """Pages of a lone sequence that the device can hold, beside the `fresh` ones."""
        pool = self._pool
        return max(0, self._device_bytes() - fresh * pool.shape.native_bytes) // self._stored

    def _device_bytes(self) -> int:
        return self._pool.arena.native_pages * self._pool.shape.native_bytes


def _owed(running: Collection[Running]) -> int:
    """Bytes that running sequences may still take."""
    return sum(sequence.need.owed(sequence.taken) for sequence in running)


def _in_a_slice(blocks: Sequence[tuple[int, int]]) -> int:
    """Blocks that one slice can touch at most, all native until they are packed behind the step:
    short runs of a modality make many."""
    starts = np.array([start for start, _ in blocks])
    begun = np.searchsorted(starts, starts + PREFILL_TOKENS) - np.arange(len(starts))
    return min(len(blocks), int(begun.max(initial=0)) + 1)


def _share_of_extent(pool: PagePool, size: int) -> int:
    books = pool.arena.books
    return -(-books.extent_bytes // books.per(size))
