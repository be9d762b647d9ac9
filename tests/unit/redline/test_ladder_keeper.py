"""The ladder keeper over a simulated data plane: what it orders, holds, refuses and survives."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from alerts.forecast import SPAN_S
from alerts.ladder import Mode, Move
from alerts.names import AlertName
from alerts.parts import Part
from monitors.cache_table import CacheSummary
from monitors.contract import ALL_CLASSES, KvRung, Level, MediaRung, Observed
from monitors.journal import JournalUnwritable, LeaderLease, StaleLeader
from monitors.labels import ResidentState
from monitors.tables import Tables, lines_shown, windows
from redline.control.ladder_events import MODE, MOVED
from tests.unit.redline.ladder_world import DEGRADED, DWELL_S, FULL, LEASE_S, LINES, World, hung


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with closing(made.journal):
        yield made


# ---------------------------------------------------------------- levels, orders, leases
async def test_an_alert_is_journalled_and_ordered_for_its_own_version_alone(world: World) -> None:
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    (order,) = world.plane.levels
    assert (order.resident, order.classes, order.level) == ("b", ALL_CLASSES, DEGRADED)
    assert order.lease_s == pytest.approx(LEASE_S, rel=0.1)
    assert (order.leader_epoch, order.reason) == (1, AlertName.LATENCY_DEGRADE)
    assert world.level("a") == FULL
    (entry,) = world.journal.read(kinds=[MOVED])
    assert entry.read_as(Move) == world.moves[0]


async def test_a_level_that_is_as_wanted_is_not_ordered_again(world: World) -> None:
    await world.seconds(5)
    assert world.plane.levels == []


async def test_a_degraded_levels_lease_is_renewed_at_a_third_of_its_length(world: World) -> None:
    await world.seconds(DWELL_S - 1, AlertName.CACHE_BELOW_FLOOR)
    ordered = len(world.plane.levels)
    assert ordered == 1 + int((DWELL_S - 2) // (LEASE_S / 3))
    assert {order.level for order in world.plane.levels} == {Level(kv=KvRung.INT8)}
    assert len({order.operation_id for order in world.plane.levels}) == 1
    assert len(world.moves) == 1, "a renewal is no move"


async def test_orders_are_counted_by_what_the_journal_tells(world: World) -> None:
    """So that a data plane knows one that comes too late, and a renewal for what it is."""
    await world.seconds(DWELL_S - 1, AlertName.CACHE_BELOW_FLOOR)
    assert {order.sequence for order in world.plane.levels} == {1}
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    assert world.plane.levels[-1].sequence == 2


async def test_quiet_takes_the_level_back_and_full_fidelity_needs_no_lease(world: World) -> None:
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    world.hear(AlertName.LATENCY_DEGRADE, status="resolved")
    await world.seconds(DWELL_S + 1)
    assert world.level("b") == FULL
    ordered = len(world.plane.levels)
    await world.seconds(LEASE_S)
    assert len(world.plane.levels) == ordered


async def test_a_restarted_data_plane_gets_its_level_back_at_the_next_tick(world: World) -> None:
    await world.seconds(2, AlertName.LATENCY_DEGRADE)
    world.plane.forget_levels()
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    assert world.level("b") == DEGRADED
    assert len(world.moves) == 1


async def test_a_version_that_no_resident_has_moves_nothing(world: World) -> None:
    await world.seconds(3, AlertName.LATENCY_DEGRADE, version="v9")
    assert world.plane.levels == []
    assert world.moves == []


async def test_while_a_resident_is_down_its_level_is_held_and_its_quiet_proves_nothing(
    world: World,
) -> None:
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    world.hear(AlertName.LATENCY_DEGRADE, status="resolved")
    world.plane.residents["b"].state = ResidentState.LOADING
    world.plane.forget_levels()
    await world.seconds(2 * DWELL_S)
    assert world.level("b") == DEGRADED
    world.plane.residents["b"].state = ResidentState.READY
    await world.seconds(DWELL_S - 2)
    assert world.level("b") == DEGRADED
    await world.seconds(3)
    assert world.level("b") == FULL


async def test_while_the_data_plane_is_out_of_sight_its_quiet_proves_nothing(world: World) -> None:
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    world.hear(AlertName.LATENCY_DEGRADE, status="resolved")
    world.plane.reachable = False
    await world.seconds(2 * DWELL_S)
    world.plane.reachable = True
    await world.seconds(DWELL_S - 2)
    assert world.level("b") == DEGRADED
    await world.seconds(3)
    assert world.level("b") == FULL


async def test_a_process_that_slept_counts_none_of_it_as_quiet(world: World) -> None:
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    world.hear(AlertName.LATENCY_DEGRADE, status="resolved")
    world.clock.advance(2 * DWELL_S)
    await world.seconds(DWELL_S - 2)
    assert world.level("b") == DEGRADED
    await world.seconds(3)
    assert world.level("b") == FULL


@pytest.mark.parametrize("apart_s", [1.0, 4.0, 6.0])
async def test_ticks_that_come_seldom_still_degrade(world: World, apart_s: float) -> None:
    for _ in range(int(DWELL_S / apart_s) + 3):
        world.hear(AlertName.LATENCY_DEGRADE)
        await world.rounds.once()
        world.clock.advance(apart_s)
    assert world.level("b").media is MediaRung.P160_8K


async def test_a_clock_that_is_set_forward_eases_nothing(world: World) -> None:
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    world.hear(AlertName.LATENCY_DEGRADE, status="resolved")
    world.set_by_s = 3_700.0
    await world.seconds(DWELL_S - 2)
    assert world.level("b") == DEGRADED


async def test_a_successor_remembers_the_load_that_a_rung_must_be_given_back_to(
    world: World,
) -> None:
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    for requests in (600, 900, 100):
        world.tables = hung(requests)
        await world.seconds(SPAN_S, AlertName.LATENCY_DEGRADE)
    world.lead()
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    known = world.keeper._books["v1"].history
    assert known.peak(world.clock(), LINES.ladder.memory_s) == 30.0


async def test_native_pages_wait_until_they_would_fit(world: World) -> None:
    await world.seconds(1, AlertName.CACHE_BELOW_FLOOR)
    world.hear(AlertName.CACHE_BELOW_FLOOR, status="resolved")
    held = CacheSummary(version="v1", hit_rate=0.99, gpu_mem_gb=LINES.cache.gpu_mem_gb + 1)
    world.tables = Tables(
        wall=0.0,
        windows=windows(LINES),
        lines=lines_shown(LINES),
        cache=(),
        cache_summary=(held,),
        latency=(),
        faults=(),
    )
    await world.seconds(2 * DWELL_S)
    assert world.level("b") == Level(kv=KvRung.INT8)
    world.tables = None
    await world.seconds(DWELL_S - 1)
    assert world.level("b") == Level(kv=KvRung.INT8)
    await world.seconds(2)
    assert world.level("b") == FULL


# ---------------------------------------------------------------- what goes wrong
async def test_a_data_plane_that_is_away_is_unknown_and_met_again(world: World) -> None:
    world.plane.reachable = False
    world.tables, world.prometheus = None, False
    world.lead()
    assert await world.rounds.once() is None
    assert world.rounds.observed is None
    world.plane.reachable = True
    world.tables = hung(0)
    assert await world.rounds.once() == ()
    assert world.rounds.observed is not None


async def test_what_prometheus_says_is_known_though_the_data_plane_is_away(world: World) -> None:
    world.plane.reachable = False
    world.hear(AlertName.DATA_PLANE_DOWN)
    assert [firing.alert for firing in await world.rounds.once() or ()] == [
        AlertName.DATA_PLANE_DOWN
    ]


async def test_what_was_seen_stays_shown_while_the_next_tick_looks(world: World) -> None:
    await world.rounds.once()
    looking, go_on = asyncio.Event(), asyncio.Event()
    observe = world.plane.observe

    async def slow() -> Observed:
        looking.set()
        await go_on.wait()
        return await observe()

    world.plane.observe = slow
    tick = asyncio.create_task(world.rounds.once())
    await looking.wait()
    assert world.rounds.observed is not None, "it looks as if the data plane were away"
    go_on.set()
    await tick


async def test_an_order_that_is_refused_keeps_no_other_resident_waiting(world: World) -> None:
    world.plane.refuses = {"a"}
    world.hear(AlertName.LATENCY_DEGRADE, version="v2")
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    assert world.level("a") == FULL
    assert world.level("b") == DEGRADED
    world.plane.refuses = set()
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    assert world.level("a") == DEGRADED
    assert len(world.moves) == 2


async def test_an_unwritable_journal_refuses_the_move_and_keeps_going(world: World) -> None:
    world.journal.full = True
    world.hear(AlertName.LATENCY_DEGRADE)
    firing = await world.rounds.once()
    assert [each.alert for each in firing or ()] == [AlertName.LATENCY_DEGRADE]
    assert world.level("b") == FULL
    assert world.moves == []
    world.journal.full = False
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    assert world.level("b") == DEGRADED


async def test_an_unwritable_journal_does_not_let_the_level_that_is_held_run_out(
    world: World,
) -> None:
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    world.journal.full = True
    before = len(world.plane.levels)
    await world.seconds(LEASE_S, AlertName.LATENCY_DEGRADE)  # it would go on to the next rung
    renewals = world.plane.levels[before:]
    assert len(renewals) >= 2
    assert {order.level for order in renewals} == {DEGRADED}


async def test_a_leader_that_was_replaced_moves_nothing(world: World) -> None:
    with closing(LeaderLease(world.path, "another", 5.0)) as lease:
        assert lease.acquire() == 1
        lease.release()
        assert lease.acquire() == 2
    world.hear(AlertName.LATENCY_DEGRADE)
    with pytest.raises(StaleLeader):
        await world.rounds.once()
    assert world.plane.levels == []


# ---------------------------------------------------------------- modes
async def test_a_freeze_holds_in_both_directions_and_keeps_the_lease(world: World) -> None:
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    await world.keeper.set_mode(Mode.FROZEN, "ann")
    before = len(world.plane.levels)
    await world.seconds(2 * DWELL_S, AlertName.LATENCY_DEGRADE)
    world.hear(AlertName.LATENCY_DEGRADE, status="resolved")
    await world.seconds(2 * DWELL_S)
    assert world.level("b") == DEGRADED
    assert len(world.plane.levels) - before >= 4 * DWELL_S // (LEASE_S / 3) - 1
    assert len(world.moves) == 1


async def test_a_freeze_needs_no_disk_and_is_journalled_when_there_is_room(world: World) -> None:
    world.journal.full = True
    await world.keeper.set_mode(Mode.FROZEN, "ann")
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    assert world.keeper.mode is Mode.FROZEN
    assert world.moves == []
    with pytest.raises(JournalUnwritable):
        await world.keeper.set_mode(Mode.LIVE, "ann")
    assert world.keeper.mode is Mode.FROZEN
    world.journal.full = False
    await world.seconds(1)
    (entry,) = world.journal.read(kinds=[MODE])
    assert entry.actor == "ann"
    world.lead()
    assert world.keeper.mode is Mode.FROZEN


async def test_no_move_follows_a_freeze_that_was_acknowledged(world: World) -> None:
    """The tick has decided and waits for the disk as the freeze comes."""
    await world.seconds(1)
    world.journal.gate = threading.Event()
    world.hear(AlertName.LATENCY_DEGRADE)
    tick = asyncio.create_task(world.rounds.once())
    while not world.keeper._writing.locked():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    freeze = asyncio.create_task(world.keeper.set_mode(Mode.FROZEN, "ann"))
    await asyncio.sleep(0.01)
    assert not freeze.done()
    world.journal.gate.set()
    await asyncio.gather(tick, freeze)
    assert [entry.kind for entry in world.journal.read()] == [MOVED, MODE]


async def test_a_dry_run_orders_nothing_and_says_what_it_would_do_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await world.keeper.set_mode(Mode.DRY_RUN, "ann")
    await world.seconds(3, AlertName.LATENCY_DEGRADE)
    assert world.plane.levels == []
    assert world.moves == []
    told = [r.getMessage() for r in caplog.records if "dry run" in r.getMessage()]
    assert told == ["dry run: v1 would take its media to rung 1 (RedlineLatencyDegrade)"]
    would = {each.version: each.would for each in world.keeper.status()}
    assert [(move.part, move.rung) for move in would["v1"]] == [(Part.MEDIA, 1)]
    assert would["v2"] == ()
    await world.keeper.set_mode(Mode.LIVE, "ann")
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    assert [each.would for each in world.keeper.status()] == [(), ()]


# ---------------------------------------------------------------- restarts
async def test_a_restart_rebuilds_levels_dwell_and_mode_from_the_journal(world: World) -> None:
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    await world.keeper.set_mode(Mode.FROZEN, "ann")
    world.plane.forget_levels()
    world.lead()
    await world.seconds(1)
    assert world.level("b") == DEGRADED
    assert world.plane.levels[-1].leader_epoch == 2
    assert world.keeper.mode is Mode.FROZEN


async def test_a_restart_reads_the_newest_moves_however_many_there_were(world: World) -> None:
    """A fold over the first ten thousand would stand where the ladder stood years ago."""
    moves = [
        Move(at=0.0, version="v1", part=Part.MEDIA, rung=rung, reason="long ago") for rung in (1, 0)
    ]
    with closing(sqlite3.connect(world.path)) as db, db:
        db.executemany(
            "INSERT INTO entries (wall, leader_epoch, actor, kind, body) VALUES (0, 1, '', ?, ?)",
            [(MOVED, msgspec.json.encode(move).decode()) for move in moves * 5_000],
        )
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    world.lead()
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    assert world.level("b") == DEGRADED
    assert len(world.moves) == 1


# ---------------------------------------------------------------- who evaluates the rules
async def test_a_silent_prometheus_hands_over_to_the_tables_without_a_second_move(
    world: World,
) -> None:
    world.tables = hung(0)
    await world.seconds(1)
    world.tables = hung(20)
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    assert world.watch.rule_source == "prometheus"
    world.clock.advance(LINES.alerts.heartbeat_silence_s + 1)
    world.tables = hung(40)
    firing = await world.rounds.once()
    assert world.watch.rule_source == "embedded"
    assert [each.alert for each in firing or ()] == [AlertName.LATENCY_DEGRADE]
    assert len(world.moves) == 1
    world.hear(AlertName.LATENCY_DEGRADE)
    await world.rounds.once()
    assert world.watch.rule_source == "prometheus"
    assert len(world.moves) == 1
    assert world.level("b") == DEGRADED


async def test_without_prometheus_a_heartbeat_makes_no_difference(tmp_path: Path) -> None:
    world = World(tmp_path, prometheus=False)
    with closing(world.journal):
        world.tables = hung(0)
        await world.seconds(1)
        world.tables = hung(20)
        await world.seconds(1, AlertName.CACHE_BELOW_FLOOR)
        assert world.watch.rule_source == "embedded"
        assert world.level("b") == DEGRADED, "the tables decide, not the webhook"
