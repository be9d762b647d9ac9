"""What attention saw: the entropy of every query, and on sampled steps where its mass lay.

Attention hands over the log-sum-exps of its pieces layer by layer; what follows from them is
worked out for all layers at once, behind the forward.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.kv.entropy import mass_entropy, token_entropy
from runtime.kv.pieces import KINDS
from runtime.kv.residency import Mass, residency

Nats = NDArray[np.float32]  # NaN where undefined or not measured


@dataclass(frozen=True, eq=False)
class Sample:
    """What a closer look at one span saw; masses are of its last query, heads averaged."""

    hit: Mass  # (layers, modalities)
    lookup: Mass  # (layers, modalities)
    received: Mass  # (layers, blocks)
    token_nats: Nats  # (layers, new), token-level


@dataclass(frozen=True, eq=False)
class Observation:
    """What a step saw of one span."""

    nats: Nats  # (layers, new), modality-mass
    sample: Sample | None  # None: the step was not sampled


class View:
    """What some queries see: one of each of several sequences (decode), or all of one (prefill).

    `modality` `(queries or 1, seats)` of the pieces that each looks at; `own` and `in_view`
    `(queries,)`: a query's own modality, and how many it can see.
    """

    def __init__(
        self,
        modality: NDArray[np.int64],
        own: NDArray[np.int64],
        in_view: NDArray[np.int64],
        device: torch.device,
    ) -> None:
        self._onehot = torch.eye(KINDS)[torch.from_numpy(modality)].to(device)
        self._foreign = torch.from_numpy(modality != own[:, None]).to(device)
        self._in_view = torch.from_numpy(in_view).to(device)
        self._lse: list[Tensor] = []
        self._inside: list[Tensor] = []

    def note(self, lse: Tensor) -> None:
        """The next layer's log-sum-exps, `(queries, seats, heads)`; -inf in an empty seat."""
        self._lse.append(lse)

    def note_inside(self, inside: Tensor) -> None:
        """The next layer's entropies within pieces, `(queries or 1, seats, heads)`."""
        self._inside.append(inside)

    def nats(self) -> Nats:
        """Modality-mass `(layers, queries)`."""
        lse = torch.stack(self._lse).float()
        return mass_entropy(lse, self._onehot, self._in_view).cpu().numpy()

    def token_nats(self) -> Nats:
        """Token-level `(layers, queries)`; NaN for queries that nobody looked at closely."""
        inside = torch.stack(self._inside).float()
        rows = slice(-inside.shape[1], None)
        lse = torch.stack(self._lse)[:, rows].float()
        nats = token_entropy(lse, inside, self._foreign[rows], self._in_view[rows])
        found = np.full((len(self._lse), len(self._in_view)), np.nan, np.float32)
        found[:, rows] = nats.cpu().numpy()
        return found


def sample(
    received: Mass, modality: NDArray[np.int64], in_time: NDArray[np.bool_], token_nats: Nats
) -> Sample:
    """`received` and `in_time` `(layers, blocks)`, `modality` `(blocks,)`."""
    hit, lookup = residency(received, modality, in_time)
    return Sample(hit, lookup, received, token_nats)
