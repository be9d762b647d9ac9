"""What a rollout left in the journal, and how the next controller takes it up."""

from itertools import product

import pytest

from monitors.contract import Evidence, Level, RequestFinished
from monitors.evidence import Cursor
from monitors.labels import Outcome, Phase
from rollout.store import EVIDENCE, STATE_KIND, SavedEvidence, StateUnreadable
from rollout.traffic import Traffic
from tests.support.sim_dataplane import Clock
from tests.unit.rollout.world import Killed, World


async def test_what_waited_for_the_disk_is_written_at_the_next_tick(world: World) -> None:
    await world.start()
    world.journal.writable = False
    world.faulty(12)
    await world.step()
    assert world.status.unjournalled > 0
    world.journal.writable = True
    await world.step()
    assert world.status.unjournalled == 0
    world.crash()
    await world.step()
    assert world.status.phase is Phase.QUARANTINED
    assert world.status.quarantined


async def test_saved_evidence_of_another_form_is_gathered_anew(world: World) -> None:
    await world.start()
    world.good(5)
    await world.step()
    file = world.journal.journal
    file.remember(EVIDENCE, Cursor(seq=7), file.newest_epoch())
    world.crash()
    await world.step()
    assert world.status.phase in (Phase.WARMUP, Phase.CANARY)
    world.faulty(12)
    await world.step()
    assert world.status.phase is Phase.QUARANTINED


async def test_evidence_is_kept_beside_the_journal_the_newest_alone(world: World) -> None:
    world.canary_requests = world.stable_requests = 1
    await world.start()
    file = world.journal.journal
    entries = len(file.read())
    kept = set[int]()
    for _ in range(30):
        await world.step()
        saved = file.remembered(EVIDENCE, SavedEvidence)
        kept |= set() if saved is None else {saved.cursor.seq}
    assert len(kept) >= 5
    assert len(file.read()) <= entries + 3


async def test_a_crash_between_a_state_and_the_evidence_after_it_loses_neither(
    world: World,
) -> None:
    world.canary_requests = world.stable_requests = 1
    await world.start()
    for _ in range(12):
        await world.step()
    assert world.status.phase is Phase.CANARY
    read = world.status.canary
    world.journal.kill_after = world.journal.written + 1
    with pytest.raises(Killed):
        await world.controller.hold("bob")
    world.crash()
    assert (world.status.phase, world.status.phase_s) == (Phase.HOLD, 0.0)
    await world.controller.poll(0.0)  # what was read after the evidence was kept
    assert world.status.canary == read


async def test_a_crash_after_the_evidence_goes_on_with_the_time_that_was_spent(
    world: World,
) -> None:
    await world.start()
    await world.controller.hold("bob")
    for _ in range(8):
        await world.step()
    spent = world.status.phase_s
    world.crash()
    assert spent - 6.0 < world.status.phase_s <= spent
    assert world.status.phase_s > 1.0


async def test_evidence_waits_for_the_states_before_it(world: World) -> None:
    """Else a successor would count the time of the state after to the state before."""
    await world.start()
    for _ in range(8):
        await world.step()
    world.journal.writable = False
    await world.controller.freeze("bob")
    before = world.journal.journal.remembered(EVIDENCE, SavedEvidence)
    for _ in range(8):
        await world.step()
    assert world.journal.journal.remembered(EVIDENCE, SavedEvidence) == before
    world.journal.writable = True
    for _ in range(8):
        await world.step()
    found = world.journal.journal.remembered(EVIDENCE, SavedEvidence)
    state = world.journal.last(STATE_KIND)
    assert found is not None
    assert state is not None
    assert found.state == state.id


async def test_the_evidence_of_one_rollout_is_not_that_of_the_next(world: World) -> None:
    await world.start()
    for _ in range(6):
        world.good(3)
        await world.step()
    await world.controller.rollback("ann", "for a test")
    await world.controller.clear_quarantine(world.status.quarantined[0], "ann")
    await world.controller.tick()
    plan, _ = await world.controller.propose()
    await world.controller.start(plan, "ann")
    world.crash()
    assert sum(numbers.n for numbers in world.status.canary) == 0


def test_a_state_of_another_form_is_no_beginning_from_nothing(world: World) -> None:
    """A freeze or a quarantine would be forgotten: nobody leads, and it is said why."""
    file = world.journal.journal
    file.append(STATE_KIND, "ann", Cursor(seq=7), file.newest_epoch())
    with pytest.raises(StateUnreadable, match=r"entry 1 of the journal .* start the release"):
        world.crash()


def test_traffic_is_that_of_the_last_minute_without_copies_and_operators_own() -> None:
    traffic = Traffic(30.0, Clock())
    assert traffic.per_second() is None
    for second, kind in product(range(200), ("own", "mirror", "operator")):
        finished = RequestFinished(outcome=Outcome.OK, faulted=False)
        traffic.take(
            Evidence(
                seq=second + 1,
                wall=float(second if second < 100 else second * 0.5 + 50.0),
                resident="a",
                version="v",
                session="s",
                request_id=str(second),
                pool_epoch=0,
                route_epoch=1,
                level=Level(),
                body=finished,
                operator=kind == "operator",
                mirror=kind == "mirror",
            )
        )
    rate = traffic.per_second()
    assert rate is not None
    assert 1.5 < rate < 2.0
