"""What to let go of next: one rule for the prefix index and for the encoder outputs.

Greedy-dual-size with frequency (L. Cherkasova, HP Labs report HPL-98-69, 1998): the least
priority goes first, priority = clock + cost x uses / bytes. The clock is the priority of what
went last, so that what was used often but long ago ages without anybody counting time.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Generic, TypeVar

# Context tokens at which attention costs as much as the weights, of one layer as of all:
# 3.3e9 active parameters against 48 layers of 32 heads of 128 (Qwen3-Omni-30B-A3B).
EVEN_DEPTH = 8192
# Encoding a media token against passing it through the language model's weights: 0.2 (sound) to
# 0.7 (pictures) by the same model's parameters, 1.5 to 2 measured on the shipped tiny one.
ENCODER_SHARE = 1.0
_LOOKS = 32  # outdated places that one eviction looks at again: bounds what a step can lose
_SPARE = 64  # dead places that the heap may always have

K = TypeVar("K", bound=Hashable)


def block_cost(start: int, stop: int, *, media: bool) -> float:
    """What tokens `[start, stop)` of a sequence cost to compute again, in text tokens at its start.

    tokens x (1 + mean depth / 8192), and for media tokens 1 more each: their encoder.
    """
    depth = (start + stop) / 2
    attention = (stop - start) * depth / EVEN_DEPTH
    return (stop - start) + attention + (encoder_cost(stop - start) if media else 0.0)


def encoder_cost(tokens: int) -> float:
    """What the encoder's output of so many tokens costs to compute again, in the same unit."""
    return tokens * ENCODER_SHARE


@dataclass(eq=False)
class _Standing:
    """What a kept thing has earned. `queued`: it has a place in the heap."""

    cost: float
    clock: float
    serial: int  # of two alike, the older goes first
    uses: int = 1
    offered: bool = False
    queued: bool = False

    @property
    def dead(self) -> bool:
        """Whether its place in the heap is of no use."""
        return self.queued and not self.offered


_Place = tuple[float, int, K, _Standing]  # priority when it was queued, serial, key


class Ranking(Generic[K]):
    """Kept things by what they are worth; those on offer may be taken.

    `nbytes` tells the bytes of a key whenever it is scored, so that a page turned to int8 or
    shared since makes its block worth more per byte. Priorities only rise, so a place in the heap
    is a lower bound that is looked at again when it comes to the top: O(log n) amortised. Where
    many rose at once (a whole pool turned to int8), an eviction takes the least of 32.
    """

    def __init__(self, nbytes: Callable[[K], int]) -> None:
        self._nbytes = nbytes
        self._standings: dict[K, _Standing] = {}
        self._heap: list[_Place[K]] = []
        self._dead = 0  # places in the heap of what is not on offer
        self._serial = count()
        self._clock = 0.0

    def add(self, key: K, cost: float) -> None:
        """Begin to keep a key; its making counts as its first use."""
        self._standings[key] = _Standing(cost, self._clock, next(self._serial))

    def use(self, key: K) -> None:
        """It was found and served."""
        standing = self._standings[key]
        standing.uses += 1
        standing.clock = self._clock

    def offer(self, key: K) -> None:
        """It may be taken from now. A second call does nothing."""
        standing = self._standings[key]
        self._dead -= standing.dead
        standing.offered = True
        if not standing.queued:
            self._queue(key, standing)

    def withdraw(self, key: K) -> None:
        """It may not be taken for now. A second call does nothing."""
        self._leave(self._standings[key])

    def forget(self, key: K) -> None:
        """It is kept no more."""
        self._leave(self._standings.pop(key))

    def take(self, in_use: Callable[[K], bool]) -> K | None:
        """The key on offer of least priority, forgotten; `None` when there is none.

        One that is `in_use` is passed over and counts as used just now.
        """
        looked, passed = self._look(in_use)
        taken = None
        if looked:
            priority, _, taken, _ = min(looked, key=lambda place: place[:2])
            self._clock = max(self._clock, priority)
            del self._standings[taken]
        for key, standing in passed:
            standing.clock = self._clock
            self._queue(key, standing)
        for _, _, key, standing in looked:
            if key != taken:
                self._queue(key, standing)
        return taken

    def _look(
        self, in_use: Callable[[K], bool]
    ) -> tuple[list[_Place[K]], list[tuple[K, _Standing]]]:
        """Out of the heap: candidates with their priorities of now, the least among them, and what
        is in use and came before."""
        looked: list[_Place[K]] = []
        passed: list[tuple[K, _Standing]] = []
        least = inf
        while self._heap and least > self._heap[0][0] and len(looked) < _LOOKS:
            _, serial, key, standing = heappop(self._heap)
            self._dead -= standing.dead
            standing.queued = False
            if not standing.offered:
                continue
            if in_use(key):
                passed.append((key, standing))
                continue
            looked.append((self._priority(key, standing), serial, key, standing))
            least = min(least, looked[-1][0])
        return looked, passed

    def _priority(self, key: K, standing: _Standing) -> float:
        return standing.clock + standing.cost * standing.uses / max(1, self._nbytes(key))

    def _queue(self, key: K, standing: _Standing) -> None:
        standing.queued = True
        heappush(self._heap, (self._priority(key, standing), standing.serial, key, standing))

    def _leave(self, standing: _Standing) -> None:
        if not standing.offered:
            return
        standing.offered = False
        self._dead += standing.dead
        if self._dead > _SPARE + len(self._heap) // 4:
            self._bury()

    def _bury(self) -> None:
        """Clear the heap of dead places."""
        living = []
        for place in self._heap:
            place[3].queued = place[3].offered
            if place[3].offered:
                living.append(place)
        heapify(living)
        self._heap, self._dead = living, 0
