"""Levels whatever comes and when: leases, renewals, latencies, late orders, and two leaders."""

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.contract import (
    ALL_CLASSES,
    Admission,
    KvRung,
    LadderOrder,
    Level,
    MediaRung,
    SessionClass,
    Shed,
)
from monitors.redlines import RedLines
from monitors.rungs import shown
from runtime.levels import Levels, OperationReused, OrderLate

LINES = RedLines()
LINE_S, DWELL_S = LINES.latency.degrade_s, LINES.ladder.dwell_s
INTERACTIVE, BATCH = SessionClass.INTERACTIVE, SessionClass.BATCH
WORST = Level(media=MediaRung.P160_8K, kv=KvRung.INT8, shed=Shed.ON, admission=Admission.LIMITED)

rungs = st.builds(
    Level,
    media=st.sampled_from(MediaRung),
    kv=st.sampled_from(KvRung),
    shed=st.sampled_from(Shed),
    admission=st.sampled_from(Admission),
)
latencies = st.one_of(st.none(), st.floats(0.0, 1.0), st.just(float("inf")))


@dataclass(frozen=True)
class Sent:
    """An order of a leader, in short."""

    sequence: int
    media: MediaRung
    classes: tuple[SessionClass, ...]


class World:
    """A resident's levels on a clock that only moves when told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.levels = Levels(("b",), LINES, clock=lambda: self.now)

    def order(self, level: Level, name: str, leader: int = 1, **more: object) -> bool:
        given = {
            "leader_epoch": leader, "operation_id": name, "resident": "b", "classes": ALL_CLASSES,
            "level": level, "lease_s": 120.0, "actor": "test", "reason": "test",
        }  # fmt: skip
        return self.levels.order(LadderOrder(**{**given, **more}))

    def deliver(self, sent: Sent) -> bool:
        """Whether it was taken."""
        name = f"{sent.sequence} {sent.media} {sent.classes}"
        level = Level(media=sent.media)
        try:
            self.order(level, name, classes=sent.classes, sequence=sent.sequence)
        except OrderLate:
            return False
        return True

    def level(self, session_class: SessionClass = INTERACTIVE) -> Level:
        return self.levels.of("b", session_class)


def depth(level: Level) -> int:
    return sum(int(getattr(level, part)) for part in level.__struct_fields__)


@settings(max_examples=200, deadline=None)
@given(
    level=rungs,
    lease_s=st.floats(0.1, 600.0),
    waits=st.lists(st.tuples(st.floats(0.0, 200.0), latencies), max_size=40),
)
def test_without_a_control_plane_it_holds_its_lease_then_climbs_a_step_a_dwell_while_in_time(
    level: Level, lease_s: float, waits: list[tuple[float, float | None]]
) -> None:
    world = World()
    world.order(level, "op", lease_s=lease_s)
    stepped_at = None
    for wait_s, p99_s in waits:
        world.now += wait_s
        before = world.level()
        stepped = world.levels.recover("b", p99_s)
        assert depth(before) - depth(world.level()) == int(stepped)
        if not stepped:
            continue
        assert world.now >= lease_s, "the lease still ran"
        assert p99_s is None or p99_s <= LINE_S, "first outputs were late"
        assert stepped_at is None or world.now - stepped_at >= DWELL_S
        stepped_at = world.now
    for _ in range(depth(WORST)):
        world.now += lease_s + DWELL_S
        world.levels.recover("b", 0.1)
    assert world.levels.is_full("b"), "left alone and in time it gets there"


@settings(max_examples=100, deadline=None)
@given(
    level=rungs.filter(lambda each: each != Level()),
    gaps=st.lists(st.floats(0.0, 119.0), min_size=1, max_size=30),
)
def test_a_lease_that_is_renewed_in_time_is_never_climbed_from(
    level: Level, gaps: list[float]
) -> None:
    world = World()
    for gap_s in gaps:
        world.order(level, "op")
        world.now += gap_s
        assert not world.levels.recover("b", 0.1)
        assert world.level() == level


@settings(max_examples=25, deadline=None)
@given(level=rungs.filter(lambda each: each != Level()), away_s=st.floats(0.0, 2_000.0))
def test_a_control_plane_that_comes_back_gets_its_level_once_and_nothing_flaps(
    level: Level, away_s: float
) -> None:
    """Its journal names the same operation; the data plane has climbed alone meanwhile."""
    world = World()
    world.order(level, "op")
    seen = [world.level()]
    for at in range(int(away_s)):
        world.now = float(at)
        world.levels.recover("b", 0.1)
        seen.append(world.level())
    world.order(level, "op", leader=2)
    for _ in range(100):
        world.now += 1.0
        world.levels.recover("b", 0.1)
        assert world.level() == level
    depths = [depth(each) for each in seen]
    assert depths == sorted(depths, reverse=True), "alone it only climbs"


def test_a_repeated_operation_renews_its_lease_and_changes_nothing() -> None:
    world = World()
    assert world.order(WORST, "op")
    world.now = 100.0
    assert not world.order(WORST, "op")
    world.now = 200.0
    assert not world.levels.recover("b", 0.1)


def test_an_order_that_is_older_comes_too_late_for_every_class_it_names() -> None:
    """An order that a network held back, for the first time or again, must not undo a newer one."""
    world = World()
    world.order(Level(), "second", sequence=2, classes=(BATCH,))
    with pytest.raises(OrderLate, match="order 1 is too late: batch sessions are held by 2"):
        world.order(WORST, "first", sequence=1)
    assert world.levels.is_full("b")
    assert world.order(WORST, "first", sequence=1, leader=2), "another leader counts anew"


def test_a_late_order_does_not_lock_the_right_one_out() -> None:
    """One order is current for interactive sessions still, a newer one holds the batch."""
    world, held = World(), Level(media=MediaRung.P160_8K)
    world.order(Level(), "both", sequence=1)
    world.order(held, "batch", sequence=2, classes=(BATCH,))
    with pytest.raises(OrderLate):
        world.order(Level(), "both", sequence=1)
    for _ in range(3):
        world.order(held, "batch", sequence=2, classes=(BATCH,))
        assert (world.level(), world.level(BATCH)) == (Level(), held)


def test_an_order_by_hand_holds_at_once_and_until_the_leaders_next() -> None:
    world = World()
    world.order(Level(), "ladder", sequence=7)
    assert world.order(WORST, "by hand")
    assert world.level() == WORST
    assert world.order(Level(), "ladder", sequence=7), "a control plane that is back renews it"
    assert world.level() == Level()


def test_an_operation_id_means_one_level() -> None:
    world = World()
    world.order(WORST, "op")
    with pytest.raises(OperationReused, match="'op' was another level"):
        world.order(Level(), "op")
    assert world.level() == WORST


# ---------------------------------------------------------------- orders that come anyhow
apart = st.fixed_dictionaries({each: st.sampled_from(MediaRung) for each in ALL_CLASSES})


def orders_of(wanted: list[dict[SessionClass, MediaRung]]) -> list[Sent]:
    """What a leader that wants this in turn sends: sessions that share a level share an order."""
    return [
        Sent(sequence, media, tuple(each for each in ALL_CLASSES if now[each] is media))
        for sequence, now in enumerate(wanted)
        for media in sorted(set(now.values()))
    ]


@settings(max_examples=200, deadline=None)
@given(wanted=st.lists(apart, min_size=1, max_size=6), data=st.data())
def test_whatever_is_late_doubled_reordered_or_lost_the_newest_holds(
    wanted: list[dict[SessionClass, MediaRung]], data: st.DataObject
) -> None:
    world, sent, newest = World(), orders_of(wanted), wanted[-1]
    anyhow = st.lists(st.sampled_from(sent), max_size=20)
    for each in data.draw(anyhow):
        world.deliver(each)
    for each in data.draw(st.permutations([o for o in sent if o.sequence == len(wanted) - 1])):
        assert world.deliver(each), "the right level is locked out"
    for each in data.draw(anyhow):
        world.deliver(each)
        assert {name: world.level(name).media for name in ALL_CLASSES} == newest


# ---------------------------------------------------------------- session classes
def test_classes_are_apart_in_media_and_admission_and_share_the_engine() -> None:
    world = World()
    world.order(WORST, "batch", classes=(BATCH,))
    assert shown(world.level(BATCH)) == shown(WORST)
    assert shown(world.level()) == "kv=int8 shed=on"
    assert world.levels.apart("b") == {BATCH: WORST}
    world.order(Level(), "batch back", classes=(BATCH,))
    assert world.levels.apart("b") == {}
    assert world.levels.is_full("b")


def test_each_class_has_its_own_lease() -> None:
    world = World()
    degraded = Level(media=MediaRung.P360_8K)
    world.order(degraded, "interactive", classes=(INTERACTIVE,), lease_s=500.0)
    world.order(degraded, "batch", classes=(BATCH,), lease_s=10.0)
    world.now = 60.0
    assert world.levels.recover("b", 0.1)
    assert (world.level(), world.level(BATCH)) == (degraded, Level())


def test_an_order_for_no_class_is_no_order() -> None:
    order = msgspec.json.encode(
        {
            "leader_epoch": 1, "operation_id": "op", "resident": "b", "classes": [], "level": {},
            "lease_s": 1.0, "actor": "test", "reason": "test",
        }
    )  # fmt: skip
    with pytest.raises(msgspec.ValidationError, match="length >= 1"):
        msgspec.json.decode(order, type=LadderOrder)
