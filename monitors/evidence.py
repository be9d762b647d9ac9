"""The evidence log: every milestone, fault and ending as it happens, for long-poll readers.

Keyed by (incarnation, sequence): a reader that kept its `Cursor` sees each entry exactly once
over any number of reconnects, and knows when it missed some (DESIGN 4).
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from monitors.contract import (
    Evidence,
    EvidenceBatch,
    EvidenceBody,
    Level,
    SessionClass,
    Wire,
)


class EvidenceLog:
    """A bounded ring of evidence, written and read on one event loop. Sequences start at 1."""

    def __init__(
        self,
        incarnation: str,
        *,
        capacity: int = 65_536,
        wall: Callable[[], float] = time.time,
    ) -> None:
        if not incarnation or capacity < 1:
            raise ValueError("an evidence log needs an incarnation and a capacity of at least 1")
        self.incarnation = incarnation
        self._capacity = capacity
        self._wall = wall
        self._ring: list[Evidence] = []  # entry `seq` lies at (seq - 1) % capacity
        self._newest = 0
        self._arrival = asyncio.Event()

    @property
    def newest_seq(self) -> int:
        """The last sequence given out; 0 before the first."""
        return self._newest

    @property
    def oldest_seq(self) -> int:
        """The first sequence still here; 1 while nothing is gone."""
        return self._newest - len(self._ring) + 1

    def append(
        self,
        body: EvidenceBody,
        *,
        resident: str,
        version: str,
        session: str,
        request_id: str,
        pool_epoch: int | None,
        route_epoch: int,
        level: Level,
        operator: bool = False,
        session_class: SessionClass = SessionClass.INTERACTIVE,
        mirror: bool = False,
        by_hand: tuple[str, ...] = (),
        rehearsal: str = "",
    ) -> Evidence:
        """Stamp `body` with the next sequence and the calendar time, and wake every reader."""
        entry = Evidence(
            seq=self._newest + 1,
            wall=self._wall(),
            resident=resident,
            version=version,
            session=session,
            request_id=request_id,
            pool_epoch=pool_epoch,
            route_epoch=route_epoch,
            level=level,
            operator=operator,
            body=body,
            session_class=session_class,
            mirror=mirror,
            by_hand=by_hand,
            rehearsal=rehearsal,
        )
        self._store(entry)
        return entry

    async def after(
        self, incarnation: str, seq: int, wait_s: float = 0.0, limit: int = 1_000
    ) -> EvidenceBatch:
        """Up to `limit` entries later than `seq` (0: from the start), oldest first.

        Answers at once when there are some, or when the reader knew another incarnation (then
        from this one's start); else waits up to `wait_s` for the next entry. Raises `ValueError`
        for a sequence that was never given out.
        """
        if limit < 1 or seq < 0:
            raise ValueError(f"limit {limit} must be at least 1, and sequence {seq} at least 0")
        if incarnation != self.incarnation:
            return self._batch(0, limit)
        if seq > self._newest:
            raise ValueError(f"sequence {seq} is not written yet: the newest is {self._newest}")
        if seq == self._newest and wait_s > 0.0:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._arrival.wait()
        return self._batch(seq, limit)

    def _store(self, entry: Evidence) -> None:
        if len(self._ring) < self._capacity:
            self._ring.append(entry)
        else:
            self._ring[(entry.seq - 1) % self._capacity] = entry
        self._newest = entry.seq
        self._arrival.set()
        self._arrival = asyncio.Event()

    def _batch(self, seq: int, limit: int) -> EvidenceBatch:
        first = max(seq + 1, self.oldest_seq)
        end = min(first + limit, self._newest + 1)
        return EvidenceBatch(
            incarnation=self.incarnation,
            oldest_seq=self.oldest_seq,
            next_seq=end,
            entries=tuple(self._ring[(s - 1) % self._capacity] for s in range(first, end)),
        )


class Cursor(Wire, frozen=True):
    """How far a reader got: it asks for `after=seq` of `incarnation`. A new one starts at 0."""

    incarnation: str = ""
    seq: int = 0

    def take(self, batch: EvidenceBatch) -> "Taken":
        """What is new in `batch`, and the cursor to ask with next. Repeated batches add nothing."""
        same = batch.incarnation == self.incarnation
        seen = self.seq if same else 0
        return Taken(
            cursor=Cursor(incarnation=batch.incarnation, seq=max(seen, batch.next_seq - 1)),
            entries=tuple(entry for entry in batch.entries if entry.seq > seen),
            missed=batch.oldest_seq > seen + 1 or (not same and self.incarnation != ""),
        )


class Taken(Wire, frozen=True):
    """The outcome of one read. `missed`: entries were lost to this reader, so absence of faults
    in what follows proves nothing about the gap."""

    cursor: Cursor
    entries: tuple[Evidence, ...]
    missed: bool
