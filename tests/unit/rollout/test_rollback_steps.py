"""One rollback, step by step: what is asked of the data plane and which answers prove nothing."""

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from monitors.contract import DrainOrder, DrainReport, FlushOrder, FlushReceipt, Observed, Route
from monitors.labels import Phase
from rollout.ledger import Ledger
from rollout.plan import Cause
from rollout.rollback import Incomplete, Progress, Rollback, RollbackOrder, Step, resume
from tests.support.journals import ScratchJournal
from tests.support.sim_dataplane import Clock, SimDataPlane
from tests.unit.rollout.world import World

ORDER = RollbackOrder(
    stable="b", canary="a", identity="sha256:v2", cause=Cause.LATENCY, quarantine=True,
    actor="rollout", reasons=("late",), route_epoch=4, drain_s=1.0,
)  # fmt: skip


class DoubtfulPlane(SimDataPlane):
    """Takes orders, and changes fields of its answers."""

    def __init__(self) -> None:
        super().__init__(Clock())
        self.seen: dict[str, Any] = {}
        self.receipt: dict[str, Any] = {}

    async def set_route(self, route: Route) -> Observed:
        return msgspec.structs.replace(await super().set_route(route), **self.seen)

    async def flush(self, resident: str, order: FlushOrder) -> FlushReceipt:
        return msgspec.structs.replace(await super().flush(resident, order), **self.receipt)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    journal = ScratchJournal()
    yield Ledger(journal, leader_epoch=1)
    journal.close()


@pytest.fixture
def plane() -> DoubtfulPlane:
    return DoubtfulPlane()


def rollback(plane: SimDataPlane, ledger: Ledger, order: RollbackOrder = ORDER) -> Rollback:
    return Rollback(resume(ledger, order), plane, ledger, lambda _: None)


async def test_the_steps_come_in_their_order_and_each_leaves_its_proof(
    plane: DoubtfulPlane, ledger: Ledger
) -> None:
    done = await rollback(plane, ledger).run()
    assert plane.orders == ["route", "drain finish", "flush", "probe"]
    assert done.proved == tuple(Step)
    assert done.route_epoch == 4
    assert done.drained is not None
    assert done.receipt is not None
    assert (done.receipt.old_epoch, done.receipt.new_epoch) == (1, 2)
    assert done.probe is not None
    assert done.probe.pool_epoch == 2


async def test_a_route_epoch_that_is_taken_is_overtaken(
    plane: DoubtfulPlane, ledger: Ledger
) -> None:
    old = msgspec.structs.replace(ORDER, route_epoch=1)
    done = await rollback(plane, ledger, old).run()
    assert done.route_epoch == plane.route.route_epoch == 4


@pytest.mark.parametrize("seen", [{"stable": "a"}, {"canary_weight": 5}, {"route_epoch": 3}])
async def test_an_acknowledgement_of_something_else_is_none(
    plane: DoubtfulPlane, ledger: Ledger, seen: dict[str, Any]
) -> None:
    plane.seen = seen
    with pytest.raises(Incomplete, match="cut_over: the data plane answered"):
        await rollback(plane, ledger).run()
    assert resume(ledger, ORDER).next_step is Step.CUT_OVER


@pytest.mark.parametrize("receipt", [{"complete": False}, {"new_epoch": 1}])
async def test_a_receipt_of_half_a_flush_is_none(
    plane: DoubtfulPlane, ledger: Ledger, receipt: dict[str, Any]
) -> None:
    plane.receipt = receipt
    with pytest.raises(Incomplete, match="flush to pool epoch 2"):
        await rollback(plane, ledger).run()
    plane.receipt = {}
    done = await rollback(plane, ledger).run()
    assert plane.orders.count("route") == 1, "what was proved is not done again"
    assert done.receipt is not None
    assert done.receipt.new_epoch == 3, "a repeated flush is to an epoch of its own"


async def test_a_newer_leader_is_not_argued_with(plane: DoubtfulPlane, ledger: Ledger) -> None:
    plane.leader_epoch = 2
    with pytest.raises(Incomplete, match="leader epoch 1 is stale"):
        await rollback(plane, ledger).run()
    assert plane.orders == []


async def test_the_rollback_before_this_one_proves_nothing_for_it(
    plane: DoubtfulPlane, ledger: Ledger
) -> None:
    await rollback(plane, ledger).run()
    second = msgspec.structs.replace(ORDER, route_epoch=9)
    assert resume(ledger, second) == Progress(order=second)
    assert resume(ledger, ORDER).done


class LatePlane(SimDataPlane):
    """The next order of a route is on its way until `arrive`."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.late = False
        self.sent, self.arrive = asyncio.Event(), asyncio.Event()

    async def set_route(self, route: Route) -> Observed:
        if self.late:
            self.late = False
            self.sent.set()
            await self.arrive.wait()
        return await super().set_route(route)


async def test_a_renewal_that_arrives_after_a_newer_order_changes_nothing() -> None:
    journal = ScratchJournal()
    world = World(journal)
    late = LatePlane(world.clock)
    world.plane = late
    world.crash()
    plan, _ = await world.controller.propose()
    await world.controller.start(plan, "ann")
    await world.controller.poll(0.0)  # brings the rehearsed breach
    late.late = True
    renewal = asyncio.create_task(world.controller.renew())
    await late.sent.wait()
    world.good(3)
    await world.controller.poll(0.0)
    late.arrive.set()
    await renewal
    assert world.status.phase is Phase.CANARY
    journal.close()


class SlowPlane(SimDataPlane):
    """Its drains wait until `go`."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.draining, self.go = asyncio.Event(), asyncio.Event()

    async def drain(self, resident: str, order: DrainOrder) -> DrainReport:
        self.draining.set()
        await self.go.wait()
        return await super().drain(resident, order)


async def test_ticks_during_a_drain_do_not_begin_a_second_rollback() -> None:
    journal = ScratchJournal()
    world = World(journal)
    slow = SlowPlane(world.clock)
    world.plane = slow
    world.crash()
    await world.start()
    world.hung(12)
    reader = asyncio.create_task(world.controller.poll(0.0))
    await slow.draining.wait()
    assert world.plane.weight("b") == 100, "the cut over did not wait for the drain"
    await world.controller.tick()
    await world.controller.renew()
    slow.go.set()
    await reader
    assert world.status.phase is Phase.QUARANTINED
    assert [order for order in slow.orders if order.startswith("drain")] == ["drain finish"]
    journal.close()
