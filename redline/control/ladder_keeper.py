"""Keeps each resident on the ladder's level: what fires in, journalled moves and orders out.

Levels, not edges: every tick compares the level wanted with the level seen, so a lost alert, a
lost order or a restart of either plane is mended by the next tick.
"""

import asyncio
import logging
import time
import zlib
from collections.abc import Callable

import msgspec

from alerts.decide import decide
from alerts.firing import Firing
from alerts.forecast import load_of
from alerts.ladder import LADDER, Event, Ladder, Mode, Move
from alerts.overrides import Override, OverrideEnded, OverrideError, check
from alerts.parts import Part
from monitors.contract import (
    ALL_CLASSES,
    LadderOrder,
    Level,
    Observed,
    ResidentStatus,
    SessionClass,
)
from monitors.journal import Journal, JournalUnwritable
from monitors.labels import ResidentState
from monitors.redlines import RedLines
from monitors.rungs import name_of
from monitors.tables import Tables
from redline.control.ladder_api import HoldOrder, LadderStatus, ReleaseOrder
from redline.control.ladder_book import Book, recall
from redline.control.ladder_events import MODE, ModeSet, kind_of
from redline.control.ladder_view import view
from rollout.dataplane import DataPlane, DataPlaneError
from rollout.ledger import Ledger

_LOST_S = 5.0  # ticks further apart, or clocks that part by more, saw nothing of the time between
_JITTER = 0.1  # of a lease, either way: not all of them expire at once

log = logging.getLogger(__name__)


class LadderKeeper:
    """Ticks the ladders of all residents. One instance per leadership (`leader_epoch`)."""

    def __init__(
        self,
        journal: Journal,
        dataplane: DataPlane,
        lines: RedLines,
        leader_epoch: int,
        *,
        on_move: Callable[[Move], None],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._journal = journal
        self._ledger = Ledger(journal, leader_epoch)
        self._writing = asyncio.Lock()
        self._dataplane = dataplane
        self._lines = lines
        self._on_move = on_move
        self._clock = clock
        self._wall = wall
        self._began = clock(), wall()
        self._books: dict[str, Book] = {}  # by version, of the residents that were last seen
        self._versions: dict[str, str] = {}  # of those residents
        self._ticked: tuple[float, float] | None = None  # of the last tick, by both clocks
        self._ordered_at: dict[tuple[str, SessionClass], float] = {}
        mode = journal.last(MODE)
        self.mode = Mode.LIVE if mode is None else mode.read_as(ModeSet).mode

    # ------------------------------------------------------------ what people order
    async def set_mode(self, mode: Mode, actor: str) -> None:
        """Freeze, thaw or run dry; journalled, so it outlives this process.

        A freeze holds at once, and is journalled later where that cannot be now; for any other
        mode `JournalUnwritable` is raised.
        """
        urgent = mode is Mode.FROZEN
        if urgent:
            self.mode = mode  # a kill switch waits for no disk
        async with self._writing:
            write = self._ledger.write_or_keep if urgent else self._ledger.write
            await asyncio.to_thread(write, MODE, actor, ModeSet(mode=mode))
            self.mode = mode

    async def hold(self, order: HoldOrder) -> LadderStatus:
        """Hold a resident's version by hand, in place of what was held before; ordered at the next
        tick, frozen or not. Raises `OverrideError` and `JournalUnwritable`."""
        async with self._writing:
            version, now = self._version(order.resident), self._now()
            override = Override(
                at=now,
                until=now + order.for_s,
                version=version,
                classes=order.classes,
                parts=order.parts,
                actor=order.actor,
                reason=order.reason,
            )
            check(override)
            await self._record(override, order.actor)
            return self._view(order.resident, version)

    async def release(self, order: ReleaseOrder) -> LadderStatus:
        """Hold it by hand no longer: its ladder goes on from there. Raises as `hold` does."""
        async with self._writing:
            version, now = self._version(order.resident), self._now()
            if self._books[version].ladder.override is None:
                raise OverrideError(f"nothing holds {order.resident!r} by hand")
            ended = OverrideEnded(at=now, version=version, actor=order.actor, reason=order.reason)
            await self._record(ended, order.actor)
            return self._view(order.resident, version)

    def status(self) -> tuple[LadderStatus, ...]:
        """How the ladder of each resident that was last seen stands."""
        return tuple(self._view(name, version) for name, version in self._versions.items())

    # ------------------------------------------------------------ a tick
    async def tick(
        self,
        firing: tuple[Firing, ...] | None,
        observed: Observed | None,
        tables: Tables | None,
    ) -> None:
        """One round over the residents that are seen. None is unknown: what fires, who is there.

        An order that is refused, or a move that cannot be journalled, is tried again at the next
        tick, and keeps no other resident from being seen to.
        """
        await self._catch_up()
        if observed is not None:
            await self._open_books({each.name: each.version for each in observed.residents})
        was_away = self._was_away()
        residents = () if observed is None else observed.residents
        residents = [each for each in residents if each.version in self._books]
        self._lose_sight(set(self._books) - {each.version for each in residents})
        for resident in residents:
            # Nobody watches a resident that answers nothing: quiet proves nothing there.
            seen = firing if resident.state is ResidentState.READY else None
            await self._note(resident, tables)
            try:
                await self._keep(resident, await self._decide(resident, seen, was_away=was_away))
            except DataPlaneError as err:
                log.warning("the level is not ordered: %s", err, extra={"resident": resident.name})

    async def _open_books(self, shown: dict[str, str]) -> None:
        """Have the book of each version that a resident shows, as the journal has it, and keep no
        other; what is not journalled yet is not forgotten."""
        missing = set(shown.values()) - set(self._books)
        if missing:
            self._show(shown)  # what has no book yet cannot be held: nothing is written of it
        # Not under the lock: a freeze would wait for as long as the journal is.
        opened = await self._read(missing) if missing else {}
        async with self._writing:
            self._books |= opened
            if not self._ledger.behind:
                kept = set(shown.values())
                self._books = {each: book for each, book in self._books.items() if each in kept}
            self._show(shown)

    def _show(self, shown: dict[str, str]) -> None:
        self._versions = {name: seen for name, seen in shown.items() if seen in self._books}

    async def _read(self, versions: set[str]) -> dict[str, Book]:
        """Their books; none where they cannot be read: no ladder is better than a wrong one."""
        try:
            return await asyncio.to_thread(
                recall, self._journal, versions, self._now(), self._lines
            )
        except (JournalUnwritable, msgspec.DecodeError) as err:
            log.error("the journal cannot be read: %s", err)
            return {}

    def _now(self) -> float:
        """Wall seconds as they go by on the clock that nobody sets: one that is set while this
        process leads ends no override, and empties no budget."""
        clock, wall = self._began
        return wall + self._clock() - clock

    def _was_away(self) -> bool:
        """Whether this process slept, or the clock was set, since the last tick: no dwell counts
        the seconds that nobody saw."""
        clock, wall, last = self._clock(), self._wall(), self._ticked
        self._ticked = clock, wall
        if last is None:
            return False
        passed, shown = clock - last[0], wall - last[1]
        return max(passed, abs(shown - passed)) > _LOST_S

    def _lose_sight(self, versions: set[str]) -> None:
        """Of versions that no resident shows now: quiet proves nothing there, either."""
        for book in map(self._books.__getitem__, versions):
            unseen = decide(book.ladder, None, book.history, self._now(), self._lines)
            book.ladder = unseen.ladder

    async def _catch_up(self) -> None:
        """Journal what could not be at its time: a freeze, a measurement, an override's end."""
        if not self._ledger.behind:
            return
        try:
            async with self._writing:
                await asyncio.to_thread(self._ledger.catch_up)
        except JournalUnwritable as err:
            log.warning("%d waiting to be journalled: %s", self._ledger.behind, err)

    async def _note(self, resident: ResidentStatus, tables: Tables | None) -> None:
        load = load_of(
            resident.version,
            tables,
            self._lines.latency.min_count,
            busy_share=resident.busy_share,
            native_bytes=resident.live_native_bytes,
        )
        book, now = self._books[resident.version], self._now()
        book.note(now, load, self._lines.ladder)
        if book.is_behind(now):
            try:
                await asyncio.to_thread(book.keep, self._journal, self._ledger.leader_epoch)
            except JournalUnwritable as err:
                log.warning("the load is remembered by this process alone: %s", err)

    async def _decide(
        self, resident: ResidentStatus, firing: tuple[Firing, ...] | None, *, was_away: bool
    ) -> Ladder:
        """The resident's ladder once this tick's moves are journalled. None follows a freeze."""
        book, now = self._books[resident.version], self._now()
        async with self._writing:
            await self._end_override(book, now)
            decision = decide(
                book.ladder, firing, book.history, now, self._lines,
                mode=self.mode, was_away=was_away,
            )  # fmt: skip
            book.ladder = decision.seen
            if decision.measured is not None:
                await self._record(decision.measured, LADDER, can_wait=True)
            self._tell(book, decision.moves if decision.dry_run else ())
            try:
                for move in () if decision.dry_run else decision.moves:
                    await self._record(move, LADDER)
                    self._on_move(move)
            except JournalUnwritable as err:
                log.error("a move is refused: %s", err, extra={"resident": resident.name})
        return book.ladder

    def _tell(self, book: Book, would: tuple[Move, ...]) -> None:
        """In a dry run: log what would be done, once for as long as it stays the same."""
        told = {(move.part, move.rung) for move in book.would}
        book.would = would
        for move in would:
            if (move.part, move.rung) not in told:
                words = "dry run: %s would take its %s to rung %d (%s)"
                log.info(words, move.version, move.part, move.rung, move.reason)

    # ------------------------------------------------------------ the journal
    async def _end_override(self, book: Book, now: float) -> None:
        """Note that an override's time has passed. It is over even where that cannot be written."""
        version, held = book.ladder.version, book.ladder.override
        if held is None or now < held.until:
            return
        ended = OverrideEnded(at=now, version=version, actor=LADDER, reason="its time is over")
        await self._record(ended, LADDER, can_wait=True)

    async def _record(self, event: Event, actor: str, *, can_wait: bool = False) -> None:
        """Durable before it acts. An unwritable journal refuses a move: it is not urgent. What is
        so in any case can wait until there is room."""
        write = self._ledger.write_or_keep if can_wait else self._ledger.write
        await asyncio.to_thread(write, kind_of(event), actor, event)
        self._books[event.version].take(event, self._lines.ladder)

    def _version(self, resident: str) -> str:
        if resident not in self._versions:
            there = ", ".join(self._versions) or "none that answers"
            raise OverrideError(f"no resident is called {resident!r}; there are: {there}")
        return self._versions[resident]

    def _view(self, resident: str, version: str) -> LadderStatus:
        return view(resident, self._books[version], self._now(), self._wall(), self._lines)

    # ------------------------------------------------------------ orders
    async def _keep(self, resident: ResidentStatus, ladder: Ladder) -> None:
        """See that the levels are held: change them, or renew their leases at a third of their
        length. Sessions that share a level share an order."""
        now = self._now()
        sharing: dict[Level, list[SessionClass]] = {}
        for each in ALL_CLASSES:
            sharing.setdefault(ladder.level_of(each, now), []).append(each)
        for level, classes in sharing.items():
            differs = any(resident.level_of(each) != level for each in classes)
            if differs or (level != Level() and self._is_due(resident, classes)):
                await self._order(resident, ladder, level, classes)

    def _is_due(self, resident: ResidentStatus, classes: list[SessionClass]) -> bool:
        renewed = [self._ordered_at.get((resident.name, each)) for each in classes]
        third_s, now = self._lines.ladder.lease_s / 3, self._clock()
        return any(at is None or now - at >= third_s for at in renewed)

    async def _order(
        self, resident: ResidentStatus, ladder: Ladder, level: Level, classes: list[SessionClass]
    ) -> None:
        operation = f"{ladder.version}-{ladder.events}-{'+'.join(classes)}-{name_of(level)}"
        differs = [part for part in Part if _differs(part, level, resident, classes)]
        given_up = [part for part in Part if getattr(level, part)]
        cause = ladder.cause(differs or given_up, classes[0], self._now())
        order = LadderOrder(
            leader_epoch=self._ledger.leader_epoch,
            operation_id=operation,
            resident=resident.name,
            classes=tuple(classes),
            level=level,
            lease_s=jittered(self._lines.ladder.lease_s, f"{resident.name} {operation}"),
            actor=cause.actor,
            reason=cause.reason,
            evidence=cause.evidence,
            sequence=ladder.events,
            by_hand=self._by_hand(ladder, classes),
        )
        await self._dataplane.set_level(order)
        for each in classes:
            self._ordered_at[resident.name, each] = self._clock()

    def _by_hand(self, ladder: Ladder, classes: list[SessionClass]) -> tuple[str, ...]:
        """The parts that a human holds: all of them where the ladder is frozen."""
        if self.mode is Mode.FROZEN:
            return tuple(part.value for part in Part)
        return ladder.by_hand(classes, self._now())


def _differs(
    part: Part, level: Level, resident: ResidentStatus, classes: list[SessionClass]
) -> bool:
    """Whether the resident serves some of these sessions another rung of a part."""
    return any(getattr(resident.level_of(each), part) != getattr(level, part) for each in classes)


def jittered(lease_s: float, operation: str) -> float:
    """A lease a little longer or shorter, the same for the same operation."""
    share = zlib.crc32(operation.encode()) / 0xFFFFFFFF
    return lease_s * (1.0 + _JITTER * (2.0 * share - 1.0))
