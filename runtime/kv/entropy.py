"""Cross-modal attention entropy (S1.2) in both definitions of DESIGN 5, and where it is kept.

Attention runs over pieces that hold one modality each, and yields the log-sum-exp of each. The
softmax of these over a query's pieces is its attention mass per piece; everything here follows
from it, in nats, per head and averaged over heads. With fewer than two modalities in view both
definitions are undefined: NaN, which never permits reuse. Shares add up to a little more than 1 in
float32, which would make a little less than no entropy: what is summed up must never fall.
"""

from enum import Enum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class TokenEntropy(Enum):
    """For which queries of a sampled step the token-level definition is worked out."""

    LAST_QUERY = "last"  # free: its attention weights are at hand for residency
    EVERY_QUERY = "every"  # needs the weights of all queries, which a fused kernel does not keep


def mass_entropy(lse: Tensor, onehot: Tensor, in_view: Tensor) -> Tensor:
    """Modality-mass: the entropy of a query's attention mass over the modalities, at most ln 4.

    `lse` `(..., queries, pieces, heads)`, -inf where a query sees nothing of a piece; `onehot`
    `(queries or 1, pieces, modalities)`; `in_view` `(queries,)`, how many modalities a query can
    see. Nats `(..., queries)`.
    """
    share = lse.softmax(-2).transpose(-1, -2)
    nats = torch.special.entr(share @ onehot).sum(-1).mean(-1).clamp_min(0.0)
    return torch.where(in_view >= 2, nats, torch.nan)


def token_entropy(lse: Tensor, inside: Tensor, foreign: Tensor, in_view: Tensor) -> Tensor:
    """Token-level: the entropy of attention renormalised over other modalities' tokens.

    By the chain rule it is that of the pieces plus what is `inside` each: `(..., queries, pieces,
    heads)`, the entropy of the attention within a piece. `foreign` `(queries, pieces)`: of another
    modality than the query. The rest as for `mass_entropy`.
    """
    share = lse.masked_fill(~foreign[..., None], -torch.inf).softmax(-2)
    nats = (torch.special.entr(share) + share * inside).sum(-2).mean(-1).clamp_min(0.0)
    return torch.where(in_view >= 2, nats, torch.nan)


class EntropyBuffer:
    """`entropy_buffer[batch, layer, seq]` of S1.3, modality-mass, in nats; NaN where undefined or
    unmeasured."""

    _FIRST = 256

    def __init__(self, layers: int) -> None:
        self.values = _undefined(0, layers, self._FIRST)
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

    def read(self, row: int, count: int) -> NDArray[np.float32]:
        """The first `count` tokens of a row, `(layers, count)`."""
        nats = self.values[row][:, :count]
        return np.pad(nats, ((0, 0), (0, count - nats.shape[1])), constant_values=np.nan)

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
        self.values = _undefined(batch, old.shape[1], seq)
        self.values[: len(old), :, : old.shape[2]] = old


def _undefined(batch: int, layers: int, seq: int) -> NDArray[np.float32]:
    """All NaN. A token's layers lie side by side: that is how a decode step writes them."""
    return np.full((batch, seq, layers), np.nan, np.float32).transpose(0, 2, 1)
