"""`kill -9` at every entry of the journal: the next controller ends where this one would have."""

from collections.abc import Iterator

import pytest

from monitors.journal import Journal
from monitors.labels import Phase
from rollout.rollback import Step
from tests.support.journals import ScratchJournal
from tests.unit.rollout.world import QUICK, Killed, World

_ROLLBACK_ENTRIES = 1 + 2 * (len(Step) - 1) + 1  # the intent, two a step, the outcome


@pytest.fixture
def journal() -> Iterator[Journal]:
    journal = ScratchJournal()
    yield journal
    journal.close()


async def _until_killed(world: World, seconds: int) -> bool:
    try:
        for _ in range(seconds):
            await world.step()
    except Killed:
        world.crash()
        return True
    return False


@pytest.mark.parametrize("nth", range(1, _ROLLBACK_ENTRIES + 1))
@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_rollback_ends_the_same_wherever_the_process_dies(
    journal: Journal, side: str, nth: int
) -> None:
    world = World(journal)
    await world.start()
    world.hung(12)
    setattr(world.journal, f"kill_{side}", world.journal.written + nth)
    assert await _until_killed(world, 3), "the rollback writes as many entries as this test says"
    await world.step()
    status = world.status
    assert (status.phase, status.quarantined) == (Phase.QUARANTINED, ("sha256:v2",))
    assert world.plane.weight("b") == 100
    assert world.plane.residents["a"].cached == 0
    assert status.rollback is not None
    assert status.rollback.done
    assert status.rollback.probe is not None
    assert status.rollback.probe.verified


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_promotion_ends_the_same_wherever_the_process_dies(
    journal: Journal, side: str
) -> None:
    for nth in range(1, 60):
        world = World(ScratchJournal(), QUICK)
        await world.start()
        world.good(40)
        world.canary_requests, world.stable_requests = 1, 5
        setattr(world.journal, f"kill_{side}", world.journal.written + nth)
        killed = await _until_killed(world, 80)
        for _ in range(80):
            await world.step()
        assert world.status.phase is Phase.STABLE
        assert (world.plane.route.stable, world.plane.weight("a")) == ("a", 100)
        world.journal.journal.close()
        if not killed:
            return
    raise AssertionError("the rollout never wrote its last entry")


async def test_a_rollback_that_was_done_is_not_done_again(journal: Journal) -> None:
    world = World(journal)
    await world.start()
    world.hung(12)
    await world.step()
    orders = list(world.plane.orders)
    world.crash()
    await world.step()
    assert world.plane.orders == orders
    assert world.status.phase is Phase.QUARANTINED
