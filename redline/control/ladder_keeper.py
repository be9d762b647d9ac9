"""Keeps each resident on the ladder's level: what fires in, journalled moves and orders out.

Levels, not edges: every tick compares the level wanted with the level seen, so a lost alert, a
lost order or a restart of either plane is mended by the next tick.
"""

import asyncio
import logging
import time
import zlib
from collections.abc import Callable

from alerts.decide import decide
from alerts.firing import Firing
from alerts.forecast import History, Load, kept_s, load_of
from alerts.ladder import LADDER, Event, Ladder, Mode, Move, Peak, rebuild
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
from redline.control.ladder_events import KINDS, MODE, ModeSet, kind_of, read
from redline.control.ladder_view import view
from rollout.dataplane import DataPlane, DataPlaneError
from rollout.ledger import Ledger

_LOST_S = 5.0  # ticks further apart, or clocks that part by more, saw nothing of the time between
_PEAK_S, _HIGHER = 300.0, 1.1  # a peak is journalled so often, and when it is so much higher
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
        self._ledger = Ledger(journal, leader_epoch)
        self._writing = asyncio.Lock()
        self._dataplane = dataplane
        self._lines = lines
        self._keep_s = kept_s(lines.ladder)
        self._on_move = on_move
        self._clock = clock
        self._wall = wall
        self._ladders: dict[str, Ladder] = {}
        self._histories: dict[str, History] = {}
        self._ticked: tuple[float, float] | None = None  # of the last tick, by both clocks
        self._versions: dict[str, str] = {}  # of the residents that were last seen
        self._ordered_at: dict[tuple[str, SessionClass], float] = {}
        self._told: dict[str, set[tuple[Part, int]]] = {}
        self._peaks: dict[str, Peak] = {}  # that were journalled last
        mode = journal.last(MODE)
        self.mode = Mode.LIVE if mode is None else mode.read_as(ModeSet).mode
        self._events = [read(entry) for entry in journal.read(kinds=list(KINDS), limit=None)]

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
        version, now = self._version(order.resident), self._wall()
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
        await self._command(override)
        return self._view(order.resident, version)

    async def release(self, order: ReleaseOrder) -> LadderStatus:
        """Hold it by hand no longer: its ladder goes on from there. Raises as `hold` does."""
        version, now = self._version(order.resident), self._wall()
        if self._ladder(version, now).override is None:
            raise OverrideError(f"nothing holds {order.resident!r} by hand")
        ended = OverrideEnded(at=now, version=version, actor=order.actor, reason=order.reason)
        await self._command(ended)
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
            self._versions = {each.name: each.version for each in observed.residents}
        residents = () if observed is None else observed.residents
        was_away = self._was_away()
        self._lose_sight(set(self._ladders) - {each.version for each in residents})
        for resident in residents:
            # Nobody watches a resident that answers nothing: quiet proves nothing there.
            seen = firing if resident.state is ResidentState.READY else None
            await self._note(resident, tables)
            try:
                await self._keep(resident, await self._decide(resident, seen, was_away=was_away))
            except DataPlaneError as err:
                log.warning("the level is not ordered: %s", err, extra={"resident": resident.name})

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
        now = self._wall()
        for version in versions:
            unseen = decide(self._ladders[version], None, self._history(version), now, self._lines)
            self._ladders[version] = unseen.ladder

    async def _catch_up(self) -> None:
        """Journal a freeze that could not be when it was ordered."""
        if not self._ledger.behind:
            return
        try:
            async with self._writing:
                await asyncio.to_thread(self._ledger.catch_up)
        except JournalUnwritable as err:
            log.warning("the freeze is not journalled yet: %s", err)

    async def _note(self, resident: ResidentStatus, tables: Tables | None) -> None:
        load = load_of(
            resident.version,
            tables,
            self._lines.latency.min_count,
            busy_share=resident.busy_share,
            native_bytes=resident.live_native_bytes,
        )
        history = self._history(resident.version)
        self._histories[resident.version] = history.noted(self._wall(), load, self._keep_s)
        await self._note_peak(resident.version, load.per_s, self._wall())

    async def _note_peak(self, version: str, per_s: float | None, now: float) -> None:
        """Journal the load that a degraded version must bear once a rung is given back, about
        every five minutes: a successor in a trough must not forget it."""
        if not per_s or self._ladder(version, now).level == Level():
            return
        told = self._peaks.get(version)
        is_known = told is not None and 0.0 <= now - told.at < _PEAK_S
        if told is None or not is_known or per_s > _HIGHER * told.per_s:
            self._peaks[version] = peak = Peak(at=now, version=version, per_s=per_s)
            async with self._writing:
                await self._record(peak, LADDER, can_wait=True)

    async def _decide(
        self, resident: ResidentStatus, firing: tuple[Firing, ...] | None, *, was_away: bool
    ) -> Ladder:
        """The resident's ladder once this tick's moves are journalled. None follows a freeze."""
        version, now = resident.version, self._wall()
        async with self._writing:
            await self._end_override(version, now)
            ladder, history = self._ladder(version, now), self._history(version)
            decision = decide(
                ladder, firing, history, now, self._lines, mode=self.mode, was_away=was_away
            )
            if decision.measured is not None:
                await self._record(decision.measured, LADDER, can_wait=True)
            self._ladders[version] = decision.ladder
            if decision.dry_run:
                self._tell(version, decision.moves)
                return decision.ladder
            try:
                for move in decision.moves:
                    await self._record(move, LADDER)
                    self._on_move(move)
            except JournalUnwritable as err:
                log.error("a move is refused: %s", err, extra={"resident": resident.name})
                self._ladders[version] = self._rebuilt(version, now)
        return self._ladders[version]

    def _tell(self, version: str, moves: tuple[Move, ...]) -> None:
        """In a dry run: log what would be done, once for as long as it stays the same."""
        told, self._told[version] = (
            self._told.get(version, set()),
            {(m.part, m.rung) for m in moves},
        )
        for move in moves:
            if (move.part, move.rung) not in told:
                words = "dry run: %s would take its %s to rung %d (%s)"
                log.info(words, version, move.part, move.rung, move.reason)

    # ------------------------------------------------------------ the journal
    async def _command(self, event: Override | OverrideEnded) -> None:
        """Durable before it acts."""
        async with self._writing:
            await self._record(event, event.actor)
            ladder = self._ladder(event.version, event.at)
            self._ladders[event.version] = ladder.after(event, self._lines.ladder)

    async def _end_override(self, version: str, now: float) -> None:
        """Note that an override's time has passed. It is over even where that cannot be written."""
        ladder = self._ladder(version, now)
        held = ladder.override
        if held is None or now < held.until:
            return
        ended = OverrideEnded(at=now, version=version, actor=LADDER, reason="its time is over")
        await self._record(ended, LADDER, can_wait=True)
        self._ladders[version] = ladder.after(ended, self._lines.ladder)

    async def _record(self, event: Event, actor: str, *, can_wait: bool = False) -> None:
        """Durable before it acts. An unwritable journal refuses a move: it is not urgent. What is
        so in any case can wait until there is room."""
        write = self._ledger.write_or_keep if can_wait else self._ledger.write
        await asyncio.to_thread(write, kind_of(event), actor, event)
        self._events.append(event)

    def _ladder(self, version: str, now: float) -> Ladder:
        return self._ladders.get(version) or self._rebuilt(version, now)

    def _rebuilt(self, version: str, now: float) -> Ladder:
        """The ladder as the journal has it."""
        return rebuild(version, self._events, now, self._lines.ladder)

    def _history(self, version: str) -> History:
        """What is known of a version's load; after a restart, what its moves and peaks tell."""
        if version in self._histories:
            return self._histories[version]
        history = History()
        for event in self._events:
            if event.version != version:
                continue
            if isinstance(event, Move):
                history = history.noted(event.at, event.seen, self._keep_s)
            elif isinstance(event, Peak):
                history = history.noted(event.at, Load(per_s=event.per_s), self._keep_s)
        return history

    def _version(self, resident: str) -> str:
        if resident not in self._versions:
            there = ", ".join(self._versions) or "none that answers"
            raise OverrideError(f"no resident is called {resident!r}; there are: {there}")
        return self._versions[resident]

    def _view(self, resident: str, version: str) -> LadderStatus:
        now = self._wall()
        ladder = self._ladder(version, now)
        return view(resident, ladder, self._history(version), now, self._lines)

    # ------------------------------------------------------------ orders
    async def _keep(self, resident: ResidentStatus, ladder: Ladder) -> None:
        """See that the levels are held: change them, or renew their leases at a third of their
        length. Sessions that share a level share an order."""
        now = self._wall()
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
        last, held = ladder.last_moved(), ladder.override
        by_hand = held is not None and bool(set(held.classes) & set(classes))
        order = LadderOrder(
            leader_epoch=self._ledger.leader_epoch,
            operation_id=operation,
            resident=resident.name,
            classes=tuple(classes),
            level=level,
            lease_s=jittered(self._lines.ladder.lease_s, f"{resident.name} {operation}"),
            actor=held.actor if held is not None and by_hand else LADDER,
            reason=held.reason if held is not None and by_hand else last.why or "full fidelity",
            evidence="" if by_hand else last.evidence,
        )
        await self._dataplane.set_level(order)
        for each in classes:
            self._ordered_at[resident.name, each] = self._clock()


def jittered(lease_s: float, operation: str) -> float:
    """A lease a little longer or shorter, the same for the same operation."""
    share = zlib.crc32(operation.encode()) / 0xFFFFFFFF
    return lease_s * (1.0 + _JITTER * (2.0 * share - 1.0))
