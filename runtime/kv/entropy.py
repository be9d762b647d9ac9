"""Cross-modal attention entropy (S1.2), definition "modality-mass" of DESIGN 5.

The entropy, in nats, of a query token's attention mass over the modalities in its view, computed
per head and averaged over heads: at most ln 4. With fewer than two modalities in view it is
undefined: NaN, which never permits reuse.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_TINY = 1e-12


def cross_modal_entropy(mass: Tensor, in_view: Tensor) -> Tensor:
    """Nats per query `(queries,)`, from `mass` `(heads, queries, modalities)`, which sums to 1
    over modalities, and `in_view` `(queries,)`, the number of modalities a query can see."""
    nats = -(mass * mass.clamp_min(_TINY).log()).sum(-1).mean(0)
    return torch.where(in_view >= 2, nats, torch.nan)


class EntropyBuffer:
    """`entropy_buffer[batch, layer, seq]` of S1.3, in nats; NaN where undefined or unmeasured."""

    _FIRST = 256

    def __init__(self, layers: int) -> None:
        self.values = np.full((0, layers, self._FIRST), np.nan, np.float32)
        self._free: list[int] = []

    def open(self) -> int:
        """A row for a new sequence."""
        if not self._free:
            rows = len(self.values)
            self._resize(max(1, 2 * rows), self.values.shape[2])
            self._free = list(reversed(range(rows, len(self.values))))
        return self._free.pop()

    def write(self, row: int, start: int, nats: NDArray[np.float32]) -> None:
        """Tokens `start` onward of a row, `nats` being `(layers, tokens)`."""
        stop = start + nats.shape[1]
        if stop > self.values.shape[2]:
            self._resize(len(self.values), max(stop, 2 * self.values.shape[2]))
        self.values[row, :, start:stop] = nats

    def fork(self, row: int) -> int:
        """A new row that begins as a copy of `row`."""
        twin = self.open()
        self.values[twin] = self.values[row]
        return twin

    def close(self, row: int) -> None:
        self.values[row] = np.nan
        self._free.append(row)

    def _resize(self, batch: int, seq: int) -> None:
        old = self.values
        self.values = np.full((batch, old.shape[1], seq), np.nan, np.float32)
        self.values[: len(old), :, : old.shape[2]] = old
