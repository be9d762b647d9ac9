"""Table 1's hit rate: attention mass found on the device in time (DESIGN 5).

Of the blocks that together carry 95 % of a query's attention mass, the mass-weighted share on the
device. A page read from the host is a miss; it is still fetched, so attention stays exact.
"""

import numpy as np
from numpy.typing import NDArray

from runtime.kv.tokens import MODALITIES

LEFT_OUT_SHARE = 0.05
_TOKENS_AT_ONCE = 256
_WEIGHTS = np.eye(len(MODALITIES))
Mass = NDArray[np.float64]


def carriers(mass: Mass) -> NDArray[np.bool_]:
    """The blocks that carry 95 % of each row of `mass` `(layers, blocks)`: the lightest that hold
    5 % together are left out. The fewest there are, but that those as heavy as the lightest of
    them are all taken."""
    lightest = np.sort(mass, axis=1)
    held = lightest.cumsum(axis=1)
    out = (held <= LEFT_OUT_SHARE * held[:, -1:]).sum(axis=1, keepdims=True)
    least = np.take_along_axis(lightest, np.minimum(out, mass.shape[1] - 1), axis=1)
    return mass >= least


def residency(
    mass: Mass, modality: NDArray[np.int64], on_device: NDArray[np.bool_]
) -> tuple[Mass, Mass]:
    """Hit and lookup mass `(layers, 4)` of one query; `mass` and `on_device` `(layers, blocks)`,
    `modality` `(blocks,)`. All layers at once: a sampled step waits for it."""
    weight, kinds = mass * carriers(mass), _WEIGHTS[modality]
    return (weight * on_device) @ kinds, weight @ kinds


class ResidencyTable:
    """What steps added up to, by `[layer, modality]`; it only grows.

    Masses are of sampled steps, entropies of all; `token` ones are of the token-level definition.
    """

    def __init__(self, layers: int) -> None:
        cells = (layers, len(MODALITIES))
        self.hit = np.zeros(cells)
        self.lookup = np.zeros(cells)
        self.entropy = EntropySums(layers)
        self.token_entropy = EntropySums(layers)

    def add_masses(self, hit: Mass, lookup: Mass) -> None:
        """Masses `(layers, 4)` of one query."""
        self.hit += hit
        self.lookup += lookup


class EntropySums:
    """Entropies, nats, added up by layer and modality. NaN, undefined, counts nowhere.

    A decode step adds one token of each sequence: adding a few hundred at a time costs a tenth.
    """

    def __init__(self, layers: int) -> None:
        self._sums = np.zeros((2, layers, len(MODALITIES)))  # nats, tokens
        self._waiting: list[tuple[NDArray[np.float32], NDArray[np.int8]]] = []
        self._tokens = 0

    def add(self, nats: NDArray[np.float32], codes: NDArray[np.int8]) -> None:
        """`(layers, tokens)` of tokens of `codes`; neither may change afterwards."""
        self._waiting.append((nats, codes))
        self._tokens += len(codes)
        if self._tokens >= _TOKENS_AT_ONCE:
            self._settle()

    @property
    def nats(self) -> Mass:
        """Their sum, `(layers, 4)`."""
        self._settle()
        return self._sums[0]

    @property
    def tokens(self) -> NDArray[np.int64]:
        """How many were defined, `(layers, 4)`."""
        self._settle()
        return self._sums[1].astype(np.int64)

    def _settle(self) -> None:
        if not self._waiting:
            return
        parts, codes = zip(*self._waiting, strict=True)
        self._waiting, self._tokens = [], 0
        nats = np.concatenate(parts, axis=1)
        kinds = _WEIGHTS[np.concatenate(codes)]  # products of whole numbers take far longer
        defined = ~np.isnan(nats)
        self._sums += np.stack([np.where(defined, nats, 0.0) @ kinds, defined @ kinds])
