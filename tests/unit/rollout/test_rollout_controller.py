"""The controller against a simulated data plane: whole rollouts, failures and restarts."""

import pytest

from monitors.contract import DrainMode, Level, MediaRung, Route
from monitors.journal import JournalUnwritable
from monitors.labels import Phase
from rollout.rollback import Step
from rollout.sequential import Verdict
from tests.unit.rollout.world import World


async def test_faults_take_the_canary_out_and_the_proof_is_in_the_status(world: World) -> None:
    await world.start()
    world.faulty(12)
    await world.controller.poll(0.0)
    status = world.status
    assert status.phase is Phase.QUARANTINED
    assert world.plane.weight("b") == 100
    assert status.rollback is not None
    assert status.rollback.probe is not None
    assert status.rollback.probe.verified
    assert status.rollback.receipt is not None
    assert status.rollback.receipt.pages == 103
    assert status.quarantined == ("sha256:v2",)
    assert "faults" in status.rollback.order.reasons[0]
    assert not status.rollback_incomplete


async def test_a_breach_cuts_over_within_the_poll_that_brought_it(world: World) -> None:
    """No tick and no renewal in between: the first order after the evidence is the route."""
    await world.start()
    world.plane.orders.clear()
    world.hung(12)
    await world.controller.poll(0.0)
    assert world.plane.orders[0] == "route"
    assert world.plane.canary_weight == 0


async def test_late_streams_may_finish_and_faulty_ones_are_aborted(world: World) -> None:
    await world.start()
    world.hung(12)
    await world.step()
    assert f"drain {DrainMode.FINISH}" in world.plane.orders
    await world.controller.clear_quarantine("sha256:v2", "ann")
    await world.start()
    world.faulty(12)
    await world.step()
    assert f"drain {DrainMode.ABORT}" in world.plane.orders


async def test_a_hung_engine_is_drained_by_abort_when_its_time_is_up(world: World) -> None:
    await world.start()
    world.plane.residents["a"].in_flight, world.plane.residents["a"].hangs = 4, True
    world.hung(12)
    await world.step()
    assert world.status.phase is Phase.QUARANTINED
    assert world.plane.residents["a"].in_flight == 0


async def test_no_evidence_never_promotes_and_ends_at_b(world: World) -> None:
    await world.start()
    await world.bake()
    assert (world.status.phase, world.plane.canary_weight) == (Phase.HOLD, 5)
    assert world.status.verdict is Verdict.INCONCLUSIVE
    await world.bake()
    assert (world.status.phase, world.plane.canary_weight) == (Phase.HOLD, 0)
    assert world.status.quarantined == ()


@pytest.mark.parametrize("side", ["hold", "freeze"])
async def test_a_breach_rolls_back_in_a_side_state_too(world: World, side: str) -> None:
    await world.start()
    await getattr(world.controller, side)("ann")
    world.faulty(12)
    await world.step()
    assert world.status.quarantined == ("sha256:v2",)
    assert world.plane.weight("b") == 100


async def test_a_breach_after_promotion_swaps_the_roles_back(world: World) -> None:
    await world.promote()
    assert world.plane.route.stable == "a"
    world.faulty(120)
    await world.step()
    assert world.status.phase is Phase.QUARANTINED
    assert (world.plane.route.stable, world.plane.weight("b")) == ("b", 100)


async def test_a_cause_that_b_shares_is_held_without_quarantine(world: World) -> None:
    await world.start()
    for _ in range(25):
        world.faulty(1, resident="b")
        world.faulty(1, resident="a")
    await world.step()
    status = world.status
    assert (status.phase, status.quarantined) == (Phase.HOLD, ())
    assert world.plane.weight("b") == 100
    assert status.rollback is not None
    assert status.rollback.done
    await world.step()
    assert world.status.phase is Phase.HOLD, "the same evidence may not roll back twice"


async def test_health_at_a_degraded_level_that_b_does_not_share_is_no_evidence(
    world: World,
) -> None:
    await world.start()
    world.good(1, resident="b")
    world.plane.residents["a"].level = Level(media=MediaRung.P360_8K)
    world.good(200)
    await world.bake()
    assert world.status.phase is Phase.HOLD


async def test_silence_of_the_evidence_log_sends_the_weight_to_zero(world: World) -> None:
    await world.start()
    world.plane.reachable = False
    await world.step(world.lines.rollout.evidence_stale_s + 1.0)
    assert (world.status.phase, world.status.weight) == (Phase.HOLD, 0)
    assert world.plane.canary_weight == 0, "the lease ran out"
    world.plane.reachable = True
    await world.step()
    assert world.plane.route.canary_weight == 0
    assert world.status.quarantined == ()


async def test_an_engine_that_dies_is_held_at_zero_and_may_be_resumed(world: World) -> None:
    await world.start()
    world.plane.kill("a")
    world.plane.revive("a")  # before anybody looked: only the evidence tells
    await world.step()
    assert (world.status.phase, world.plane.canary_weight) == (Phase.HOLD, 0)
    await world.controller.resume("ann")
    assert (world.status.phase, world.plane.canary_weight) == (Phase.CANARY, 5)


async def test_b_that_dies_leaves_no_canary_without_a_way_back(world: World) -> None:
    await world.start()
    world.plane.kill("b")
    await world.step()
    assert (world.status.phase, world.plane.canary_weight) == (Phase.HOLD, 0)


async def test_a_lying_flush_is_not_called_a_rollback_until_a_probe_misses(world: World) -> None:
    await world.start()
    world.plane.residents["a"].lies = True
    world.faulty(12)
    routes = world.plane.orders.count("route")
    await world.controller.poll(0.0)
    status = world.status
    assert status.phase is Phase.ROLLING_BACK
    assert status.rollback_incomplete
    assert status.rollback is not None
    assert status.rollback.next_step is Step.FLUSH
    assert "witness found 103 tokens" in (status.rollback.failure or "")
    assert world.plane.weight("b") == 100
    await world.controller.freeze("ann")
    assert world.plane.orders.count("route") == routes + 1, "what was proved is not done again"
    world.plane.residents["a"].lies = False
    await world.controller.rollback("ann", "try again")
    assert world.status.quarantined == ("sha256:v2",)
    assert not world.status.rollback_incomplete


async def test_a_lost_acknowledgement_is_asked_for_again(world: World) -> None:
    await world.start()
    world.plane.lose_acks = 1
    world.faulty(12)
    await world.controller.poll(0.0)
    assert world.status.phase is Phase.ROLLING_BACK
    await world.step()
    assert world.status.phase is Phase.QUARANTINED


async def test_a_rollback_that_stays_incomplete_is_tried_ever_less_often(world: World) -> None:
    await world.start()
    world.plane.residents["a"].lies = True
    world.faulty(12)
    for _ in range(300):
        await world.step()
    assert 10 <= world.plane.orders.count("probe") <= 20
    world.plane.residents["a"].lies = False
    await world.step(30.0)
    assert world.status.phase is Phase.QUARANTINED


async def test_the_lease_is_renewed_under_the_same_epoch(world: World) -> None:
    await world.start()
    epoch = world.plane.route.route_epoch
    for _ in range(20):
        await world.step(2.0)
        assert world.plane.canary_weight == 5
    assert world.plane.route.route_epoch == epoch


async def test_a_restarted_gateway_gets_its_canary_back_and_health_starts_anew(
    world: World,
) -> None:
    await world.start()
    world.good(40)
    await world.step()
    assert world.status.verdict is Verdict.PASS
    world.plane.restart_gateway()
    assert world.plane.canary_weight == 0
    await world.step()
    assert world.plane.canary_weight == 5
    assert world.status.verdict is Verdict.INCONCLUSIVE


def by_hand(world: World, weight: int) -> Route:
    return Route(
        leader_epoch=world.leader_epoch,
        route_epoch=world.plane.route.route_epoch + 1,
        stable="b",
        canary="a",
        canary_weight=weight,
    )


@pytest.mark.parametrize("how", ["tick", "renew"])
async def test_a_route_set_by_hand_is_not_taken_back(world: World, how: str) -> None:
    await world.start()
    for weight in (0, 10, 20):
        await world.plane.set_route(by_hand(world, weight))
        for _ in range(2):
            await getattr(world.controller, how)()
        assert (world.status.phase, world.status.weight) == (Phase.HOLD, 0)
        assert (world.plane.canary_weight, world.plane.weight("b")) == (0, 100)
        assert "A is held at 0" in world.status.reasons[0]


@pytest.mark.parametrize("how", ["tick", "poll"])
async def test_a_move_decided_while_somebody_changed_the_route_does_not_undo_that(
    world: World, how: str
) -> None:
    await world.start()
    world.good(40)
    for _ in range(59):
        await world.step()
    world.clock.advance(2.0)  # the next look sees the end of the bake, with every line passed
    await world.plane.set_route(by_hand(world, 0))
    await (world.controller.tick() if how == "tick" else world.controller.poll(0.0))
    await world.step()
    assert world.status.phase is Phase.HOLD
    assert (world.plane.route.stable, world.plane.canary_weight) == ("b", 0)


async def test_a_newer_leader_ends_this_ones_hand_on_the_route(world: World) -> None:
    await world.start()
    old = world.controller
    world.crash()
    await world.step()
    world.faulty(12)
    await old.poll(0.0)
    await old.tick()
    assert old.status().deposed
    assert world.plane.canary_weight == 5, "the old leader's orders are refused"
    await world.step()
    assert world.status.phase is Phase.QUARANTINED


async def test_evidence_counts_once_over_crashes_and_is_complete(world: World) -> None:
    await world.start()
    for pause in (6.0, 2.0, 6.0, 2.0, 2.0, 6.0):  # evidence is saved every 5 s
        world.good(5)
        await world.step(pause)
        world.crash()
        await world.step(0.0)
    faults = next(n for n in world.status.canary if n.line == "faults")
    assert faults.n == 33
    assert world.status.phase is Phase.CANARY


async def test_a_crash_loses_at_most_a_few_seconds_of_the_bake(world: World) -> None:
    await world.start()
    for _ in range(20):
        await world.step()
    world.crash()
    await world.step(0.0)
    assert 15.0 <= world.status.phase_s <= 20.0


async def test_a_freeze_outlives_a_crash(world: World) -> None:
    await world.start()
    await world.controller.freeze("ann")
    world.crash()
    await world.step()
    assert world.status.frozen
    assert world.status.phase is Phase.FROZEN


async def test_a_crash_does_not_bring_back_the_evidence_of_the_rollout_before(
    world: World,
) -> None:
    await world.start()
    world.good(30)
    await world.step(6.0)
    await world.controller.rollback("ann", "looks odd")
    await world.controller.clear_quarantine("sha256:v2", "ann")
    await world.start()
    world.crash()
    await world.step()
    assert world.status.phase is Phase.CANARY
    assert next(n for n in world.status.canary if n.line == "faults").n == 3


async def test_without_a_journal_a_rollback_goes_ahead_and_is_journalled_later(
    world: World,
) -> None:
    await world.start()
    world.journal.writable = False
    world.faulty(12)
    await world.step()
    assert world.plane.weight("b") == 100
    assert world.status.phase is Phase.QUARANTINED
    assert world.status.unjournalled > 0
    with pytest.raises(JournalUnwritable):
        await world.controller.clear_quarantine("sha256:v2", "ann")
    world.journal.writable = True
    await world.controller.clear_quarantine("sha256:v2", "ann")
    assert world.status.unjournalled == 0
    kinds = [e.kind for e in world.journal.journal.read()]
    assert kinds.count("rollback.step") == 2 * (len(Step) - 1)


async def test_without_a_journal_nothing_moves_toward_a(world: World) -> None:
    await world.start()
    world.good(40)
    world.journal.writable = False
    await world.bake()
    assert (world.status.phase, world.plane.route.stable) == (Phase.CANARY, "b")
    with pytest.raises(JournalUnwritable):
        await world.controller.promote("ann")
    world.journal.writable = True
    await world.step()
    assert world.plane.canary_weight == 25


async def test_a_cut_over_that_the_journal_never_heard_of_is_respected_after_a_crash(
    world: World,
) -> None:
    await world.start()
    world.journal.writable = False
    world.faulty(12)
    await world.controller.poll(0.0)
    assert world.plane.weight("b") == 100
    world.journal.writable = True
    world.crash()
    await world.controller.tick()
    assert world.plane.canary_weight == 0
    await world.step()
    assert world.plane.canary_weight == 0
