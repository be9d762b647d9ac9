"""Levels under a lease: held as ordered, and recovered a step at a time on local latency."""

import itertools

import pytest

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
from runtime.levels import Levels, step_back

WORST = Level(media=MediaRung.P160_8K, kv=KvRung.INT8, shed=Shed.ON, admission=Admission.LIMITED)
DWELL_S = RedLines().ladder.dwell_s
_INTERACTIVE = (SessionClass.INTERACTIVE,)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def an_order(level: Level, lease_s: float = 120.0, **more: object) -> LadderOrder:
    given = {
        "leader_epoch": 1, "operation_id": shown(level), "resident": "b", "classes": ALL_CLASSES,
        "level": level, "lease_s": lease_s, "actor": "test", "reason": "test",
    }  # fmt: skip
    return LadderOrder(**{**given, **more})


def held_at(level: Level) -> tuple[Levels, Clock]:
    clock = Clock()
    levels = Levels(("a", "b"), RedLines(), clock=clock)
    levels.order(an_order(level))
    return levels, clock


def test_a_level_is_of_one_resident_alone() -> None:
    levels, _ = held_at(WORST)
    assert levels.of("b") == WORST
    assert levels.of("a") == Level()


def test_an_order_says_whether_it_changed_anything() -> None:
    levels, _ = held_at(WORST)
    assert not levels.order(an_order(WORST))
    assert levels.order(an_order(Level()))


def test_a_level_is_held_while_its_lease_runs() -> None:
    levels, clock = held_at(WORST)
    clock.now = 119.9
    assert not levels.recover("b", p99_s=0.1)
    assert levels.of("b") == WORST


def test_a_renewal_holds_it_longer() -> None:
    levels, clock = held_at(WORST)
    clock.now = 100.0
    levels.order(an_order(WORST))
    clock.now = 200.0
    assert not levels.recover("b", p99_s=0.1)


def test_after_its_lease_it_recovers_one_step_a_dwell() -> None:
    levels, clock = held_at(WORST)
    clock.now = 121.0
    seen = [levels.of("b")]
    while levels.recover("b", p99_s=0.1):
        assert not levels.recover("b", p99_s=0.1), "a second step needs a dwell"
        seen.append(levels.of("b"))
        clock.now += DWELL_S + 0.1
    assert [shown(level) for level in seen] == [
        "media=160x160+8k kv=int8 shed=on admission=limited",
        "media=160x160+8k kv=int8 shed=on",
        "media=360p+8k kv=int8 shed=on",
        "media=360p+8k shed=on",
        "shed=on",
        "full",
    ]


@pytest.mark.parametrize(
    ("p99_s", "recovers"), [(0.41, False), (float("inf"), False), (None, True)]
)
def test_it_stays_degraded_while_first_outputs_are_late(
    p99_s: float | None, recovers: bool
) -> None:
    levels, clock = held_at(WORST)
    clock.now = 1_000.0
    assert levels.recover("b", p99_s) is recovers


def test_every_level_recovers_to_full_by_single_better_steps() -> None:
    for parts in itertools.product(MediaRung, KvRung, Shed, Admission):
        level = Level(media=parts[0], kv=parts[1], shed=parts[2], admission=parts[3])
        while level != Level():
            better = step_back(level)
            moved = [
                getattr(level, part) - getattr(better, part) for part in level.__struct_fields__
            ]
            assert sorted(moved) == [0, 0, 0, 1]
            level = better
    assert step_back(Level()) == Level()


def test_a_level_tells_which_of_its_parts_a_human_put_there() -> None:
    levels, clock = held_at(WORST)
    every = tuple(Level.__struct_fields__)
    for each in ALL_CLASSES:
        assert levels.by_hand("b", each) == every, "an order without a sequence is by hand"
    one = {"operation_id": "ladder", "classes": (SessionClass.BATCH,)}
    levels.order(an_order(WORST, sequence=1, by_hand=("media", "kv"), **one))
    levels.order(an_order(WORST, sequence=1, operation_id="rest", classes=_INTERACTIVE))
    assert levels.by_hand("b", SessionClass.BATCH) == ("media", "kv")
    assert levels.by_hand("b", SessionClass.INTERACTIVE) == ("kv",), "the engine has but one"
    assert levels.by_hand("a", SessionClass.BATCH) == ()
    clock.now = 121.0
    assert levels.by_hand("b", SessionClass.BATCH) == (), "nobody holds it any more"
    assert levels.recover("b", p99_s=0.1)
    assert levels.by_hand("b", SessionClass.BATCH) == ()
