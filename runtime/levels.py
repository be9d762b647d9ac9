"""The level each resident is held at, under a lease that recovers by itself (DESIGN 1, 7)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from monitors.contract import Admission, KvRung, LadderOrder, Level, MediaRung, Name, Shed
from monitors.redlines import RedLines


@dataclass
class _Held:
    level: Level
    until: float  # the order's lease, then the next moment a step back may be taken


class Levels:
    """Full fidelity until ordered otherwise. `clock`: monotonic seconds."""

    def __init__(
        self, names: Iterable[Name], lines: RedLines, *, clock: Callable[[], float]
    ) -> None:
        self._held = {name: _Held(Level(), 0.0) for name in names}
        self._lines = lines
        self._clock = clock

    def of(self, name: Name) -> Level:
        """The level a resident is held at now."""
        return self._held[name].level

    def order(self, order: LadderOrder) -> bool:
        """Hold the ordered level for its lease; whether that changed anything."""
        before = self.of(order.resident)
        self._held[order.resident] = _Held(order.level, self._clock() + order.lease_s)
        return order.level != before

    def recover(self, name: Name, p99_s: float | None) -> bool:
        """One step back where the lease is over and first outputs are in time; whether taken.

        `p99_s` is the resident's own of late; None, no request at all, is no reason to stay
        degraded. A step is followed by a dwell, so that its effect shows before the next.
        """
        held = self._held[name]
        late = p99_s is not None and p99_s > self._lines.latency.degrade_s
        if held.level == Level() or self._clock() < held.until or late:
            return False
        held.level = step_back(held.level)
        held.until = self._clock() + self._lines.ladder.dwell_s
        return True


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
