"""Table 1's hit rate: attention mass found on the device in time (DESIGN 5).

Of the blocks that together carry 95 % of a query's attention mass, the mass-weighted share on the
device. A page read from the host is a miss; it is still fetched, so attention stays exact.
"""

import numpy as np
from numpy.typing import NDArray

from runtime.kv.tokens import MODALITIES

CARRIED_SHARE = 0.95
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
    """What sampled steps added up to, by `[layer, modality]`; it only grows."""

    def __init__(self, layers: int) -> None:
        cells = (layers, len(MODALITIES))
        self.hit = np.zeros(cells)
        self.lookup = np.zeros(cells)
        self.entropy_sum = np.zeros(cells)
        self.entropy_count = np.zeros(cells, np.int64)

    def add(
        self, hit: Mass, lookup: Mass, nats: NDArray[np.float32], codes: NDArray[np.int8]
    ) -> None:
        """Masses `(layers, 4)` of one query, and `nats` `(layers, tokens)` of tokens of `codes`.

        An undefined entropy (NaN) counts nowhere.
        """
        self.hit += hit
        self.lookup += lookup
        defined = ~np.isnan(nats)
        for code in np.unique(codes):
            mine = defined & (codes == code)
            self.entropy_sum[:, code] += np.where(mine, nats, 0.0).sum(1)
            self.entropy_count[:, code] += mine.sum(1)
