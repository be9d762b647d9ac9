"""Keeps each resident on the ladder's level: what fires in, journalled moves and orders out.

Levels, not edges: every tick compares the level wanted with the level seen, so a lost alert, a
lost order or a restart of either plane is mended by the next tick.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from alerts.firing import Firing
from alerts.ladder import Forecast, Ladder, Mode, Move, Part, decide, rebuild
from monitors.contract import KvRung, LadderOrder, Observed, ResidentStatus, Wire
from monitors.journal import Journal, JournalUnwritable
from monitors.labels import ResidentState
from monitors.redlines import RedLines
from monitors.tables import Tables
from rollout.dataplane import DataPlane, DataPlaneError
from rollout.ledger import Ledger

MOVED, MODE = "ladder.moved", "ladder.mode"
LADDER = "ladder"

log = logging.getLogger(__name__)


class ModeSet(Wire, frozen=True):
    """Body of a `ladder.mode` entry."""

    mode: Mode


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
        self._on_move = on_move
        self._clock = clock
        self._wall = wall
        self._ladders: dict[str, Ladder] = {}
        self._ordered_at: dict[str, float] = {}
        self._told: dict[str, set[tuple[Part, int]]] = {}
        mode = journal.last(MODE)
        self.mode = Mode.LIVE if mode is None else mode.read_as(ModeSet).mode
        self._moves = [entry.read_as(Move) for entry in journal.read(kinds=[MOVED], limit=None)]

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
        for resident in () if observed is None else observed.residents:
            # Nobody watches a resident that answers nothing: quiet proves nothing there.
            seen = firing if resident.state is ResidentState.READY else None
            try:
                await self._keep(resident, await self._decide(resident, seen, tables))
            except DataPlaneError as err:
                log.warning("the level is not ordered: %s", err, extra={"resident": resident.name})

    async def _catch_up(self) -> None:
        """Journal a freeze that could not be when it was ordered."""
        if not self._ledger.behind:
            return
        try:
            async with self._writing:
                await asyncio.to_thread(self._ledger.catch_up)
        except JournalUnwritable as err:
            log.warning("the freeze is not journalled yet: %s", err)

    async def _decide(
        self,
        resident: ResidentStatus,
        firing: tuple[Firing, ...] | None,
        tables: Tables | None,
    ) -> Ladder:
        """The resident's ladder once this tick's moves are journalled. None follows a freeze."""
        version, now = resident.version, self._wall()
        forecast = _forecast(resident, tables)
        async with self._writing:
            ladder = self._ladders.get(version) or self._rebuilt(version, now)
            decision = decide(ladder, firing, now, self._lines, mode=self.mode, forecast=forecast)
            self._ladders[version] = decision.ladder
            if decision.dry_run:
                self._tell(version, decision.moves)
                return decision.ladder
            try:
                for move in decision.moves:
                    await self._record(move)
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

    def _rebuilt(self, version: str, now: float) -> Ladder:
        """The ladder as the journal has it."""
        return rebuild(version, self._moves, now, self._lines.ladder)

    async def _record(self, move: Move) -> None:
        """Durable before it acts. An unwritable journal refuses the move: it is not urgent."""
        await asyncio.to_thread(self._ledger.write, MOVED, LADDER, move)
        self._moves.append(move)
        self._on_move(move)

    async def _keep(self, resident: ResidentStatus, ladder: Ladder) -> None:
        """See that the level is held: change it, or renew its lease at a third of its length."""
        is_degraded = any(stair.rung for stair in ladder.stairs.values())
        ordered_at = self._ordered_at.get(resident.name)
        due = ordered_at is None or (self._clock() - ordered_at >= self._lines.ladder.lease_s / 3)
        if resident.level != ladder.level or (is_degraded and due):
            await self._order(resident, ladder)

    async def _order(self, resident: ResidentStatus, ladder: Ladder) -> None:
        last = next((m for m in reversed(self._moves) if m.version == ladder.version), None)
        order = LadderOrder(
            leader_epoch=self._ledger.leader_epoch,
            operation_id=f"{ladder.version}-{0.0 if last is None else last.at:.3f}",
            resident=resident.name,
            level=ladder.level,
            lease_s=self._lines.ladder.lease_s,
            actor=LADDER,
            reason="full fidelity" if last is None else last.reason,
        )
        await self._dataplane.set_level(order)
        self._ordered_at[resident.name] = self._clock()


def _forecast(resident: ResidentStatus, tables: Tables | None) -> Forecast:
    """A lower bound on the memory once the pool is native again: what it holds as int8 now.

    The p99 at the better media rung is unknown here: old requests say nothing about it.
    """
    if tables is None or resident.level.kv is KvRung.NATIVE:
        return Forecast()
    held = [row.gpu_mem_gb for row in tables.cache_summary if row.version == resident.version]
    return Forecast(live_gb=held[0] if held else None)
