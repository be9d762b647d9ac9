"""The runner for real: APScheduler's ticks, the poll task, and an orderly end."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from monitors.labels import Phase
from monitors.redlines import RolloutLines
from rollout.runner import RolloutRunner
from tests.support.journals import ScratchJournal
from tests.unit.rollout.world import LINES, World

QUICK = LINES.model_copy(
    update={"rollout": RolloutLines(bake_s=60.0, warmup_requests=2, lease_renewal_s=0.05)}
)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    journal = ScratchJournal()
    world = World(journal, QUICK)
    runner = RolloutRunner(world.controller, tick_s=0.05)
    await runner.open()
    yield world
    await runner.close()
    journal.close()


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError("it never came to be")


async def test_ticks_see_the_bake_end_and_evidence_is_acted_on_by_itself(world: World) -> None:
    plan, _ = await world.controller.propose()
    await world.controller.start(plan, "ann")
    await until(lambda: world.status.phase is Phase.WARMUP)
    world.good(3)
    await until(lambda: world.status.phase is Phase.CANARY)
    world.clock.advance(61.0)
    await until(lambda: world.status.phase is Phase.HOLD)
    world.faulty(12)
    await until(lambda: world.status.phase is Phase.QUARANTINED)
    assert world.plane.weight("b") == 100


async def test_a_reader_that_fails_is_not_left_unnoticed() -> None:
    journal = ScratchJournal()
    world = World(journal, QUICK)
    runner = RolloutRunner(world.controller, tick_s=0.05)

    async def breaks(_: float) -> bool:
        raise RuntimeError("broken evidence")

    world.controller.poll = breaks  # type: ignore[method-assign]
    await runner.open()
    with pytest.raises(RuntimeError, match="broken evidence"):
        await asyncio.wait_for(runner.watch(), 5)
    await runner.close()
    journal.close()


async def test_renewals_keep_the_canarys_lease(world: World) -> None:
    await world.start()
    ends = world.plane.lease_ends
    world.clock.advance(5.0)
    await until(lambda: world.plane.lease_ends > ends)


async def test_an_outage_is_waited_out(world: World) -> None:
    world.plane.reachable = False
    await asyncio.sleep(0.2)
    world.plane.reachable = True
    for _ in range(2):
        world.clock.advance(1.0)
        world.good(1, resident="b")
    await until(lambda: world.status.requests_per_s is not None)
