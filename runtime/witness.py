"""The last real prompt of each resident, kept so that a probe can prove a flush (DESIGN 5, 8)."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from monitors.contract import Name
from runtime.residents.port import Array, Generate

MAX_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, eq=False)
class Witness:
    """A prompt that was served, so that its blocks were in the cache."""

    request: Generate
    arrays: Sequence[Array]
    prompt_tokens: int
    pool_epoch: int | None  # it was served in; None: not known then

    def probe(self, request_id: str) -> Generate:
        """The same prompt as a request that reads the cache, under the keys of its own epoch as
        well, and leaves no trace."""
        return msgspec.structs.replace(
            self.request,
            request_id=request_id,
            max_tokens=1,
            speech=False,
            cache_write=False,
            probe_epoch=self.pool_epoch,
            traceparent=None,
        )


class Witnesses:
    """One served prompt per resident, and the one that was there at its last flush."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._served: dict[Name, Witness] = {}
        self._flushed: dict[Name, Witness] = {}

    def keep(self, name: Name, witness: Witness) -> None:
        """Remember a served prompt; one that is too large leaves the one before in place."""
        if sum(array.nbytes for array in witness.arrays) <= self._max_bytes:
            self._served[name] = witness

    def flushed(self, name: Name) -> None:
        """A flush begins: what was served last is what must miss from now on.

        A repeated flush, with nothing served in between, keeps its witness.
        """
        if name in self._served:
            self._flushed[name] = self._served.pop(name)

    def forget(self, name: Name) -> None:
        """Another model has taken its place: that it misses these prompts would prove nothing."""
        self._served.pop(name, None)
        self._flushed.pop(name, None)

    def of_flush(self, name: Name) -> Witness | None:
        """What must miss; None where the resident had served nothing."""
        return self._flushed.get(name)
