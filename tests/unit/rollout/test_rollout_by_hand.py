"""A route that was set by hand wins: the rollout leaves it, says so, and still judges A."""

import msgspec
import pytest

from monitors.contract import Route
from monitors.labels import Phase
from rollout.store import EVIDENCE, SavedEvidence
from tests.unit.rollout.world import World


def by_hand(world: World, stable: str, weight: int) -> Route:
    canary = "b" if stable == "a" else "a"
    return msgspec.structs.replace(
        world.plane.route,
        leader_epoch=world.leader_epoch,
        route_epoch=world.plane.route.route_epoch + 1,
        stable=stable,
        canary=canary,
        canary_weight=weight,
    )


@pytest.mark.parametrize("how", ["tick", "renew"])
async def test_a_bake_leaves_a_route_that_was_set_by_hand(world: World, how: str) -> None:
    await world.promote()
    hand = by_hand(world, "a", 30)
    await world.plane.set_route(hand)
    for _ in range(3):
        await getattr(world.controller, how)()
    assert world.plane.route == hand
    assert world.status.phase is Phase.HOLD
    assert "A is left the stable one" in world.status.reasons[0]
    world.faulty(120)
    await world.step()
    assert world.status.phase is Phase.QUARANTINED, "a breach goes before everything"
    assert world.plane.weight("b") == 100


async def test_a_bake_that_was_undone_by_hand_is_not_taken_up_again(world: World) -> None:
    await world.promote()
    await world.plane.set_route(by_hand(world, "b", 0))
    for _ in range(3):
        await world.step()
    assert (world.plane.route.stable, world.plane.canary_weight) == ("b", 0)
    assert "A is held at 0" in world.status.reasons[0]


async def test_a_person_may_take_the_bake_up_again(world: World) -> None:
    await world.promote()
    await world.plane.set_route(by_hand(world, "a", 30))
    await world.step()
    await world.controller.resume("ann")
    assert (world.status.phase, world.plane.weight("a")) == (Phase.BAKE, 100)


async def test_what_a_hand_took_back_from_a_is_not_given_to_it_by_a_resume(world: World) -> None:
    await world.promote()
    for stable in ("a", "b"):
        await world.plane.set_route(by_hand(world, stable, 0))
        await world.step()
    assert not world.status.promoted
    await world.controller.resume("ann")
    assert (world.status.phase, world.plane.route.stable) == (Phase.CANARY, "b")
    assert world.plane.canary_weight == 5


# ---------------------------------------------------------------- before A has traffic
async def begun_without_b(world: World) -> None:
    await world.controller.tick()
    world.plane.kill("b")
    await world.controller.tick()
    plan, _ = await world.controller.propose()
    await world.controller.start(plan, "ann")


async def made_stable_while_it_prepares(world: World) -> None:
    """A rollout waits for B, and somebody has A serve meanwhile."""
    await begun_without_b(world)
    assert world.status.phase is Phase.PREPARE
    await world.plane.set_route(by_hand(world, "a", 0))
    await world.step()
    assert (world.status.phase, world.status.share) == (Phase.HOLD, 100)
    assert "A is left the stable one" in world.status.reasons[0]


async def test_a_hand_that_makes_a_stable_while_it_prepares_is_not_undone_when_b_is_back(
    world: World,
) -> None:
    await made_stable_while_it_prepares(world)
    world.plane.revive("b")
    for _ in range(5):
        await world.step()
    assert world.plane.route.stable == "a"
    await world.controller.resume("ann")
    assert (world.status.phase, world.plane.weight("a")) == (Phase.BAKE, 100)


async def test_a_that_serves_by_hand_before_its_time_is_judged_and_taken_out(world: World) -> None:
    await made_stable_while_it_prepares(world)
    world.plane.revive("b")
    world.late(200)
    await world.step()
    assert world.status.phase is Phase.QUARANTINED
    assert world.plane.weight("b") == 100


async def test_a_rollback_of_an_a_that_serves_by_hand_is_no_call_off(world: World) -> None:
    await made_stable_while_it_prepares(world)
    await world.controller.rollback("ann", "it sounds wrong")
    assert (world.plane.route.stable, world.plane.route.takes_back) == ("b", True)
    world.plane.revive("b")
    await world.step(40.0)
    assert world.status.quarantined == ("sha256:v2",)


async def test_a_hold_before_a_has_traffic_yields_to_a_hand_too(world: World) -> None:
    await begun_without_b(world)
    await world.controller.hold("ann")
    await world.plane.set_route(by_hand(world, "a", 0))
    await world.step()
    world.plane.revive("b")
    await world.step()
    await world.controller.resume("ann")
    for _ in range(5):
        await world.step()
    assert world.plane.route.stable == "a"


async def test_evidence_is_saved_while_a_hand_holds_a_stable(world: World) -> None:
    await world.promote()
    await world.plane.set_route(by_hand(world, "a", 0))
    await world.step()
    before = world.journal.journal.remembered(EVIDENCE, SavedEvidence)
    world.good(3)
    for _ in range(6):
        await world.step()
    assert world.journal.journal.remembered(EVIDENCE, SavedEvidence) != before
