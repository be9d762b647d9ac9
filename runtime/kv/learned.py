"""A learned reuse rule (S5.1): a small net for each layer and modality foretells what an alias
costs, and the cheapest alias.

A net sees what is known when a block is decided: entropies, and how like its K and V are to the
layer below's. Its training is in `runtime/quality/learning.py`.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitors.labels import Modality
from runtime.kv.reuse import Candidate

INPUTS = 11  # numbers that `inputs` gives
MOST_PARAMETERS = 10_000  # of a net
_LEAST = 1e-6  # logarithms of sizes and distances start here
_MOST = (
    8.0  # deviations from the mean of training that an input may be: no net knows what is beyond
)

Floats = NDArray[np.float64]


def inputs(entry: Candidate) -> Floats:
    """What a net sees, `(INPUTS,)`; reads the block's K and V."""
    alike = entry.likeness()
    off, own, below = (np.log(np.maximum(p, _LEAST)) for p in (alike.off, alike.own, alike.below))
    nats = (entry.nats, entry.mean_nats, entry.own_nats)
    return np.concatenate([nats, off, alike.cosine, own, below])


@dataclass(frozen=True, eq=False)
class Net:
    """One hidden layer of tanh. `centre` and `spread` `(INPUTS,)` make inputs alike in size;
    `hidden` `(INPUTS, width)`, `bias` `(width,)`, `out` `(width,)`, `level` a number.

    Raises `ValueError` for weights that do not fit together, are too many or are no numbers.
    """

    centre: Floats
    spread: Floats
    hidden: Floats
    bias: Floats
    out: Floats
    level: float

    def __post_init__(self) -> None:
        width = len(self.out)
        shapes = [part.shape for part in (self.centre, self.spread, self.hidden, self.bias)]
        if shapes != [(INPUTS,), (INPUTS,), (INPUTS, width), (width,)]:
            raise ValueError(f"weights of {shapes} make no net of {INPUTS} inputs")
        if self.parameters > MOST_PARAMETERS:
            raise ValueError(f"{self.parameters} weights are over {MOST_PARAMETERS}")
        if not np.isfinite(self.flat).all() or (self.spread <= 0.0).any():
            raise ValueError("weights are numbers, and a spread is above 0")

    @property
    def flat(self) -> Floats:
        parts = (self.centre, self.spread, self.hidden, self.bias, self.out, self.level)
        return np.concatenate([np.ravel(part) for part in parts])

    @property
    def parameters(self) -> int:
        return len(self.flat)

    def harm(self, seen: Floats) -> float:
        """What the alias of an entry of these `inputs` costs: nats a token, or NaN."""
        put = np.clip((seen - self.centre) / self.spread, -_MOST, _MOST)
        raw = float(np.tanh(put @ self.hidden + self.bias) @ self.out) + self.level
        return float(np.logaddexp(0.0, raw)) if math.isfinite(raw) else math.nan


def unflatten(weights: Floats) -> Net:
    """The net whose `flat` this is. Raises `ValueError`."""
    width, rest = divmod(len(weights) - 2 * INPUTS - 1, INPUTS + 2)
    if width < 1 or rest:
        raise ValueError(f"{len(weights)} weights make no net of {INPUTS} inputs")
    ends = np.cumsum([INPUTS, INPUTS, INPUTS * width, width, width])
    centre, spread, hidden, bias, out, level = np.split(np.asarray(weights, np.float64), ends)
    return Net(centre, spread, hidden.reshape(INPUTS, width), bias, out, float(level[0]))


@dataclass(frozen=True, eq=False)
class Learned:
    """Aliases what is foretold to cost at most `limit` nats a token; a cell without a net never
    aliases. `guard`: the largest distance that was verified, `None`: any."""

    nets: Mapping[tuple[int, Modality], Net]
    limit: float
    guard: float | None = None

    @property
    def words(self) -> str:
        state = hashlib.blake2b(digest_size=16)
        for (layer, modality), net in sorted(self.nets.items()):
            state.update(f"{layer} {modality} {len(net.flat)} ".encode() + net.flat.tobytes())
        guard = "" if self.guard is None else f", distance <= {self.guard}"
        return f"learned {state.hexdigest()}, harm <= {self.limit} nats{guard}"

    def threshold(self, layer: int, modality: Modality) -> float | None:
        return None

    def harm(self, entry: Candidate) -> float:
        """Foretold, nats a token; NaN where nobody can tell."""
        net = self.nets.get((entry.layer, entry.modality))
        return math.nan if net is None else net.harm(inputs(entry))

    def picks(self, entry: Candidate) -> bool:
        if not self.harm(entry) <= self.limit:
            return False
        return self.guard is None or entry.distance() <= self.guard
