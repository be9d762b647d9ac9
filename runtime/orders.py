"""The control plane's orders, carried out: route, level, drain, flush, probe, drill (DESIGN 8).

Every order may be repeated. What an order fences is on the disk before it is acknowledged.
"""

import asyncio
import os
import signal
from collections import Counter
from contextlib import aclosing, suppress
from dataclasses import dataclass
from uuid import uuid4

import msgspec

from monitors.contract import (
    DrainMode,
    DrainOrder,
    DrainReport,
    DrillKind,
    DrillOrder,
    DrillReport,
    FlushOrder,
    FlushReceipt,
    LadderOrder,
    Name,
    ProbeOrder,
    ProbeReport,
    Route,
)
from monitors.preparing import LoadOrder, RehearsalOrder, RehearsalReport
from runtime.book import REHEARSED
from runtime.flight import Fate
from runtime.flights import Flights
from runtime.loads import Loads
from runtime.plane import DataPlane
from runtime.residents.port import Failed, Finished, ResidentError, StaleCount
from runtime.router import Fence, OrderRefused
from runtime.supervisor import Life
from runtime.witness import Witness

PROBE_TIMEOUT_S = 30.0


class DrillsOff(RuntimeError):
    """This data plane was started without drills."""


class Orders:
    """Carries out orders, one change of the fence at a time.

    All raise `OrderRefused` for a stale leader and `UnknownResident` for a name that is not
    here; `OSError` where the disk does not take the fence, `ResidentError` where the engine
    fails.
    """

    def __init__(self, plane: DataPlane, flights: Flights) -> None:
        self._plane = plane
        self._flights = flights
        self._fencing = asyncio.Lock()
        self._loads = Loads(plane, flights, self._raise_epoch)

    async def route(self, route: Route) -> None:
        """Route by `route`, and start its lease anew."""
        router = self._plane.router
        async with self._fencing:
            fence = router.fence_after(route, self._plane.ready())
            if router.retreats(route):
                router.take(fence)  # first, whatever the disk says
            await self._store(fence)
            router.take(fence)
            if route.canary is not None and route.canary not in self._plane.ready():
                router.drop_canary()  # it died while the disk was written

    async def level(self, order: LadderOrder) -> None:
        """Hold a resident at a level; the engine follows within a moment."""
        await self._admit(order.leader_epoch, order.resident)
        if self._plane.levels.order(order):
            why = f"{order.reason}; {order.evidence}" if order.evidence else order.reason
            self._plane.note_change(order.resident, f"level by {order.actor}: {why}")

    async def drain(self, name: Name, order: DrainOrder) -> DrainReport:
        """Empty a resident that has no weight of what is in flight.

        Whether its clients have read all that it said does not matter: it may be flushed.
        """
        await self._admit(order.leader_epoch, name)
        weight = self._plane.router.weight(name)
        if weight:
            raise OrderRefused(f"{name!r} still has {weight} % of the traffic: route it away first")
        await self._flights.mirror.end(name)  # nobody waits for their answers
        fates: Counter[Fate] = Counter()
        if order.mode is DrainMode.ABORT:
            fates.update(flight.cut_over() for flight in self._flights.on(name))
        staying = [flight.left for flight in self._flights.on(name)]
        if staying:
            await asyncio.wait(staying, timeout=order.timeout_s)
        if order.mode is DrainMode.FINISH:
            fates[Fate.FINISHED] = sum(leaving.done() for leaving in staying)
        return DrainReport(
            resident=name,
            remaining=len(self._flights.on(name)),
            finished=fates[Fate.FINISHED],
            aborted=fates[Fate.ABORTED] + fates[Fate.UNKEPT],
            replayed=fates[Fate.REPLAYED],
            unkept=fates[Fate.UNKEPT],
        )

    async def flush(self, name: Name, order: FlushOrder) -> FlushReceipt:
        """Empty every tier of a resident of what is older than the epoch; killing it if need be."""
        self._plane.router.require(name)
        async with self._fencing:
            fence = self._plane.router.admit(order.leader_epoch)
            epoch = max(order.min_pool_epoch, self._plane.min_pool_epoch(name))
            await self._store_epoch(fence, name, epoch)
        self._plane.witnesses.flushed(name)
        receipt = await self._empty(name, epoch)
        self._plane.saw_pool_epoch(name, receipt.new_epoch)
        if receipt.complete and receipt.new_epoch > receipt.old_epoch:
            await self._plane.verdicts.settled(name)  # what it said before is not of the new epoch
            self._plane.book.flushed(self._plane.versions[name])
        return receipt

    async def probe(self, name: Name, order: ProbeOrder) -> ProbeReport:
        """Prove a flush: a prompt that was cached before it must miss, and nothing be left."""
        await self._admit(order.leader_epoch, name)
        resident = self._plane.supervisors[name].resident
        witness = self._plane.witnesses.of_flush(name)
        replayed = _Replay() if witness is None else await _replay(resident, witness)
        stale = await resident.count_stale(order.pool_epoch)
        epoch = (await resident.observe()).pool_epoch
        wanting = _shortcomings(order.pool_epoch, epoch, stale, replayed)
        seen = (
            "no prompt that its cache keeps was served before the flush"
            if witness is None
            else "the witness missed"
        )
        return ProbeReport(
            resident=name,
            pool_epoch=epoch,
            witness_tokens=None if witness is None else witness.prompt_tokens,
            cached_tokens=replayed.cached_tokens,
            stale_pages=stale.pages,
            stale_host_pages=stale.host_pages,
            stale_encoder_outputs=stale.encoder_outputs,
            stale_talker_states=stale.talker_states,
            verified=not wanting,
            detail="; ".join(wanting) or f"{seen}; nothing older than {order.pool_epoch} is left",
        )

    async def drill(self, name: Name, order: DrillOrder) -> DrillReport:
        """Break a resident on purpose. Raises `DrillsOff`."""
        self._plane.router.require(name)
        if not self._plane.settings.drills:
            raise DrillsOff("drills are off: start the data plane with `drills: true`")
        supervisor = self._plane.supervisors[name]
        resident = supervisor.resident
        if order.kind is DrillKind.KILL and order.seconds and supervisor.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(supervisor.pid, signal.SIGKILL)
            detail = f"process {supervisor.pid} was killed"
            return DrillReport(resident=name, kind=order.kind, running=True, detail=detail)
        return await resident.drill(order)

    async def rehearse(self, name: Name, order: RehearsalOrder) -> RehearsalReport:
        """Put a rehearsed breach of a resident into the evidence log, as operator traffic."""
        await self._admit(order.leader_epoch, name)
        for number in range(order.requests):
            at = f"{order.rehearsal}-{number}"
            self._plane.book.rehearsed(
                self._plane.stamp(name, at, at, operator=True), order.rehearsal
            )
        return RehearsalReport(
            resident=name, rehearsal=order.rehearsal, entries=REHEARSED * order.requests
        )

    async def load(self, name: Name, order: LoadOrder) -> None:
        """Begin to load another model into a resident that serves nobody.

        Raises `ModelRefused` for what can be told at once to be no such model.
        """
        await self._admit(order.leader_epoch, name)
        self._loads.begin(name, order)

    async def _raise_epoch(self, name: Name) -> None:
        """Whatever a resident's pool holds misses from now on."""
        async with self._fencing:
            plane = self._plane
            epoch = max(plane.min_pool_epoch(name), plane.pool_epoch(name) or 0) + 1
            await self._store_epoch(plane.router.fence, name, epoch)

    async def _store_epoch(self, fence: Fence, name: Name, epoch: int) -> None:
        epochs = {**fence.min_pool_epochs, name: epoch}
        fence = msgspec.structs.replace(fence, min_pool_epochs=epochs)
        self._plane.router.fence = fence
        await self._store(fence)

    async def _admit(self, leader_epoch: int, name: Name) -> None:
        self._plane.router.require(name)
        async with self._fencing:
            fence = self._plane.router.admit(leader_epoch)
            self._plane.router.fence = fence
            await self._store(fence)

    async def _store(self, fence: Fence) -> None:
        loop, plane = asyncio.get_running_loop(), self._plane
        await loop.run_in_executor(plane.fence_writer, plane.fence_file.store, fence)

    async def _empty(self, name: Name, epoch: int) -> FlushReceipt:
        if self._plane.is_ready(name):
            try:
                return await self._plane.supervisors[name].resident.flush(epoch)
            except ResidentError:
                if self._plane.router.weight(name):
                    raise  # it serves: killing it would be worse than an unproved flush
        return await self._restart(name, epoch)

    async def _restart(self, name: Name, epoch: int) -> FlushReceipt:
        """A process that is gone holds nothing; the proof is the new one, at the epoch."""
        old, supervisor = self._plane.snapshots.get(name), self._plane.supervisors[name]
        ready = await supervisor.restart()
        if ready.pool_epoch < epoch:  # it was started before the order came
            return await supervisor.resident.flush(epoch)
        now = self._plane.clock()
        cells = () if old is None else old.cells
        return FlushReceipt(
            resident=name,
            old_epoch=max(0, epoch - 1) if old is None else old.pool_epoch,
            new_epoch=ready.pool_epoch,
            pages=0,  # swept by nobody: they went with the process
            host_pages=0,
            encoder_outputs=0,
            talker_states=0,
            bytes=sum(c.live_bytes + c.evictable_bytes + c.host_bytes for c in cells),
            invalidated_at=now,
            emptied_at=now,
            complete=ready.pool_epoch >= epoch,
        )


@dataclass(frozen=True)
class _Replay:
    """What the witness found in the cache, under the keys of now and of its own epoch; `failure`:
    why that is not known."""

    cached_tokens: int | None = None
    stale_tokens: int | None = None
    failure: str = ""


async def _replay(resident: Life, witness: Witness) -> _Replay:
    probe = witness.probe(f"probe-{uuid4().hex}")
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            async with aclosing(resident.generate(probe, witness.arrays)) as events:
                async for event in events:
                    if isinstance(event, Finished):
                        return _Replay(event.cached_tokens, event.stale_tokens)
                    if isinstance(event, Failed):
                        return _Replay(failure=f"the witness was not replayed: {event.message}")
    except TimeoutError:
        return _Replay(failure=f"the witness got no answer within {PROBE_TIMEOUT_S:.0f} s")
    return _Replay(failure="the witness got no ending")


def _shortcomings(wanted: int, epoch: int, stale: StaleCount, replayed: _Replay) -> list[str]:
    """What a flush to `wanted` lacks; empty: it is verified."""
    left = stale.pages + stale.host_pages + stale.encoder_outputs + stale.talker_states
    found = [replayed.failure] if replayed.failure else []
    if epoch < wanted:
        found.append(f"the engine is at epoch {epoch}")
    if left:
        found.append(f"{left} things of older epochs are left")
    if replayed.cached_tokens:
        found.append(f"the witness found {replayed.cached_tokens} tokens in the cache")
    if replayed.stale_tokens:
        found.append(f"it found {replayed.stale_tokens} tokens under the keys of before the flush")
    return found
