"""Table 1's hit rate: attention mass found on the device in time (DESIGN 5).

Of the blocks that together carry 95 % of a query's attention mass, the mass-weighted share on the
device. A page read from the host is a miss; it is still fetched, so attention stays exact.
"""

import numpy as np
from numpy.typing import NDArray

from runtime.kv.tokens import MODALITIES

CARRIED_SHARE = 0.95
_ONE_HOT = np.eye(len(MODALITIES), dtype=np.int64)
Mass = NDArray[np.float64]


def carriers(mass: Mass) -> NDArray[np.int64]:
    """The fewest blocks that carry 95 % of `mass` `(blocks,)`, heaviest first."""
    order = np.argsort(-mass, kind="stable")
    carried = np.cumsum(mass[order])
    count = int(np.searchsorted(carried, CARRIED_SHARE * carried[-1])) + 1
    return order[:count]


def residency(
    mass: Mass, modality: NDArray[np.int64], on_device: NDArray[np.bool_]
) -> tuple[Mass, Mass]:
    """Hit and lookup mass by modality, `(4,)` each, of one query at one layer; all arguments
    are `(blocks,)`."""
    chosen = carriers(mass)
    weight, kinds = mass[chosen], modality[chosen]
    hit, lookup = np.zeros(len(MODALITIES)), np.zeros(len(MODALITIES))
    np.add.at(lookup, kinds, weight)
    np.add.at(hit, kinds, weight * on_device[chosen])
    return hit, lookup


class ResidencyTable:
    """What steps added up to, by `[layer, modality]`; it only grows.

    Masses are of sampled steps, entropies of all; `token` ones are of the token-level definition.
    """

    def __init__(self, layers: int) -> None:
        cells = (layers, len(MODALITIES))
        self.hit = np.zeros(cells)
        self.lookup = np.zeros(cells)
        self.entropy_sum = np.zeros(cells)
        self.entropy_count = np.zeros(cells, np.int64)
        self.token_sum = np.zeros(cells)
        self.token_count = np.zeros(cells, np.int64)

    def add_masses(self, hit: Mass, lookup: Mass) -> None:
        """Masses `(layers, 4)` of one query."""
        self.hit += hit
        self.lookup += lookup

    def add_entropy(self, nats: NDArray[np.float32], codes: NDArray[np.int8]) -> None:
        """Modality-mass `(layers, tokens)` of tokens of `codes`; NaN, undefined, counts nowhere."""
        _add(self.entropy_sum, self.entropy_count, nats, codes)

    def add_token_entropy(self, nats: NDArray[np.float32], codes: NDArray[np.int8]) -> None:
        """The same of token-level entropies."""
        _add(self.token_sum, self.token_count, nats, codes)


def _add(
    total: Mass, count: NDArray[np.int64], nats: NDArray[np.float32], codes: NDArray[np.int8]
) -> None:
    defined, onehot = ~np.isnan(nats), _ONE_HOT[codes]
    total += np.where(defined, nats, 0.0) @ onehot
    count += defined @ onehot
