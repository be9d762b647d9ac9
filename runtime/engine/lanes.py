"""The scheduler's lanes (S2.3): audio before key frames before text, and nobody starves.

Inside a lane the earliest deadline goes first. Work that waits rises one lane per `AGEING_S`,
so text is served at least every two such spans however busy audio is.
"""

from dataclasses import dataclass
from typing import Protocol, TypeVar

from monitors.labels import Lane

ORDER: tuple[Lane, ...] = tuple(Lane)  # highest first
AGEING_S = 0.05


@dataclass(frozen=True)
class Urgency:
    """`deadline` and `waiting_since` are seconds on the engine's clock."""

    lane: Lane
    deadline: float
    waiting_since: float

    def key(self, now: float) -> tuple[int, float]:
        """Sorts the most urgent first."""
        risen = int(max(0.0, now - self.waiting_since) / AGEING_S)
        return max(0, ORDER.index(self.lane) - risen), self.deadline


class Urgent(Protocol):
    @property
    def urgency(self) -> Urgency: ...


Item = TypeVar("Item", bound=Urgent)


def by_urgency(items: list[Item], now: float) -> list[Item]:
    """Most urgent first; equals keep their order."""
    return sorted(items, key=lambda item: item.urgency.key(now))
