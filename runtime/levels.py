"""The level each resident is held at, under a lease that recovers by itself (DESIGN 1, 7)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from monitors.contract import (
    ALL_CLASSES,
    Admission,
    Epoch,
    KvRung,
    LadderOrder,
    Level,
    MediaRung,
    Name,
    SessionClass,
    Shed,
)
from monitors.redlines import RedLines
from runtime.router import OrderRefused

_ENGINES_OWN = ("kv", "shed")  # of all its sessions


class OrderLate(OrderRefused):
    """A newer order was taken for sessions that this one names: it is too late for all of them."""


class OperationReused(OrderRefused):
    """An operation id came with another level than before: it may mean one thing only."""


@dataclass
class _Held:
    level: Level
    until: float  # the order's lease, then the next moment a step back may be taken
    by_hand: tuple[str, ...] = ()


class _Operations:
    """The newest orders of one resident under one leader, by session class."""

    def __init__(self, leader_epoch: Epoch) -> None:
        self.leader_epoch = leader_epoch
        self._current: dict[SessionClass, LadderOrder] = {}
        self._newest: dict[SessionClass, Epoch] = {}  # sequence: an order by hand has none

    def take(self, order: LadderOrder) -> None:
        """Note an order, or raise `OrderLate` or `OperationReused` and note nothing."""
        self._require_newest(order)
        for current in self._current.values():
            _require_same(order, current)
        for each in order.classes:
            self._current[each] = order
            if order.sequence is not None:
                self._newest[each] = order.sequence

    def _require_newest(self, order: LadderOrder) -> None:
        if order.sequence is None:
            return
        for each in order.classes:
            newest = self._newest.get(each)
            if newest is not None and newest > order.sequence:
                raise OrderLate(
                    f"order {order.sequence} is too late: {each} sessions are held by {newest}"
                )


def _require_same(order: LadderOrder, current: LadderOrder) -> None:
    if order.operation_id != current.operation_id:
        return
    if (order.level, set(order.classes)) != (current.level, set(current.classes)):
        raise OperationReused(f"operation {order.operation_id!r} was another level before")


class Levels:
    """Full fidelity until ordered otherwise, by session class. `clock`: monotonic seconds.

    What is the engine's own, KV and shedding, it can have but once: the lowest of all classes.
    """

    def __init__(
        self, names: Iterable[Name], lines: RedLines, *, clock: Callable[[], float]
    ) -> None:
        names = tuple(names)
        self._held = {name: {each: _Held(Level(), 0.0) for each in ALL_CLASSES} for name in names}
        self._operations = {name: _Operations(leader_epoch=0) for name in names}
        self._lines = lines
        self._clock = clock

    def of(self, name: Name, session_class: SessionClass = SessionClass.INTERACTIVE) -> Level:
        """What sessions of a class are served at now."""
        held = [each.level for each in self._held[name].values()]
        return msgspec.structs.replace(
            self._held[name][session_class].level,
            kv=max(level.kv for level in held),
            shed=max(level.shed for level in held),
        )

    def by_hand(self, name: Name, session_class: SessionClass) -> tuple[str, ...]:
        """The parts of a class's level that a human holds, given up or not, by a lease that
        runs."""
        now = self._clock()
        held = {
            each: held.by_hand if now < held.until else ()
            for each, held in self._held[name].items()
        }
        of_any = {part for parts in held.values() for part in parts}
        return tuple(
            part
            for part in Level.__struct_fields__
            if part in held[session_class] or (part in _ENGINES_OWN and part in of_any)
        )

    def apart(self, name: Name) -> dict[SessionClass, Level]:
        """The classes that are not at the level of interactive sessions, and where they are."""
        by_class = {each: self.of(name, each) for each in ALL_CLASSES}
        return {
            each: level
            for each, level in by_class.items()
            if level != by_class[SessionClass.INTERACTIVE]
        }

    def is_full(self, name: Name) -> bool:
        """Whether every session has full fidelity."""
        return all(each.level == Level() for each in self._held[name].values())

    def order(self, order: LadderOrder) -> bool:
        """Hold the ordered level for its lease; whether that changed anything. Raises `OrderLate`
        and `OperationReused`."""
        operations = self._operations[order.resident]
        if order.leader_epoch != operations.leader_epoch:  # its journal may have been restored
            operations = self._operations[order.resident] = _Operations(order.leader_epoch)
        operations.take(order)
        held, until = self._held[order.resident], self._clock() + order.lease_s
        changed = any(held[each].level != order.level for each in order.classes)
        for each in order.classes:
            held[each] = _Held(order.level, until, _by_hand(order))
        return changed

    def recover(self, name: Name, p99_s: float | None) -> bool:
        """One step back where the lease is over and first outputs are in time; whether taken.

        `p99_s` is the resident's own of late; None, no request at all, is no reason to stay
        degraded. A step is followed by a dwell, so that its effect shows before the next.
        """
        if p99_s is not None and p99_s > self._lines.latency.degrade_s:
            return False
        now = self._clock()
        due = [h for h in self._held[name].values() if h.level != Level() and now >= h.until]
        for held in due:
            held.level = step_back(held.level)
            held.until = now + self._lines.ladder.dwell_s
            held.by_hand = ()
        return bool(due)


def _by_hand(order: LadderOrder) -> tuple[str, ...]:
    return Level.__struct_fields__ if order.sequence is None else order.by_hand


def step_back(level: Level) -> Level:
    """One step toward full fidelity, in the reverse of the order of escalation (DESIGN 7)."""
    for worse, better in (
        (level.admission is Admission.LIMITED, {"admission": Admission.OPEN}),
        (level.media is MediaRung.P160_8K, {"media": MediaRung.P360_8K}),
        (level.kv is KvRung.INT8, {"kv": KvRung.NATIVE}),
        (level.media is MediaRung.P360_8K, {"media": MediaRung.FULL}),
        (level.shed is Shed.ON, {"shed": Shed.OFF}),
    ):
        if worse:
            return msgspec.structs.replace(level, **better)
    return level
