"""A's way from its canary share to everybody: steps, the proof that B can take all, the bake."""

import pytest

from monitors.contract import Admission, Level, Shed
from monitors.labels import Phase, ResidentState
from rollout.commands import CommandRefused
from rollout.plan import Cause
from rollout.proposal import Wishes
from rollout.rollback import KIND, Record
from rollout.status import RolloutStatus
from tests.unit.rollout.world import World


def shares(changes: list[RolloutStatus]) -> list[int]:
    """A's shares in their order, each once; everybody is 100."""
    seen = [100 if status.promoted else status.weight for status in changes]
    return [now for now, before in zip(seen, [0, *seen], strict=False) if now != before]


async def test_a_healthy_canary_is_promoted_step_by_step_and_then_baked(world: World) -> None:
    await world.promote()
    assert shares(world.changes) == [5, 25, 50, 100]
    assert (world.plane.route.stable, world.plane.weight("a")) == ("a", 100)
    await world.bake(1)
    assert world.status.phase is Phase.STABLE
    assert [s.phase for s in world.changes if s.phase is Phase.HOLD] == []


async def to_weight(world: World, weight: int) -> None:
    world.stable_requests = 2
    await world.start()
    for _ in range(200):
        if world.status.weight == weight:
            return
        world.good(2)
        await world.step()
    raise AssertionError(f"never at {weight} %: {world.status.reasons}")


@pytest.mark.parametrize("weight", [25, 50])
async def test_a_breach_at_any_step_takes_a_out(world: World, weight: int) -> None:
    await to_weight(world, weight)
    world.faulty(120)
    await world.step()
    assert world.status.phase is Phase.QUARANTINED
    assert world.plane.weight("b") == 100


@pytest.mark.parametrize("weight", [25, 50])
async def test_silence_of_the_evidence_at_any_step_holds_a_at_zero(
    world: World, weight: int
) -> None:
    await to_weight(world, weight)
    world.plane.reachable = False
    await world.step(world.lines.rollout.evidence_stale_s + 1.0)
    world.plane.reachable = True
    await world.step()
    assert (world.status.phase, world.plane.canary_weight) == (Phase.HOLD, 0)


async def test_a_step_without_requests_on_a_is_no_step_passed(world: World) -> None:
    await to_weight(world, 25)
    await world.bake()
    assert (world.status.phase, world.plane.canary_weight) == (Phase.HOLD, 25)
    assert "not enough evidence" in world.status.reasons[0]


async def test_a_promotion_that_was_held_goes_on_at_its_share(world: World) -> None:
    await to_weight(world, 25)
    await world.controller.hold("ann")
    await world.controller.resume("ann")
    assert (world.status.phase, world.plane.canary_weight) == (Phase.PROMOTING, 25)
    world.plane.kill("a")
    world.plane.revive("a")
    await world.step()
    await world.controller.resume("ann")
    assert (world.status.phase, world.plane.canary_weight) == (Phase.CANARY, 5)


@pytest.mark.parametrize(
    ("busy", "words"),
    [
        (0.6, "busy with all of the traffic, not under 75%"),
        (None, "how busy 'b' is cannot be seen; it served"),
        (float("nan"), "how busy 'b' is cannot be seen; it served"),
    ],
)
async def test_a_b_that_is_not_shown_to_stand_everything_holds_a_at_half(
    world: World, busy: float | None, words: str
) -> None:
    await to_weight(world, 50)
    world.plane.busy_share = busy
    for _ in range(61):
        world.good(2)
        await world.step()
    assert (world.status.phase, world.plane.canary_weight) == (Phase.HOLD, 50)
    assert words in world.status.reasons[0]
    with pytest.raises(CommandRefused, match="may not have 100 %"):
        await world.controller.promote("ann")
    world.plane.busy_share = 0.3
    await world.step()
    await world.controller.promote("ann")
    assert world.plane.route.stable == "a"


@pytest.mark.parametrize("level", [Level(shed=Shed.ON), Level(admission=Admission.LIMITED)])
async def test_a_b_that_turns_work_away_proves_nothing(world: World, level: Level) -> None:
    await to_weight(world, 50)
    world.plane.residents["b"].level = level
    await world.step()
    assert world.status.capacity is not None
    assert not world.status.capacity.proved
    assert "sheds or refuses" in world.status.capacity.words


async def test_a_lull_is_no_proof(world: World) -> None:
    await to_weight(world, 50)
    world.stable_requests, world.plane.busy_share = 0, 0.0
    await world.step(70.0)
    assert world.status.capacity is not None
    assert not world.status.capacity.proved
    assert "of 'b' too little is known" in world.status.capacity.words
    assert world.status.requests_per_s is None, "nor is it today's traffic"


@pytest.mark.parametrize("crashes", [False, True])
async def test_what_came_before_a_pause_is_no_proof_of_now(world: World, crashes: bool) -> None:
    """Nobody was heard for ten minutes in which nobody came: what is read then is old."""
    await to_weight(world, 50)
    world.stable_requests = 0
    world.good(60, "b")
    world.good(60)
    if crashes:
        world.crash()
    world.clock.advance(600.0)
    await world.controller.poll(0.0)
    await world.controller.tick()
    assert world.status.capacity is None or not world.status.capacity.proved


async def test_a_canary_of_most_needs_the_proof_before_it_begins(world: World) -> None:
    await world.controller.tick()
    plan, _ = await world.controller.propose(Wishes(weight=90))
    await world.controller.start(plan, "ann")
    await world.step()
    assert world.status.phase is Phase.PREPARE
    assert "A does not get 90 % yet" in world.status.reasons[0]
    world.good(30, "b")
    await world.step()
    assert (world.status.phase, world.plane.canary_weight) == (Phase.WARMUP, 90)


async def test_a_bake_without_a_way_back_says_so_and_does_not_end(world: World) -> None:
    assert world.status.way_back is None
    await world.promote()
    assert world.status.way_back is True
    world.plane.kill("b")
    await world.bake(1)
    assert (world.status.phase, world.status.way_back) == (Phase.BAKE, False)
    assert "no way back" in world.status.reasons[0]
    told = [e for e in world.journal.journal.read() if b"no way back" in bytes(e.body)]
    assert len(told) == 1, "it is journalled, once"
    world.plane.revive("b")
    world.good(1)
    await world.step()
    assert (world.status.phase, world.status.way_back) == (Phase.STABLE, None)


async def test_a_breach_without_a_way_back_takes_a_out_and_says_whom_it_leaves(
    world: World,
) -> None:
    await world.promote()
    world.plane.kill("b")
    await world.step()
    world.faulty(40)
    await world.step()
    assert world.plane.route.stable == "b"
    order = next(
        entry.read_as(Record).progress.order
        for entry in world.journal.journal.read()
        if entry.kind == KIND
    )
    assert "'b' is not ready: nobody is served until it is" in order.reasons


@pytest.mark.parametrize("frozen", [False, True])
async def test_an_a_that_dies_while_it_serves_everybody_gives_them_back_to_b(
    world: World, frozen: bool
) -> None:
    await world.promote()
    if frozen:
        await world.controller.freeze("ann")
    world.plane.kill("a")
    await world.controller.poll(0.0)
    assert (world.plane.route.stable, world.plane.weight("b")) == ("b", 100)
    assert world.controller.status().quarantined == ()
    await world.controller.unfreeze("ann")
    with pytest.raises(CommandRefused, match="both residents"):
        await world.controller.resume("ann")
    world.plane.revive("a")
    await world.step()
    await world.controller.resume("ann")
    assert (world.status.phase, world.plane.canary_weight) == (Phase.CANARY, 5)


async def test_an_a_that_hangs_at_its_start_has_a_moments_patience(world: World) -> None:
    """As both residents do after the data plane was started again, B being the first to load."""
    await world.promote()
    a = world.plane.residents["a"]
    for seconds, state in ((1.0, ResidentState.LOADING), (3.0, ResidentState.READY)):
        a.state = state
        await world.step(seconds)
        assert world.status.phase is Phase.BAKE
    a.state = ResidentState.LOADING
    for _ in range(8):
        await world.step()
    assert (world.status.phase, world.plane.route.stable) == (Phase.HOLD, "b")
    assert "not ready" in world.status.reasons[0]


async def test_an_a_without_a_ready_b_keeps_everybody(world: World) -> None:
    """Where nobody can serve there is nobody to give them to; whoever is there first has them."""
    await world.promote()
    world.plane.kill("b")
    await world.step()
    world.plane.kill("a")
    for _ in range(8):
        await world.step()
    assert world.plane.route.stable == "a"
    world.plane.revive("b")
    await world.step()
    assert world.plane.route.stable == "b"


async def test_a_bake_in_which_nobody_came_does_not_end(world: World) -> None:
    await world.promote()
    await world.bake()
    assert world.status.phase is Phase.BAKE
    world.good(1)
    await world.step()
    assert world.status.phase is Phase.STABLE


# ---------------------------------------------------------------- an alert, and who is to blame
async def test_an_alert_puts_a_under_quarantine_unless_b_is_past_the_line_too(
    world: World,
) -> None:
    await world.start()
    world.faulty(25, resident="b")
    await world.step()
    await world.controller.rollback("RedlineFaultRate", "faults", Cause.FAULTS)
    assert (world.status.phase, world.status.quarantined) == (Phase.HOLD, ())
    assert world.plane.weight("b") == 100


async def test_a_person_needs_no_evidence_for_a_quarantine(world: World) -> None:
    await world.start()
    world.faulty(25, resident="b")
    await world.step()
    await world.controller.rollback("ann", "it sounds wrong")
    assert world.status.quarantined == ("sha256:v2",)
