"""A learned reuse rule beside others of the same rate: by entropy, by distance and by chance."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench import rules
from monitors.labels import Modality
from runtime.kv.learned import Floats, Learned, Net, inputs
from runtime.kv.reuse import AtRandom, Candidate, ReuseRule
from runtime.quality.calibration_runs import Where


@dataclass(frozen=True)
class Seen:
    """An entry that might alias."""

    where: Where
    nats: float
    distance: float
    inputs: Floats


@dataclass
class Watch:
    """Sees every entry that might alias, and aliases none."""

    seen: list[Seen] = field(default_factory=list)
    words = "watch"

    def threshold(self, layer: int, modality: Modality) -> float | None:
        return None

    def picks(self, entry: Candidate) -> bool:
        where = (entry.layer, entry.modality)
        self.seen.append(Seen(where, entry.nats, entry.distance(), inputs(entry)))
        return False


@dataclass(frozen=True)
class Near:
    """Blocks whose K and V are nearest to the layer below's."""

    distance: float

    @property
    def words(self) -> str:
        return f"distance <= {self.distance}"

    def threshold(self, layer: int, modality: Modality) -> float | None:
        return None

    def picks(self, entry: Candidate) -> bool:
        return entry.distance() <= self.distance


@dataclass(frozen=True)
class InCells:
    """At random, each cell its own share."""

    shares: Mapping[Where, float]

    @property
    def words(self) -> str:
        return hashlib.blake2b(repr(sorted(self.shares.items())).encode()).hexdigest()

    def threshold(self, layer: int, modality: Modality) -> float | None:
        return None

    def picks(self, entry: Candidate) -> bool:
        return AtRandom(self.shares.get((entry.layer, entry.modality), 0.0)).picks(entry)


def foretold(seen: Sequence[Seen], nets: Mapping[Where, Net]) -> list[float]:
    """What each is foretold to cost, nats a token; without a net, anything."""
    return [nets[one.where].harm(one.inputs) if one.where in nets else math.inf for one in seen]


def at_rate(rate: float, seen: Sequence[Seen], nets: Mapping[Where, Net]) -> dict[str, ReuseRule]:
    """Rules that each pick about this share of entries like those in `seen`."""
    harms = foretold(seen, nets)
    learned = Learned(nets, float(np.quantile(harms, rate)))
    near = Near(float(np.quantile([one.distance for one in seen], rate)))
    return {
        "learned": learned,
        **rules.at_rate(rate, [(one.where[1], one.nats) for one in seen]),
        "distance": near,
        "at random in the learned cells": InCells(_shares(seen, harms, learned.limit)),
    }


def _shares(seen: Sequence[Seen], harms: Sequence[float], limit: float) -> dict[Where, float]:
    picked: dict[Where, list[bool]] = {}
    for one, harm in zip(seen, harms, strict=True):
        picked.setdefault(one.where, []).append(harm <= limit)
    return {where: float(np.mean(of)) for where, of in picked.items()}
