"""What a rollout left in the journal, and how the next controller takes it up."""

from itertools import product

from monitors.contract import Evidence, Level, RequestFinished
from monitors.labels import Outcome, Phase
from rollout.store import ACTOR, EVIDENCE_KIND
from rollout.traffic import Traffic
from tests.support.sim_dataplane import Clock
from tests.unit.rollout.world import World


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
    file.append(EVIDENCE_KIND, ACTOR, {"cursor": "of another release"}, file.newest_epoch())
    world.crash()
    await world.step()
    assert world.status.phase in (Phase.WARMUP, Phase.CANARY)
    world.faulty(12)
    await world.step()
    assert world.status.phase is Phase.QUARANTINED


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
