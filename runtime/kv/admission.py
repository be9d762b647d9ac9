"""Whether a sequence has room: what it will come to need against what is there, in bytes."""

from collections.abc import Collection

from runtime.kv.formats import PAGE_TOKENS
from runtime.kv.pool import PagePool
from runtime.kv.sequence import Need, Sequence

SLICE_TOKENS = 256  # written in one step at most, in native pages, before they are packed


class PromptTooLong(ValueError):
    """The prompt and its answer can never fit the pool; the client can mend it."""


class Admission:
    """`stored_bytes`: of a page at rest on the device; `host_page_bytes`: of one on the host."""

    def __init__(self, pool: PagePool, stored_bytes: int, host_page_bytes: int) -> None:
        self._pool = pool
        self._stored = stored_bytes
        self._host_page = host_page_bytes

    def need(self, blocks: int, prompt: int, answer: int) -> Need:
        """Of a sequence of so many blocks. Raises `PromptTooLong` where it can never fit."""
        pool, pages = self._pool, blocks * self._pool.layers
        fresh = min(blocks, SLICE_TOKENS // PAGE_TOKENS + 1) * pool.layers
        need = Need(pages, self._stored, pool.shape.native_bytes, fresh)
        if need.owed(0) > self._device_bytes() and pages > self._most_pages(need):
            raise PromptTooLong(
                f"a prompt of {prompt} tokens and an answer of up to {answer} need {pages} cache"
                f" pages; this resident has {self._most_pages(need)}: send less or ask for less"
            )
        return need

    def room(self, running: Collection[Sequence]) -> int:
        """Device bytes to be had, less what running sequences may still take.

        The host counts for a lone sequence: rather slow than never.
        """
        pool = self._pool
        free = pool.arena.free_native() * pool.shape.native_bytes
        evictable = int(pool.account().evictable.sum())
        spill = self._stored * pool.host.room(self._host_page) if len(running) == 1 else 0
        return free + evictable + spill - sum(s.need.owed(s.taken) for s in running)

    def _most_pages(self, need: Need) -> int:
        """Of a lone sequence, with the host's part."""
        unpacked = need.fresh * (need.native_bytes - need.stored_bytes)
        on_device = max(0, self._device_bytes() - unpacked) // need.stored_bytes
        return on_device + self._pool.host.limit // self._host_page

    def _device_bytes(self) -> int:
        return self._pool.arena.native_pages * self._pool.shape.native_bytes
