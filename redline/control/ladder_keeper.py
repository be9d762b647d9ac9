"""Keeps each resident on the ladder's level: what fires in, journalled moves and orders out.

Levels, not edges: every tick compares the level wanted with the level seen, so a lost alert, a
lost order or a restart of either plane is mended by the next tick.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import httpx
import msgspec

from alerts.evaluator import Evaluator, prometheus_is_silent
from alerts.firing import Firing
from alerts.ladder import Forecast, Ladder, Mode, Move, decide, rebuild
from alerts.receiver import AlertBook
from monitors.contract import KvRung, LadderOrder, Observed, ResidentStatus, Wire
from monitors.journal import Journal, JournalUnwritable
from monitors.labels import ResidentState
from monitors.redlines import RedLines
from monitors.tables import Tables, from_json
from rollout.dataplane import DataPlane, DataPlaneError

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
        tables: Callable[[], Awaitable[Tables | None]],
        book: AlertBook,
        lines: RedLines,
        leader_epoch: int,
        *,
        prometheus: bool,
        on_move: Callable[[Move], None],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._journal = journal
        self._dataplane = dataplane
        self._tables = tables
        self._book = book
        self._evaluator = Evaluator(lines)
        self._lines = lines
        self._leader_epoch = leader_epoch
        self._prometheus = prometheus
        self._on_move = on_move
        self._clock = clock
        self._wall = wall
        self.observed: Observed | None = None  # at the last tick; None: it did not answer
        self._ladders: dict[str, Ladder] = {}
        self._ordered_at: dict[str, float] = {}
        mode = journal.last(MODE)
        self.mode = Mode.LIVE if mode is None else mode.read_as(ModeSet).mode
        self._moves = [entry.read_as(Move) for entry in journal.read(kinds=[MOVED], limit=10_000)]

    @property
    def rule_source(self) -> str:
        """Who evaluates the rules now: `prometheus`, or `embedded` while it is silent."""
        age = self._book.heartbeat_age(self._clock())
        silent = prometheus_is_silent(age, self._lines.alerts)
        return "embedded" if silent or not self._prometheus else "prometheus"

    def set_mode(self, mode: Mode, actor: str) -> None:
        """Freeze, thaw or run dry; journalled, so it outlives this process."""
        self._journal.append(MODE, actor, ModeSet(mode=mode), self._leader_epoch)
        self.mode = mode

    async def tick(self) -> tuple[Firing, ...] | None:
        """One round. What fires, or None where nobody can tell. Raises `DataPlaneError`."""
        self.observed = None
        observed = self.observed = await self._dataplane.observe()
        tables = await self._tables()
        embedded = self._evaluator.tick(tables, self._clock(), self._wall())
        firing = self._book.firing(self._clock()) if self.rule_source == "prometheus" else embedded
        for resident in observed.residents:
            if resident.state is ResidentState.READY:
                await self._keep(resident, firing, tables)
        return firing

    async def _keep(
        self,
        resident: ResidentStatus,
        firing: tuple[Firing, ...] | None,
        tables: Tables | None,
    ) -> None:
        now = self._wall()
        ladder = self._ladders.get(resident.version) or rebuild(
            resident.version, self._moves, now, self._lines.ladder
        )
        decision = decide(
            ladder,
            firing,
            now,
            self._lines,
            mode=self.mode,
            forecast=_forecast(resident, tables),
        )
        if not decision.dry_run:
            for move in decision.moves:
                await self._record(move)
        self._ladders[resident.version] = decision.ladder
        if self._needs_order(resident, decision.ladder):
            await self._order(resident, decision.ladder)

    async def _record(self, move: Move) -> None:
        """Durable before it acts. An unwritable journal refuses the move: it is not urgent."""
        await asyncio.to_thread(self._journal.append, MOVED, LADDER, move, self._leader_epoch)
        self._moves.append(move)
        self._on_move(move)

    def _needs_order(self, resident: ResidentStatus, ladder: Ladder) -> bool:
        """A level to change, or a lease that runs: renewed at a third of its length."""
        if resident.level != ladder.level:
            return True
        is_degraded = any(stair.rung for stair in ladder.stairs.values())
        ordered_at = self._ordered_at.get(resident.name)
        due = ordered_at is None or (self._clock() - ordered_at >= self._lines.ladder.lease_s / 3)
        return is_degraded and due

    async def _order(self, resident: ResidentStatus, ladder: Ladder) -> None:
        last = next((m for m in reversed(self._moves) if m.version == ladder.version), None)
        order = LadderOrder(
            leader_epoch=self._leader_epoch,
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


class TableReader:
    """`GET /tables` of the data plane; None where it does not answer."""

    def __init__(self, client: httpx.AsyncClient, token: str) -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {token}"}

    async def read(self) -> Tables | None:
        try:
            answer = await self._client.get("/tables", headers=self._headers, timeout=2.0)
            answer.raise_for_status()
            return from_json(answer.content)
        except (httpx.HTTPError, msgspec.DecodeError) as err:
            log.warning("the tables cannot be read: %s", err)
            return None


async def run(
    keeper: LadderKeeper,
    period_s: float,
    seen: Callable[[tuple[Firing, ...] | None], None],
) -> None:
    """Tick for ever. A data plane that is away, or a full disk, is met again next tick."""
    while True:
        try:
            seen(await keeper.tick())
        except (DataPlaneError, JournalUnwritable) as err:
            seen(None)
            log.warning("no ladder tick: %s", err)
        await asyncio.sleep(period_s)
