"""Learning what an alias costs: from answers under random aliases of one layer at a time (S5.1).

The divergence of an answer's tokens from full KV is the sum of what its aliases cost; the nets of
`runtime/kv/learned.py` are fitted to such sums. Nothing is assumed of the model: what is measured
is what serving does. (Gradients would tell of every entry from one forward; but a page of the
layer below is so far off that to second order they are wrong by two orders of magnitude.)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from monitors.labels import Modality
from runtime.kv.learned import INPUTS, Floats, Net, inputs
from runtime.kv.reuse import AtRandom, Candidate, ReuseRule
from runtime.quality.policies import NEVER

WIDTH = 8  # of the hidden layer
SHARES = (1.0, 0.5, 0.25)  # of a layer's entries, aliased in turn
_FLOOR = 1e-4  # nats a token: harms below are alike
_STEPS, _RATE = 400, 0.02
_DOUBT = 60.0  # trials that weigh as much as the belief that entries of a cell are alike
_LEAST_SPREAD = 1e-3

Where = tuple[int, Modality]
S = TypeVar("S")
T = TypeVar("T")


@dataclass
class InLayer:
    """The entries of one layer that `rule` picks; `aliased` keeps the inputs of each."""

    layer: int
    rule: ReuseRule
    aliased: list[tuple[Where, Floats]] = field(default_factory=list)

    @property
    def words(self) -> str:
        return f"layer {self.layer}: {self.rule.words}"

    def threshold(self, layer: int, modality: Modality) -> float | None:
        return None

    def picks(self, entry: Candidate) -> bool:
        picked = entry.layer == self.layer and self.rule.picks(entry)
        if picked:
            self.aliased.append(((entry.layer, entry.modality), inputs(entry)))
        return picked


def trial_rule(layer: int, number: int, seed: int) -> InLayer:
    """For the `number`-th answer: the shares in turn, other entries each time."""
    share = SHARES[(number + layer // 2) % len(SHARES)]
    return InLayer(layer, AtRandom(share, seed + number))


@dataclass(frozen=True, eq=False)
class Trial:
    """One answer: what was aliased before it, and how far it was from full KV, nats a token."""

    aliased: Sequence[tuple[Where, Floats]]
    harm: float


def gather(
    samples: Sequence[S],
    layers: Sequence[int],
    answer: Callable[[S, ReuseRule], T],
    apart: Callable[[T, T], float],
    seed: int = 0,
) -> list[Trial]:
    """Each sample answered on full KV, and once for each layer with some of it aliased.

    `apart(full, other)`: the divergence of two answers, nats a token.
    """
    trials: list[Trial] = []
    for number, sample in enumerate(samples):
        full = answer(sample, NEVER)
        for layer in layers:
            rule = trial_rule(layer, number, seed)
            other = answer(sample, rule)
            trials.append(Trial(rule.aliased, apart(full, other)))
    return trials


class NothingAliased(ValueError):
    """No trial has an alias to learn from."""


def train(trials: Sequence[Trial], seed: int = 0) -> dict[Where, Net]:
    """A net for each cell with an alias in `trials`; the same trials, the same nets.

    Raises `NothingAliased`.
    """
    trials = [trial for trial in trials if trial.aliased]
    cells = sorted({where for trial in trials for where, _ in trial.aliased})
    if not cells:
        raise NothingAliased("nothing in these answers was aliased: give longer ones")
    fit = _Fit(trials, {where: i for i, where in enumerate(cells)}, seed)
    return dict(zip(cells, fit.nets(), strict=True))


class _Fit:
    """All cells at once: they share the trials' sums."""

    def __init__(self, trials: Sequence[Trial], cells: Mapping[Where, int], seed: int) -> None:
        entries = [(n, *one) for n, trial in enumerate(trials) for one in trial.aliased]
        seen = np.stack([found for _, _, found in entries])
        self._centre = seen.mean(0)
        self._spread = np.maximum(seen.std(0), _LEAST_SPREAD)
        self._seen = torch.from_numpy((seen - self._centre) / self._spread)
        self._trial = torch.tensor([n for n, _, _ in entries])
        self._cell = torch.tensor([cells[where] for _, where, _ in entries])
        self._harm = torch.tensor([trial.harm for trial in trials], dtype=torch.float64)
        each = max(_FLOOR, float(self._harm.sum()) / len(entries))
        self._hidden = torch.randn(INPUTS, WIDTH, generator=torch.Generator().manual_seed(seed))
        self._hidden = self._hidden.double() * INPUTS**-0.5
        self._bias, self._common = torch.zeros(2, WIDTH, dtype=torch.float64)
        self._own = torch.zeros(len(cells), WIDTH, dtype=torch.float64)
        start = float(np.log(np.expm1(each)))
        self._level = torch.full((len(cells),), start, dtype=torch.float64)
        layers = torch.tensor([layer for layer, _ in cells])
        self._layer = torch.unique(layers, return_inverse=True)[1]

    def nets(self) -> list[Net]:
        weights = [self._hidden, self._bias, self._common, self._own, self._level]
        for weight in weights:
            weight.requires_grad_()
        doubt = _DOUBT / len(self._harm)
        adam = torch.optim.Adam(weights, lr=_RATE)
        with torch.enable_grad():
            for _ in range(_STEPS):
                adam.zero_grad()
                (self._misfit() + doubt * self._size()).backward()
                adam.step()
        hidden, bias, common, own, level = (weight.detach().numpy() for weight in weights)
        return [
            Net(self._centre, self._spread, hidden, bias, common + each, float(at))
            for each, at in zip(own, level, strict=True)
        ]

    def _misfit(self) -> Tensor:
        """Of logarithms: a harm of 0.001 nats is to be told from one of 0.01."""
        felt = (self._seen @ self._hidden + self._bias).tanh()
        raw = (felt * (self._common + self._own[self._cell])).sum(1) + self._level[self._cell]
        sums = torch.zeros_like(self._harm).index_add(0, self._trial, softplus(raw))
        return ((sums + _FLOOR) / (self._harm + _FLOOR)).log().square().mean()

    def _size(self) -> Tensor:
        """What is to be small, where the trials do not say otherwise."""
        count = torch.bincount(self._layer)
        sums = torch.zeros(len(count), dtype=torch.float64).index_add(0, self._layer, self._level)
        apart = self._level - (sums / count)[self._layer]
        return (
            self._common.square().sum()
            + self._own.square().sum(1).mean()
            + self._hidden.square().mean()
            + apart.square().mean()
        )
