"""Whose requests A gets: ordered with its weight, kept over a crash, and gone once it has none."""

import pytest

from monitors.client_key import EVERYBODY, CanaryClients, digest_of
from monitors.labels import Phase
from rollout.audience import Audience
from rollout.proposal import Wishes
from tests.unit.rollout.world import World

ADA, BOB = digest_of("ada"), digest_of("bob")
SOME = Audience(clients=CanaryClients(allow=(ADA,), deny=(BOB,)), mirror_weight=20)


async def start(world: World) -> None:
    await world.controller.tick()
    plan, _ = await world.controller.propose(Wishes(weight=50, audience=SOME))
    await world.controller.start(plan, "ann")
    await world.controller.poll(0.0)  # brings the rehearsed breach
    world.good(3)
    await world.step()


async def test_the_route_of_a_canary_has_its_audience_over_renewals_and_crashes(
    world: World,
) -> None:
    await start(world)
    for _ in range(2):
        route = world.plane.route
        assert (route.canary_weight, route.clients, route.mirror_weight) == (50, SOME.clients, 20)
        epoch = route.route_epoch
        world.crash()
        await world.step()
        assert world.plane.route.route_epoch == epoch, "nothing changed, so it is a renewal"


async def test_no_list_and_no_copy_outlives_the_canarys_weight(world: World) -> None:
    await start(world)
    world.faulty(12)
    await world.step()
    assert world.status.phase is Phase.QUARANTINED
    route = world.plane.route
    assert (route.canary_weight, route.clients, route.mirror_weight) == (0, EVERYBODY, 0)


async def test_a_list_is_not_outgrown_without_a_person_and_a_promoted_version_is_everybodys(
    world: World,
) -> None:
    world.stable_requests = 5  # enough to show that B can take everything
    await start(world)
    for _ in range(100):
        world.good(5)
        await world.step()
        if world.status.phase is Phase.HOLD:
            break
    assert "its lists keep some clients from it" in world.status.reasons[0]
    assert (world.plane.route.canary_weight, world.plane.route.clients) == (50, SOME.clients)
    await world.controller.promote("ann")
    route = world.plane.route
    assert (route.stable, route.clients, route.mirror_weight) == ("a", EVERYBODY, 0)


@pytest.mark.parametrize(
    ("audience", "words"),
    [
        (Audience(), ""),
        (
            SOME,
            "only 1 allowed client(s), never 1 denied client(s), copies of 20 % of B's sessions",
        ),
        (Audience(mirror_weight=100), "copies of 100 % of B's sessions"),
    ],
)
def test_it_is_told_in_words_that_show_no_key(audience: Audience, words: str) -> None:
    assert audience.words == words
    assert ADA not in words
