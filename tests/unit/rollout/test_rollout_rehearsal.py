"""A has no traffic before a rehearsed breach has come back by the evidence log and was called."""

import pytest

from monitors.labels import Phase
from monitors.redlines import RedLines
from rollout.plan import make_plan
from rollout.rehearsal import Rehearsal, requests_for_breach
from rollout.state import RolloutState
from rollout.store import STATE_KIND, SavedState
from tests.support.sim_dataplane import Rehearsals
from tests.unit.rollout.world import World

PLAN = make_plan(RedLines(), stable="b", canary="a", version="v2")


async def begin(world: World) -> None:
    await world.controller.tick()
    plan, _ = await world.controller.propose()
    await world.controller.start(plan, "ann")


def journalled(world: World) -> list[RolloutState]:
    entries = world.journal.journal.read()
    return [e.read_as(SavedState).state for e in entries if e.kind == STATE_KIND]


async def test_traffic_waits_for_the_proof_and_the_proof_is_kept(world: World) -> None:
    await begin(world)
    assert (world.status.phase, world.plane.canary_weight) == (Phase.PREPARE, 0)
    await world.controller.poll(0.0)
    status = world.status
    assert (status.phase, world.plane.canary_weight) == (Phase.WARMUP, 5)
    assert status.alarm is not None
    assert journalled(world)[-1].alarm == status.alarm
    assert status.alarm.words in journalled(world)[-1].reasons, "so that the log tells it"
    world.good(3)
    await world.step()
    assert world.status.alarm == status.alarm


@pytest.mark.parametrize("what", ["resumed", "restarted"])
async def test_an_old_proof_starts_no_traffic(world: World, what: str) -> None:
    """Hours or a data plane ago the alarm rang: that says nothing of now."""
    world.plane.kill("b")
    await begin(world)
    world.plane.revive("b")
    await world.controller.tick()
    world.plane.kill("b")
    await world.controller.tick()
    await world.controller.poll(0.0)
    world.plane.rehearsals = Rehearsals.DROPPED
    if what == "resumed":
        await world.controller.hold("ann")
        world.clock.advance(3_600.0)
        await world.controller.resume("ann")
    else:
        world.plane.restart_gateway()
        await world.controller.poll(0.0)
    world.plane.revive("b")
    await world.step()
    assert world.status.phase is Phase.PREPARE
    assert "a breach is rehearsed, to prove the alarm path" in world.status.reasons[0]


async def test_a_rehearsed_breach_counts_for_nothing(world: World) -> None:
    await world.start()
    assert [(n.line, n.n) for n in world.status.canary if n.n > 3] == []
    assert world.status.requests_per_s is None or world.status.requests_per_s < 10.0
    assert world.status.quarantined == ()


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (Rehearsals.DROPPED, "no entry came back within 5 s"),
        (Rehearsals.THINNED, "2 entries and no breach came back within 5 s"),
        (Rehearsals.COUNTED, "its entries are not marked"),
    ],
)
async def test_a_data_plane_that_says_so_and_does_not_do_it_is_caught(
    world: World, lie: Rehearsals, words: str
) -> None:
    world.plane.rehearsals = lie
    await begin(world)
    for _ in range(20):
        await world.step()
        assert (world.status.phase, world.plane.canary_weight) == (Phase.PREPARE, 0)
    assert "the alarm path is not proved" in world.status.reasons[0]
    assert words in world.status.reasons[0]
    told = [state for state in journalled(world) if words in "".join(state.reasons)]
    assert len(told) == 1, "the journal hears of it, once"
    world.plane.rehearsals = Rehearsals.TOLD
    for _ in range(8):
        await world.step()
    assert world.status.phase in (Phase.WARMUP, Phase.CANARY)


async def test_a_data_plane_that_takes_no_such_order_starts_nothing(world: World) -> None:
    await world.controller.tick()
    plan, _ = await world.controller.propose()
    world.plane.lose_acks = 1
    await world.controller.start(plan, "ann")
    await world.controller.tick()
    assert world.status.phase is Phase.PREPARE
    assert "the answer was lost" in world.status.reasons[0]
    await world.step()
    await world.step()
    assert world.status.phase in (Phase.WARMUP, Phase.CANARY), "another one is rehearsed"


async def test_entries_of_another_rehearsal_prove_nothing(world: World) -> None:
    await begin(world)
    order = Rehearsal(PLAN, "another", 0.0, 5.0).order(world.leader_epoch)
    world.plane.restart_gateway()  # and the log of the first is gone
    await world.plane.rehearse("a", order)
    await world.controller.poll(0.0)
    assert world.status.phase is Phase.PREPARE


async def test_a_controller_that_dies_meanwhile_rehearses_again(world: World) -> None:
    await begin(world)
    world.crash()
    await world.step()
    await world.step()
    assert world.status.phase in (Phase.WARMUP, Phase.CANARY)
    assert world.plane.orders.count("rehearse") == 2


async def test_a_second_rollout_needs_a_proof_of_its_own(world: World) -> None:
    await world.start()
    first = world.status.alarm
    await world.controller.rollback("ann", "looks odd")
    await world.controller.clear_quarantine("sha256:v2", "ann")
    await begin(world)
    assert world.status.phase is Phase.PREPARE
    await world.controller.poll(0.0)
    assert world.status.alarm is not None
    assert world.status.alarm != first


def test_a_handful_of_faults_is_a_breach_of_the_articles_line() -> None:
    assert 3 <= requests_for_breach(PLAN) <= 12
