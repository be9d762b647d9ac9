"""Reuse rules that are compared at an equal rate: the lowest, the highest, or any entropy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from monitors.labels import Modality
from runtime.kv.reuse import AtRandom, Candidate, LowEntropy, ReusePolicy, ReuseRule
from runtime.quality.policies import NEVER, Seen, Tally, tallied


@dataclass(frozen=True)
class HighEntropy:
    """The opposite of the article's rule: the block's highest entropy is above its threshold."""

    thresholds: Mapping[Modality, float]

    @property
    def words(self) -> str:
        return ", ".join(f"{m} > {nats} nats" for m, nats in sorted(self.thresholds.items()))

    def threshold(self, layer: int, modality: Modality) -> float | None:
        return self.thresholds[modality]

    def picks(self, entry: Candidate) -> bool:
        return entry.nats > self.thresholds[entry.modality]


def watching(layers: Sequence[int]) -> tuple[ReusePolicy, Tally]:
    """Asks about every entry that might alias, and aliases none."""
    return counted(NEVER, layers)


def counted(rule: ReuseRule, layers: Sequence[int]) -> tuple[ReusePolicy, Tally]:
    """`rule` on `layers`, and the count of what it picks."""
    policy, tally = tallied(ReusePolicy("on", rule, tuple(layers)))
    assert tally is not None
    return policy, tally


def at_rate(rate: float, seen: Sequence[Seen], seed: int = 0) -> dict[str, ReuseRule]:
    """Three rules that each pick about this share of entries like those in `seen`."""
    return {
        "low entropy": LowEntropy(_quantiles(seen, rate, nobody=-math.inf)),
        "at random": AtRandom(rate, seed),
        "high entropy": HighEntropy(_quantiles(seen, 1.0 - rate, nobody=math.inf)),
    }


def _quantiles(seen: Sequence[Seen], at: float, nobody: float) -> dict[Modality, float]:
    """By modality; `nobody`: for one that was never seen."""
    values = {m: [nats for of, nats in seen if of is m] for m in Modality}
    return {m: float(np.quantile(v, at)) if v else nobody for m, v in values.items()}
