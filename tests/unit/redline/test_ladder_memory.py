"""What outlives a leader, a version out of sight and a clock that is set: loads, holds, budgets."""

import asyncio
import math
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from alerts.ladder import Move, Peak
from alerts.parts import Part
from alerts.policy import AlertName
from monitors.contract import ALL_CLASSES, MediaRung
from monitors.journal import JournalUnwritable
from monitors.tables import Tables
from redline.control.ladder_api import HoldOrder
from redline.control.ladder_events import MOVED, PEAK
from tests.unit.redline.ladder_world import DEGRADED, DWELL_S, FULL, LINES, World, hung

WINDOW_S = LINES.latency.window_s


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with closing(made.journal):
        yield made


# ---------------------------------------------------------------- the load that is remembered
def answered(per_s: float) -> Tables:
    """So many requests a second of v1's, answered in 100 ms."""
    many = round(per_s * WINDOW_S)
    (row,) = hung(many).latency
    fast = msgspec.structs.replace(
        row, count=many, over=0, p99_s=0.1, over_share=0.0, slow_share=0.0
    )
    return msgspec.structs.replace(hung(many), latency=(fast,))


def sine(at: float) -> float:
    """10 minutes from trough to trough."""
    return 39.5 - 9.5 * math.cos(2 * math.pi * at / 600.0)


async def swing(
    world: World, seconds: int, load: Callable[[float], float], killed_at: float | None = None
) -> list[Move]:
    """The load goes on after media went to 360p near its peak, as it does with half of the work.
    All of the ladder's moves."""
    began = world.clock()
    while (at := world.clock() - began) < seconds:
        per_s = load(at)
        work_s = 0.011 if world.level("b").media else 0.02
        world.tables, world.plane.busy_share = answered(per_s), work_s * per_s
        if at == killed_at:
            world.lead()
        if at == 290.0:
            world.hear(AlertName.LATENCY_DEGRADE)
        if at == 300.0:
            world.hear(AlertName.LATENCY_DEGRADE, status="resolved")
        await world.seconds(1)
    return world.moves


async def test_a_control_plane_that_starts_in_a_trough_gives_nothing_back_earlier(
    tmp_path: Path,
) -> None:
    def ends(at: float) -> float:
        return sine(at) if at < 2_340.0 else 30.0

    eased: list[float] = []
    for killed_at in (None, 2_340.0):
        folder = tmp_path / str(killed_at)
        folder.mkdir()
        world = World(folder)
        with closing(world.journal):
            down, back = await swing(world, 4_800, ends, killed_at)
            eased.append(back.at - down.at)
    without, killed = eased
    assert killed >= without - 1.0
    assert killed <= without + LINES.ladder.memory_s / 2


async def test_a_load_that_swings_is_journalled_a_few_times_an_hour(world: World) -> None:
    await swing(world, 7_200, sine)
    peaks = [entry.read_as(Peak).per_s for entry in world.journal.read(kinds=[PEAK])]
    assert max(peaks) == pytest.approx(49.0, rel=0.05)
    assert len(peaks) <= 2 * 6


async def test_a_load_is_journalled_where_a_rung_waits_for_it_and_not_for_memory_alone(
    world: World,
) -> None:
    world.tables = hung(600)
    await world.seconds(5, AlertName.CACHE_BELOW_FLOOR)
    assert list(world.journal.read(kinds=[PEAK])) == []
    await world.seconds(5, AlertName.FIRST_PACKET_SHED)
    assert len(world.journal.read(kinds=[PEAK])) <= 1


# ---------------------------------------------------------------- a clock that is set
def hold(for_s: float) -> HoldOrder:
    return HoldOrder(
        resident="b", classes=ALL_CLASSES, parts={Part.MEDIA: 2}, for_s=for_s, actor="ann",
        reason="a fair",
    )  # fmt: skip


@pytest.mark.parametrize("by_s", [3_700.0, -3_700.0])
async def test_a_clock_that_is_set_ends_no_override_and_empties_no_budget(
    world: World, by_s: float
) -> None:
    await world.seconds(1, AlertName.CACHE_BELOW_FLOOR)
    await world.keeper.hold(hold(600.0))
    world.keeper._wall = lambda: world.clock() + by_s
    await world.seconds(590.0)
    status = next(each for each in world.keeper.status() if each.resident == "b")
    assert status.override is not None
    kv = next(part for part in status.parts if part.part is Part.KV)
    assert kv.moves_left == LINES.ladder.moves_per_hour - 2
    assert world.level("b").media is MediaRung.P160_8K
    await world.seconds(20.0)
    assert world.level("b").media is not MediaRung.P160_8K


# ---------------------------------------------------------------- what the journal has
def fill(world: World, moves: list[Move]) -> None:
    with closing(sqlite3.connect(world.path)) as db, db:
        db.executemany(
            "INSERT INTO entries (wall, leader_epoch, actor, kind, body) VALUES (0, 1, '', ?, ?)",
            [(MOVED, msgspec.json.encode(move).decode()) for move in moves],
        )


async def test_nobody_waits_while_the_journal_is_read(world: World) -> None:
    """What is done at once where a reader holds the loop: nothing."""
    began, go_on = threading.Event(), threading.Event()
    read = world.journal.read

    def slow(*args, **kwargs):
        began.set()
        assert go_on.wait(10)
        return read(*args, **kwargs)

    world.journal.read = slow
    world.lead()
    tick = asyncio.create_task(world.keeper.tick((), await world.plane.observe(), None))
    while not began.is_set():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert world.keeper.status() == ()
    go_on.set()
    await tick
    assert len(world.keeper.status()) == 2


async def test_a_journal_is_read_no_more_once_its_versions_are_known(world: World) -> None:
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    world.journal.read = None
    world.journal.full = True
    await world.seconds(2 * DWELL_S, AlertName.LATENCY_DEGRADE)
    assert world.level("b") == DEGRADED


async def test_a_version_that_comes_again_stands_where_it_stood_and_none_is_kept_for_ever(
    world: World,
) -> None:
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    resident = world.plane.residents["b"]
    for version in ("v3", "v4"):
        resident.version = version
        await world.seconds(2)
    assert set(world.keeper._books) == {"v2", "v4"}
    resident.version = "v1"
    world.hear(AlertName.LATENCY_DEGRADE, status="resolved")
    await world.seconds(DWELL_S - 1)
    wanted = {each.version: each.level for each in world.keeper.status()}
    assert wanted == {"v1": DEGRADED, "v2": FULL}, "and its dwell begins as it is seen again"
    await world.seconds(2)
    assert [(move.part, move.rung) for move in world.moves] == [(Part.MEDIA, 1), (Part.MEDIA, 0)]


async def test_a_journal_that_cannot_be_read_is_read_again_at_the_next_tick(world: World) -> None:
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    read = world.journal.read

    def broken(*args, **kwargs):
        raise JournalUnwritable("disk I/O error")

    world.lead()
    world.journal.read = broken
    await world.keeper.tick((), await world.plane.observe(), None)
    assert world.keeper.status() == ()
    world.journal.read = read
    await world.keeper.tick((), await world.plane.observe(), None)
    assert {status.level for status in world.keeper.status()} == {FULL, DEGRADED}


async def test_no_level_is_shown_before_it_is_journalled(world: World) -> None:
    await world.seconds(1)
    shown: list[object] = []
    append = world.journal.append

    def look(kind: str, *args, **kwargs):
        if kind == MOVED:
            shown.extend(each.level for each in world.keeper.status())
        return append(kind, *args, **kwargs)

    world.journal.append = look
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    assert shown == [FULL, FULL]
