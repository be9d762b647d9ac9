"""A rollout of a model that A has yet to load, while B serves."""

import pytest

from monitors.journal import JournalUnwritable
from monitors.labels import Phase
from monitors.preparing import LoadStage
from rollout.commands import CommandRefused
from rollout.proposal import Wishes
from tests.unit.rollout.world import Killed, World

MODEL = "/models/v3"


async def begin(world: World) -> None:
    await world.controller.tick()
    plan, _ = await world.controller.propose(Wishes(model=MODEL))
    assert (plan.version, plan.canary) == ("v3", "a")
    await world.controller.start(plan, "ann")


async def test_a_rollout_loads_its_model_and_goes_on_with_that(world: World) -> None:
    await begin(world)
    for _ in range(3):
        await world.step()
        assert world.status.phase is Phase.PREPARE
        assert f"A loads {MODEL}: checking" in world.status.reasons[0]
    world.plane.start_model("a")
    await world.step()
    assert f"A loads {MODEL}: starting" in world.status.reasons[0]
    world.plane.end_load("a")
    for _ in range(3):
        await world.step()
    assert (world.status.phase, world.plane.canary_weight) == (Phase.WARMUP, 5)
    assert world.plane.orders.count("load") == 1
    world.faulty(12)
    await world.step()
    assert world.status.quarantined == ("sha256:v3",), "what it loaded is what is to blame"


async def test_a_hurry_is_passed_on(world: World) -> None:
    await world.controller.tick()
    for hurry in (False, True):
        plan, _ = await world.controller.propose(Wishes(model=MODEL, hurry=hurry))
        assert plan.model is not None
        assert plan.model.hurry is hurry


async def test_a_path_that_the_data_plane_refuses_starts_nothing(world: World) -> None:
    world.plane.refuses_models = "no such folder"
    with pytest.raises(CommandRefused, match="/models/v3: no such folder"):
        await begin(world)
    assert world.status.phase is Phase.IDLE
    world.crash()
    assert world.status.phase is Phase.IDLE, "that it was refused is in the journal, too"


async def test_a_model_that_is_refused_later_ends_the_rollout_in_words(world: World) -> None:
    await begin(world)
    world.plane.end_load("a", refusal="v3: its weights are damaged")
    await world.step()
    assert (world.status.phase, world.plane.canary_weight) == (Phase.IDLE, 0)
    assert "its weights are damaged" in world.status.reasons[0]
    assert world.plane.residents["a"].version == "v2"
    await world.start()
    assert world.status.phase is Phase.CANARY, "A may still be rolled out as it was"


async def test_weights_under_quarantine_do_not_come_back_by_another_path(world: World) -> None:
    await begin(world)
    world.plane.end_load("a")
    for _ in range(2):
        await world.step()
    world.faulty(12)
    await world.step()
    await begin(world)
    assert world.status.phase is Phase.PREPARE, "by its path alone nobody can tell"
    world.plane.end_load("a")
    await world.step()
    assert (world.status.phase, world.plane.canary_weight) == (Phase.QUARANTINED, 0)


async def test_the_order_is_given_again_to_a_data_plane_that_forgot_it(world: World) -> None:
    await begin(world)
    world.crash()
    world.plane.residents["a"].loading = None
    await world.step()
    loading = world.plane.residents["a"].loading
    assert loading is not None
    assert loading.stage is LoadStage.CHECKING
    assert world.plane.orders.count("load") == 2
    world.plane.residents["a"].loading = None
    world.plane.refuses_models = "is gone"
    await world.step()
    assert world.status.phase is Phase.IDLE
    assert "is gone" in world.status.reasons[0]


@pytest.mark.parametrize("lost", ["lose_orders", "lose_acks"])
async def test_a_lost_order_or_answer_is_made_good_for(world: World, lost: str) -> None:
    await world.controller.tick()
    plan, _ = await world.controller.propose(Wishes(model=MODEL))
    setattr(world.plane, lost, 1)
    status = await world.controller.start(plan, "ann")
    assert status.phase is Phase.PREPARE
    await world.step()
    assert world.plane.orders.count("load") == 1
    world.plane.end_load("a")
    for _ in range(3):
        await world.step()
    assert world.status.phase is Phase.WARMUP


async def test_nothing_is_loaded_that_is_not_in_the_journal(world: World) -> None:
    world.journal.writable = False
    with pytest.raises(JournalUnwritable):
        await begin(world)
    assert "load" not in world.plane.orders
    assert world.status.phase is Phase.IDLE


async def test_a_control_plane_that_dies_before_its_order_leaves_a_rollout_that_goes_on(
    world: World,
) -> None:
    world.journal.kill_after = 1
    with pytest.raises(Killed):
        await begin(world)
    assert "load" not in world.plane.orders
    world.crash()
    await world.step()
    assert world.plane.orders.count("load") == 1
    assert world.status.phase is Phase.PREPARE


@pytest.mark.parametrize("held", [False, True])
async def test_a_rollout_that_has_given_nobody_to_a_is_called_off_and_bars_nothing(
    world: World, held: bool
) -> None:
    await begin(world)
    if held:
        await world.controller.hold("ann")
    status = await world.controller.rollback("ann", "the wrong model")
    assert (status.phase, status.quarantined, status.rollback) == (Phase.IDLE, (), None)
    assert status.reasons[0].startswith("the wrong model")
    assert not world.controller.status().serves
    world.plane.end_load("a")
    await world.step()
    await world.start()
    assert world.status.phase is Phase.CANARY


async def test_a_freeze_orders_no_load(world: World) -> None:
    await begin(world)
    await world.controller.freeze("ann")
    world.plane.residents["a"].loading = None
    await world.step()
    assert world.plane.orders.count("load") == 1
