"""Encoder outputs by media digest: a new question about the same clip skips its encoders."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from runtime.kv.eviction import Ranking, encoder_cost


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=Sized)
_Key = tuple[Hashable, int]  # what it is the output of, and the epoch


@dataclass(frozen=True)
class _Kept(Generic[T]):
    output: T
    epoch: int
    nbytes: int


class EncoderCache(Generic[T]):
    """Outputs worth least go first (`eviction`) once `budget` bytes are passed.

    `hits` and `lookups` count slices of media and only grow.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._kept: dict[_Key, _Kept[T]] = {}
        self._ranking: Ranking[_Key] = Ranking(lambda key: self._kept[key].nbytes)
        self.nbytes = 0
        self.hits = 0
        self.lookups = 0

    def get(self, name: Hashable, epoch: int) -> T | None:
        """`name` says whose media (the tenant) and which (the digest)."""
        self.lookups += 1
        kept = self._kept.get((name, epoch))
        if kept is None:
            return None
        self.hits += 1
        self._ranking.use((name, epoch))
        return kept.output

    def put(self, name: Hashable, epoch: int, output: T, *, tokens: int) -> None:
        """Keep an output of so many tokens. One that alone is over the budget is not kept."""
        key, nbytes = (name, epoch), output.nbytes
        if key in self._kept:
            self._drop(key)
        if nbytes > self._budget:
            return
        self._kept[key] = _Kept(output, epoch, nbytes)
        self.nbytes += nbytes
        self._ranking.add(key, encoder_cost(tokens))
        self._ranking.offer(key)
        while self.nbytes > self._budget:
            self._evict()

    def sweep(self, epoch: int) -> None:
        """Drop every output of an epoch before `epoch`."""
        for key in [k for k, kept in self._kept.items() if kept.epoch < epoch]:
            self._drop(key)

    def held_before(self, epoch: int) -> tuple[int, int]:
        """Outputs of older epochs, and their bytes."""
        old = [kept.nbytes for kept in self._kept.values() if kept.epoch < epoch]
        return len(old), sum(old)

    def _evict(self) -> None:
        key = self._ranking.take(lambda _: False)
        assert key is not None, "bytes are kept, so there is an output that may go"
        self.nbytes -= self._kept.pop(key).nbytes

    def _drop(self, key: _Key) -> None:
        self._ranking.forget(key)
        self.nbytes -= self._kept.pop(key).nbytes
