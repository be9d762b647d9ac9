"""The keeper under a human's hand, and what it tells: overrides, evidence, leases."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.decide import Hold
from alerts.ladder import Mode
from alerts.names import AlertName
from alerts.overrides import OverrideError
from alerts.parts import Part
from monitors.contract import ALL_CLASSES, Admission, KvRung, Level, MediaRung, SessionClass
from monitors.journal import JournalUnwritable
from monitors.labels import Milestone
from monitors.latency_table import LatencyTable
from redline.control.ladder_api import HoldOrder, ReleaseOrder
from redline.control.ladder_events import MOVED, OVERRIDE, OVERRIDE_ENDED
from redline.control.ladder_keeper import jittered
from tests.unit.redline.ladder_world import DEGRADED, DWELL_S, FULL, LEASE_S, LINES, World, hung


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with closing(made.journal):
        yield made


def ladder_entries(world: World) -> list[str]:
    kinds = (MOVED, OVERRIDE, OVERRIDE_ENDED)
    return [entry.kind for entry in world.journal.read(kinds=kinds)]


# ---------------------------------------------------------------- overrides
def hold(for_s: float = 600.0, classes=ALL_CLASSES, resident: str = "b", **parts: int) -> HoldOrder:
    return HoldOrder(
        resident=resident, classes=tuple(classes),
        parts={Part(part): rung for part, rung in parts.items()},
        for_s=for_s, actor="ann", reason="a fair",
    )  # fmt: skip


async def test_an_override_is_journalled_ordered_held_and_ends_by_itself(world: World) -> None:
    await world.seconds(1)
    status = await world.keeper.hold(hold(for_s=100.0, media=2))
    assert status.override is not None
    await world.seconds(1)
    (order,) = world.plane.levels
    assert (order.level.media, order.actor, order.reason) == (MediaRung.P160_8K, "ann", "a fair")
    await world.seconds(DWELL_S + 1)
    assert world.level("b").media is MediaRung.P160_8K, "quiet gives nothing back meanwhile"
    assert world.moves == []
    await world.seconds(50.0)
    kinds = ladder_entries(world)
    assert kinds == [OVERRIDE, OVERRIDE_ENDED, MOVED]
    assert world.level("b").media is MediaRung.P360_8K, "it goes on from there by its own rules"


async def test_an_order_names_the_parts_that_a_human_holds_and_the_evidence_can_tell(
    world: World,
) -> None:
    def by_hand() -> tuple[str, ...]:
        return world.plane.held.by_hand("b", SessionClass.INTERACTIVE)

    await world.seconds(1)
    await world.keeper.hold(hold(for_s=100.0, media=2))
    await world.seconds(1, AlertName.CACHE_BELOW_FLOOR)
    assert world.level("b").kv is KvRung.INT8
    assert by_hand() == ("media",)
    await world.keeper.set_mode(Mode.FROZEN, "ann")
    await world.seconds(LEASE_S / 3 + 2)
    assert set(by_hand()) == set(Part), "nothing moves but by a human"
    await world.keeper.set_mode(Mode.LIVE, "ann")
    await world.keeper.release(ReleaseOrder(resident="b", actor="bob"))
    await world.seconds(LEASE_S / 3 + 2, AlertName.CACHE_BELOW_FLOOR)
    assert by_hand() == ()


async def test_an_override_outlives_its_leader(world: World) -> None:
    await world.seconds(1)
    await world.keeper.hold(hold(for_s=100.0, media=1, kv=1))
    world.plane.forget_levels()
    world.lead()
    await world.seconds(2)
    assert world.level("b") == Level(media=MediaRung.P360_8K, kv=KvRung.INT8)
    held = next(each.override for each in world.keeper.status() if each.resident == "b")
    assert held is not None
    assert (held.actor, held.until - world.clock()) == ("ann", pytest.approx(98.0))


async def test_an_override_of_one_class_gives_that_class_its_own_order(world: World) -> None:
    await world.seconds(1)
    await world.keeper.hold(hold(classes=[SessionClass.BATCH], media=2, admission=1))
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    batch = Level(media=MediaRung.P160_8K, admission=Admission.LIMITED)
    assert world.plane.held.apart("b") == {SessionClass.BATCH: batch}
    assert world.level("b") == DEGRADED
    assert {order.classes for order in world.plane.levels} == {
        (SessionClass.INTERACTIVE,),
        (SessionClass.BATCH,),
    }
    await world.keeper.release(ReleaseOrder(resident="b", actor="bob"))
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    assert world.plane.held.apart("b") == {}
    assert world.plane.levels[-1].classes == ALL_CLASSES


async def test_a_human_may_hold_a_level_while_the_ladder_is_frozen(world: World) -> None:
    await world.seconds(1)
    await world.keeper.set_mode(Mode.FROZEN, "ann")
    await world.keeper.hold(hold(media=1))
    await world.seconds(1)
    assert world.level("b") == DEGRADED


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (hold(resident="x", media=1), "no resident is called 'x'; there are: a, b"),
        (hold(), "at least one part"),
        (hold(media=1, for_s=0.0), "more than 0 s"),
    ],
)
async def test_an_override_that_cannot_be_is_refused(
    world: World, order: HoldOrder, why: str
) -> None:
    await world.seconds(1)
    with pytest.raises(OverrideError, match=why):
        await world.keeper.hold(order)
    with pytest.raises(OverrideError, match="nothing holds 'b'"):
        await world.keeper.release(ReleaseOrder(resident="b", actor="ann"))
    assert ladder_entries(world) == []


async def test_an_override_that_no_disk_takes_holds_nothing_and_its_end_waits_for_none(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.seconds(1)
    world.journal.full = True
    with pytest.raises(JournalUnwritable):
        await world.keeper.hold(hold(media=1))
    await world.seconds(1)
    assert world.level("b") == FULL
    world.journal.full = False
    await world.keeper.hold(hold(media=1, classes=[SessionClass.BATCH], for_s=5.0))
    world.journal.full = True
    await world.seconds(7)
    assert world.plane.held.apart("b") == {}
    assert "1 waiting to be journalled: the disk is full" in caplog.text
    world.journal.full = False
    await world.seconds(1)
    assert ladder_entries(world) == [OVERRIDE, OVERRIDE_ENDED]


# ---------------------------------------------------------------- what is told
async def test_an_order_and_a_move_carry_what_moved_them(world: World) -> None:
    table = LatencyTable(LINES, clock=world.clock)
    for _ in range(60):
        table.overdue("v1", Milestone.FIRST_TOKEN)
        table.observe("v1", Milestone.FIRST_TOKEN, 0.52)
    world.tables = msgspec.structs.replace(hung(0), latency=table.rows(world.clock()))
    world.plane.busy_share = 0.93
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    (order,) = world.plane.levels
    assert order.evidence == "p99 520 ms, 2.0 requests/s, 93% busy"
    assert world.moves[0].seen.per_s == 2.0


def hold_media(classes: tuple[SessionClass, ...]) -> HoldOrder:
    return hold(classes=classes, media=2)


@pytest.mark.parametrize("classes", [ALL_CLASSES, (SessionClass.BATCH,)])
async def test_an_alert_that_moves_another_part_is_not_said_to_be_the_hands(
    world: World, classes: tuple[SessionClass, ...]
) -> None:
    await world.seconds(1)
    await world.keeper.hold(hold_media(classes))
    await world.seconds(1)
    (by_hand,) = world.plane.levels
    assert (by_hand.actor, by_hand.reason, by_hand.evidence) == ("ann", "a fair", "")
    world.plane.busy_share = 0.93
    await world.seconds(1, AlertName.CACHE_BELOW_FLOOR)
    for order in world.plane.levels[1:]:
        assert order.level.kv is KvRung.INT8
        assert (order.actor, order.reason) == ("ladder", AlertName.CACHE_BELOW_FLOOR)
        assert "93% busy" in order.evidence


async def test_an_order_that_renews_says_what_moved_last_of_what_it_holds(world: World) -> None:
    await world.seconds(1, AlertName.CACHE_BELOW_FLOOR)
    await world.keeper.hold(hold_media(ALL_CLASSES))
    await world.seconds(LEASE_S, AlertName.CACHE_BELOW_FLOOR)
    assert {order.actor for order in world.plane.levels[1:]} == {"ann"}
    assert {order.level.kv for order in world.plane.levels[1:]} == {KvRung.INT8}


async def test_a_ladder_says_where_it_stands_and_what_holds_it(world: World) -> None:
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    world.hear(AlertName.LATENCY_DEGRADE, status="resolved")
    await world.seconds(20)
    status = next(each for each in world.keeper.status() if each.resident == "b")
    media = next(part for part in status.parts if part.part is Part.MEDIA)
    assert (status.level, media.word, media.why) == (
        DEGRADED, "360p+8k", AlertName.LATENCY_DEGRADE,
    )  # fmt: skip
    assert media.holds == (Hold.DWELL,)
    assert media.dwell_left_s == pytest.approx(DWELL_S - 21.0)
    assert media.moves_left == LINES.ladder.moves_per_hour - 1


async def test_the_leases_of_two_residents_do_not_end_together(world: World) -> None:
    world.hear(AlertName.LATENCY_DEGRADE, version="v2")
    await world.seconds(1, AlertName.LATENCY_DEGRADE)
    leases = [order.lease_s for order in world.plane.levels]
    assert len(set(leases)) == 2
    assert all(abs(lease_s - LEASE_S) <= 0.1 * LEASE_S for lease_s in leases)


@given(st.text())
def test_a_lease_is_jittered_by_a_tenth_and_the_same_for_the_same_operation(name: str) -> None:
    lease_s = jittered(LEASE_S, name)
    assert abs(lease_s - LEASE_S) <= 0.1 * LEASE_S + 1e-9
    assert jittered(LEASE_S, name) == lease_s
