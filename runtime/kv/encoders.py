"""Encoder outputs by media digest: a new question about the same clip skips its encoders."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=Sized)


@dataclass(frozen=True)
class _Kept(Generic[T]):
    output: T
    epoch: int


class EncoderCache(Generic[T]):
    """Least recently used outputs go first once `budget` bytes are passed."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._kept: OrderedDict[tuple[str, int], _Kept[T]] = OrderedDict()

    @property
    def nbytes(self) -> int:
        return sum(kept.output.nbytes for kept in self._kept.values())

    def get(self, digest: str, epoch: int) -> T | None:
        kept = self._kept.get((digest, epoch))
        if kept is None:
            return None
        self._kept.move_to_end((digest, epoch))
        return kept.output

    def put(self, digest: str, epoch: int, output: T) -> None:
        self._kept[digest, epoch] = _Kept(output, epoch)
        while self.nbytes > self._budget and self._kept:
            self._kept.popitem(last=False)

    def sweep(self, epoch: int) -> None:
        for key in [k for k, kept in self._kept.items() if kept.epoch < epoch]:
            del self._kept[key]

    def held_before(self, epoch: int) -> tuple[int, int]:
        """Outputs of older epochs, and their bytes."""
        old = [kept.output.nbytes for kept in self._kept.values() if kept.epoch < epoch]
        return len(old), sum(old)
