"""What an operator may ask, and how a command that makes no sense is refused."""

import msgspec
import pytest

from monitors.labels import Phase, ResidentState
from rollout.commands import CommandRefused
from rollout.plan import Cause
from rollout.proposal import Wishes
from rollout.sequential import Verdict
from tests.unit.rollout.world import World


async def test_a_quarantined_version_needs_a_person(world: World) -> None:
    await world.start()
    world.faulty(12)
    await world.step()
    plan, _ = await world.controller.propose()
    with pytest.raises(CommandRefused, match="under quarantine"):
        await world.controller.start(plan, "ann")
    with pytest.raises(CommandRefused, match="not under quarantine"):
        await world.controller.clear_quarantine("sha256:v9", "ann")
    await world.controller.clear_quarantine("sha256:v2", "ann")
    assert world.status.phase is Phase.IDLE, "nothing is left of it"
    await world.start()
    assert world.status.phase is Phase.CANARY
    assert all(n.n <= 3 for n in world.status.canary), "old evidence is not held against it"


async def test_promotion_by_hand_cuts_time_short_but_not_evidence(world: World) -> None:
    await world.start()
    lacking = (
        r"not enough evidence of health yet: faults: 0 of 3 requests, E of health \d\.\d+ of 5"
    )
    with pytest.raises(CommandRefused, match=lacking):
        await world.controller.promote("ann")
    world.good(40)
    await world.step()
    for weight in (25, 50):
        await world.controller.promote("ann")
        assert (world.status.phase, world.plane.canary_weight) == (Phase.PROMOTING, weight)
    with pytest.raises(CommandRefused, match="may not have 100 % yet: of 'b' too little is known"):
        await world.controller.promote("ann")
    world.good(40, "b")
    await world.step()
    await world.controller.promote("ann")
    assert world.plane.route.stable == "a"
    assert world.status.phase is Phase.BAKE


async def test_a_hold_in_the_warm_up_is_no_way_round_the_lines(world: World) -> None:
    """There A is judged on faults alone: its slow answers would never have counted."""
    await world.warm_up()
    await world.controller.hold("ann")
    world.late(400)
    await world.step()
    assert world.status.verdict is Verdict.INCONCLUSIVE
    with pytest.raises(CommandRefused, match="warms up"):
        await world.controller.promote("ann")
    assert world.plane.canary_weight == 5


@pytest.mark.parametrize("state", [ResidentState.LOADING, ResidentState.DEAD])
async def test_a_rollback_while_the_data_plane_starts_bars_the_weights_that_served(
    world: World, state: ResidentState
) -> None:
    """Until A's engine is ready again nobody tells its digest: what is known is not forgotten."""
    await world.start()
    a = world.plane.residents["a"]
    a.state, a.hides_weights = state, True
    await world.step()
    await world.controller.rollback("ann", "looks odd")
    a.state, a.hides_weights = ResidentState.READY, False
    for _ in range(4):
        await world.step(31.0)
    assert world.status.quarantined == ("sha256:v2",)


async def test_an_engine_that_hides_its_weights_is_barred_by_its_version(world: World) -> None:
    world.plane.residents["a"].hides_weights = True
    await world.start()
    await world.controller.rollback("ann", "looks odd")
    assert world.status.quarantined == ("version v2",)


async def test_a_rollback_by_hand_works_in_every_phase_from_warm_up_to_stable(
    world: World,
) -> None:
    with pytest.raises(CommandRefused, match="nothing to roll back"):
        await world.controller.rollback("ann", "looks odd")
    await world.start()
    status = await world.controller.rollback("ann", "looks odd", Cause.FAULTS)
    assert status.phase is Phase.QUARANTINED
    assert status.rollback is not None
    assert (status.rollback.order.actor, status.rollback.order.reasons) == ("ann", ("looks odd",))
    await world.controller.clear_quarantine("sha256:v2", "ann")
    await world.promote()
    await world.bake(1)
    assert world.status.phase is Phase.STABLE
    await world.controller.rollback("ann", "late news")
    assert world.plane.weight("b") == 100


async def test_a_start_waits_for_both_residents(world: World) -> None:
    world.plane.kill("a")
    await world.controller.tick()
    plan, detectable = await world.controller.propose()
    assert detectable is None, "no traffic was seen: what it can prove is unknown"
    await world.controller.start(plan, "ann")
    assert world.status.phase is Phase.PREPARE
    world.plane.revive("a")
    await world.step()
    assert world.status.phase is Phase.PREPARE, "a breach is rehearsed now"
    await world.step()
    assert world.status.phase is Phase.WARMUP


async def test_the_detectable_effect_is_told_from_the_traffic_seen(world: World) -> None:
    for _ in range(30):
        world.good(40, resident="b")
        await world.step()
    _, detectable = await world.controller.propose(Wishes(weight=50, bake_s=600.0))
    assert detectable is not None
    assert detectable.canary_requests == pytest.approx(12_000, rel=0.05)
    assert detectable.fault_rate is not None
    assert 0.1 < detectable.fault_rate < 0.15
    assert detectable.can_pass


async def test_commands_that_make_no_sense_are_refused_with_what_would(world: World) -> None:
    controller = world.controller
    for command in (controller.hold, controller.resume, controller.promote):
        with pytest.raises(CommandRefused):
            await command("ann")
    await world.start()
    plan, _ = await controller.propose()
    with pytest.raises(CommandRefused, match="a rollout is in canary"):
        await controller.start(plan, "bob")
    await controller.rollback("ann", "enough")
    with pytest.raises(CommandRefused, match="no resident is called 'z'"):
        await controller.propose(Wishes(canary="z"))
    stranger = msgspec.structs.replace(plan, version="v7")
    with pytest.raises(CommandRefused, match="is v2, not v7"):
        await controller.start(stranger, "ann")
    await controller.freeze("ann")
    with pytest.raises(CommandRefused, match="unfreeze"):
        await controller.start(plan, "ann")
