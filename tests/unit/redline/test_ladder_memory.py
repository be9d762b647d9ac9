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

from alerts.decide import Hold, foresee
from alerts.forecast import SPAN_S
from alerts.ladder import Move
from alerts.parts import Part
from alerts.policy import AlertName
from monitors.contract import ALL_CLASSES, MediaRung
from monitors.journal import JournalUnwritable
from monitors.tables import Tables
from redline.control.ladder_api import HoldOrder, PartStatus
from redline.control.ladder_book import Book, Loads, recall
from redline.control.ladder_events import KINDS, MOVED
from tests.unit.redline.ladder_world import DEGRADED, DWELL_S, FULL, LINES, World, hung

HOUR_S, BUDGET = 3_600.0, LINES.ladder.moves_per_hour
WINDOW_S, MEMORY_S = LINES.latency.window_s, LINES.ladder.memory_s


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


def ebb(at: float) -> float:
    """The same, each crest a tenth lower than the one before: each is the highest at some time."""
    return sine(at) * 0.9 ** (at / 600.0)


def do_nothing(at: float) -> None:
    del at


async def swing(
    world: World,
    seconds: int,
    load: Callable[[float], float],
    then: Callable[[float], None] = do_nothing,
) -> list[Move]:
    """The load goes on after media went to 360p near its peak, as it does with half of the work.
    All of the ladder's moves. `then`: what follows a tick."""
    began = world.clock()
    while (at := world.clock() - began) < seconds:
        per_s = load(at)
        work_s = 0.011 if world.level("b").media else 0.02
        world.tables, world.plane.busy_share = answered(per_s), work_s * per_s
        if at == 290.0:
            world.hear(AlertName.LATENCY_DEGRADE)
        if at == 300.0:
            world.hear(AlertName.LATENCY_DEGRADE, status="resolved")
        await world.seconds(1)
        then(at)
    return world.moves


async def test_a_control_plane_that_starts_in_a_trough_gives_nothing_back_earlier_or_later(
    tmp_path: Path,
) -> None:
    def ends(at: float) -> float:
        return sine(at) if at < 1_740.0 else 30.0

    async def eased(world: World, then: Callable[[float], None]) -> float:
        with closing(world.journal):
            down, back = await swing(world, 3_700, ends, then)
        return back.at - down.at

    def kill(at: float) -> None:
        if at == 1_740.0:
            killed.lead()

    (tmp_path / "killed").mkdir()
    world, killed = World(tmp_path), World(tmp_path / "killed")
    without = await eased(world, do_nothing)
    assert without > 1_700.0, "it waited for the load"
    assert await eased(killed, kill) == pytest.approx(without, abs=SPAN_S)


async def test_whenever_a_leader_dies_its_successor_forecasts_as_it_would_have(
    world: World,
) -> None:
    """A successor for every moment goes on beside the leader, which never dies."""
    successors: dict[float, Book] = {}  # by when they began
    own: list[float] = []  # the peak that the leader remembers, by the second
    theirs: list[tuple[float, float, float]] = []
    crossed: dict[float | None, float] = {}  # when each foresaw last that the line is crossed

    def then(at: float) -> None:
        leader, now = world.keeper._books["v1"], world.clock() - 1.0
        own.append(leader.history.peak(now, MEMORY_S) or 0.0)
        if 300.0 < at < 2_700.0 and at % 97.0 == 0.0:
            successors[at] = recall(world.journal, {"v1"}, now, LINES)["v1"]
        for book in successors.values():
            book.note(now, leader.history.newest, LINES.ladder)
        if at % (SPAN_S / 2):
            return
        for began, book in (*successors.items(), (None, leader)):
            theirs.append((began or 0.0, at, book.history.peak(now, MEMORY_S) or 0.0))
            if foresee(leader.ladder, Part.MEDIA, book.history, now, LINES).crosses:
                crossed[began] = at

    await swing(world, 4_500, ebb, then)
    span = int(SPAN_S)
    for began, at, peak in theirs:
        around = own[max(int(at) - span, 0) : int(at) + span + 1]
        assert min(around) <= peak <= max(around), (began, at)
    last = crossed.pop(None)
    assert 3_000.0 < last < 4_400.0
    assert len(crossed) == len(successors) > 20
    assert list(crossed.values()) == pytest.approx([last] * len(crossed), abs=SPAN_S)


async def test_a_load_that_swings_is_kept_once_in_a_span_and_adds_nothing_to_the_journal(
    world: World,
) -> None:
    kept: list[str] = []
    remember = world.journal.remember

    def count(name: str, *args, **kwargs):
        kept.append(name)
        remember(name, *args, **kwargs)

    world.journal.remember = count
    await swing(world, 900, sine)
    assert set(kept) == {"ladder.loads v1"}
    assert 600 / SPAN_S <= len(kept) <= 1 + 610 / SPAN_S
    assert len(world.journal.read(kinds=list(KINDS))) <= 2


def loads_kept(world: World) -> Loads | None:
    return world.journal.remembered("ladder.loads v1", Loads)


async def test_a_load_is_kept_where_a_rung_waits_for_it_and_not_for_memory_alone(
    world: World,
) -> None:
    world.tables = answered(20.0)
    await world.seconds(5, AlertName.CACHE_BELOW_FLOOR)
    assert loads_kept(world) is None
    await world.seconds(5, AlertName.FIRST_PACKET_SHED)
    kept = loads_kept(world)
    assert kept is not None
    assert [per_s for _, per_s in kept.peaks] == [20.0]


async def test_a_load_that_no_disk_takes_stops_nothing_and_is_kept_once_there_is_room(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    world.tables, world.journal.full = hung(600), True
    await world.seconds(5, AlertName.LATENCY_DEGRADE)
    assert loads_kept(world) is None
    assert "the load is remembered by this process alone" in caplog.text
    world.journal.full = False
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    assert loads_kept(world) is not None


# ---------------------------------------------------------------- a clock that is set
def hold(for_s: float) -> HoldOrder:
    return HoldOrder(
        resident="b", classes=ALL_CLASSES, parts={Part.MEDIA: 2}, for_s=for_s, actor="ann",
        reason="a fair",
    )  # fmt: skip


def fill(world: World, moves: list[Move]) -> None:
    with closing(sqlite3.connect(world.path)) as db, db:
        db.executemany(
            "INSERT INTO entries (wall, leader_epoch, actor, kind, body) VALUES (0, 1, '', ?, ?)",
            [(MOVED, msgspec.json.encode(move).decode()) for move in moves],
        )


def part_of(world: World, part: Part) -> PartStatus:
    status = next(each for each in world.keeper.status() if each.resident == "b")
    return next(each for each in status.parts if each.part is part)


def spend(world: World) -> None:
    """The hour's moves of KV, which ends at int8."""
    moves = [
        Move(at=world.wall(), version="v1", part=Part.KV, rung=rung, reason="it was needed")
        for rung in (1, 0) * (BUDGET // 2)
    ]
    fill(world, [*moves, msgspec.structs.replace(moves[0], rung=1)])


async def lasts_s(world: World) -> float:
    """How long the override goes on, in seconds as they go by."""
    began = world.clock()
    while world.level("b").media is MediaRung.P160_8K:
        await world.seconds(1)
        assert world.clock() - began < 2 * HOUR_S
    return world.clock() - began


async def comes_back_within_the_hour(world: World) -> None:
    """The budget, of which nothing was left minutes ago."""
    await world.seconds(HOUR_S - 710.0)
    assert part_of(world, Part.KV).moves_left == 0
    await world.seconds(110.0)
    assert part_of(world, Part.KV).moves_left > 0


@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
async def test_a_clock_that_is_set_while_a_leader_lives_changes_no_override_and_no_budget(
    world: World, by_s: float
) -> None:
    spend(world)
    await world.seconds(1)
    assert part_of(world, Part.KV).moves_left == 0
    await world.keeper.hold(hold(600.0))
    await world.seconds(100.0)
    world.set_by_s = by_s
    await world.seconds(1.0)
    (held,) = (each.override for each in world.keeper.status() if each.resident == "b")
    assert held is not None
    assert held.until - world.wall() == pytest.approx(499.0, abs=2.0), "people read it so"
    assert part_of(world, Part.MEDIA).since == pytest.approx(world.wall() - 101.0, abs=2.0)
    assert await lasts_s(world) == pytest.approx(500.0, abs=3.0)
    await comes_back_within_the_hour(world)


async def test_a_leader_that_starts_after_the_clock_was_set_back_takes_what_lies_ahead_for_new(
    world: World,
) -> None:
    spend(world)
    await world.seconds(1)
    await world.keeper.hold(hold(600.0))
    await world.seconds(100.0)
    world.set_by_s = -HOUR_S
    world.lead()
    await world.seconds(1)
    assert part_of(world, Part.KV).moves_left == 0
    since = [part_of(world, part).since for part in (Part.MEDIA, Part.KV)]
    assert since == pytest.approx([world.wall()] * 2, abs=2.0)
    assert await lasts_s(world) == pytest.approx(600.0, abs=3.0)
    await comes_back_within_the_hour(world)


async def test_to_a_leader_that_starts_after_the_clock_was_set_forward_as_much_time_has_passed(
    world: World,
) -> None:
    spend(world)
    await world.seconds(1)
    await world.keeper.hold(hold(HOUR_S + 600.0))
    await world.seconds(100.0)
    world.set_by_s = HOUR_S
    world.lead()
    assert await lasts_s(world) == pytest.approx(500.0, abs=3.0)
    assert part_of(world, Part.KV).moves_left > 0


async def test_after_the_clock_was_set_back_the_forecast_is_not_blind(world: World) -> None:
    """A move that lies ahead would put off every look that tells until its time had come."""
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    world.tables, world.plane.busy_share = answered(40.0), 0.7
    await world.seconds(SPAN_S, AlertName.LATENCY_DEGRADE)
    world.hear(AlertName.LATENCY_DEGRADE, status="resolved")
    world.set_by_s = -HOUR_S
    world.lead()
    await world.seconds(2 * DWELL_S)
    assert part_of(world, Part.MEDIA).holds == (Hold.FORECAST,)


# ---------------------------------------------------------------- what the journal has
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


async def test_loads_of_another_form_are_gathered_anew_and_end_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    world.journal.remember("ladder.loads v1", Hold.FORECAST, world.epoch)
    world.lead()
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    assert {status.level for status in world.keeper.status()} == {FULL, DEGRADED}
    assert "the loads of v1 cannot be read" in caplog.text
    world.tables = hung(600)
    await world.seconds(2, AlertName.LATENCY_DEGRADE)
    assert loads_kept(world) is not None


async def test_an_event_of_another_form_opens_no_book_and_ends_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.journal.append(MOVED, "another release", {"old": "form"}, world.epoch)
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    assert world.keeper.status() == ()
    assert "the journal cannot be read" in caplog.text


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
