"""Which blocks reuse the layer below's page (S1.2, S1.3): the rules, and the policy over them.

Low cross-modal entropy makes a token redundant only in a checkpoint that was trained for it, so
what a policy does comes from the calibration beside the checkpoint (`runtime/kv/calibration.py`);
without one reuse is off and table 1 says so (DESIGN 5).
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cosine_similarity

from monitors.labels import Modality
from runtime.kv.tokens import MODALITIES

NEWEST_TOKENS = 64  # never aliased: decided as prefill leaves a block this far behind
SINK_BLOCKS = 1  # attention sinks are never aliased
SHADOW_BUDGET_NATS = 0.02  # mean divergence from full KV that trips reuse off, unless calibrated


@dataclass(frozen=True)
class Likeness:
    """A block's K and V against the layer below's; pairs are of K and of V.

    `off`: their distance over the size of its own; `cosine`: mean of its tokens; `own` and
    `below`: sizes, of the whole block.
    """

    off: tuple[float, float]
    cosine: tuple[float, float]
    own: tuple[float, float]
    below: tuple[float, float]

    @property
    def distance(self) -> float:
        """The worse of the two; NaN where either is."""
        return math.nan if any(map(math.isnan, self.off)) else max(self.off)


@dataclass(frozen=True)
class Candidate:
    """A block's entry of `layer` that may become the layer below's, as a rule sees it.

    `nats`: the highest entropy of its tokens in the layer below. `place`: which block it is, the
    same wherever the same tokens stand before it. `likeness` reads the block's own K and V and
    the layer below's, which takes far longer than the rest. `mean_nats`: of the layer below;
    `own_nats`: the highest of its own layer.
    """

    layer: int
    modality: Modality
    nats: float
    place: bytes
    likeness: Callable[[], Likeness]
    mean_nats: float = math.nan
    own_nats: float = math.nan

    def distance(self) -> float:
        """Of its own K and V from the layer below's (`Likeness`)."""
        return self.likeness().distance


class ReuseRule(Protocol):
    """Which of the entries that may alias do so."""

    @property
    def words(self) -> str:
        """All that its choice depends on: rules of equal words choose alike."""
        ...

    def threshold(self, layer: int, modality: Modality) -> float | None:
        """In nats; `None` for a cell that never aliases, or not by entropy."""
        ...

    def picks(self, entry: Candidate) -> bool:
        """Whether it aliases."""
        ...


@dataclass(frozen=True)
class LowEntropy:
    """The article's rule: every token of the block is below its modality's threshold, in nats."""

    thresholds: Mapping[Modality, float]

    @property
    def words(self) -> str:
        return ", ".join(f"{m} < {nats} nats" for m, nats in sorted(self.thresholds.items()))

    def threshold(self, layer: int, modality: Modality) -> float | None:
        return self.thresholds[modality]

    def picks(self, entry: Candidate) -> bool:
        return entry.nats < self.thresholds[entry.modality]


class Sign(StrEnum):
    """On which side of its threshold a cell aliases: on some models low entropy chooses worse
    than chance."""

    BELOW = "below"
    ABOVE = "above"


@dataclass(frozen=True)
class CellRule:
    """One layer and modality. `threshold` in nats; `guard`: the largest relative distance between
    the block's own K/V and the layer below's at which it still aliases, `None`: any."""

    sign: Sign
    threshold: float
    guard: float | None = None

    @property
    def words(self) -> str:
        guard = "" if self.guard is None else f", distance <= {self.guard}"
        return f"{self.sign} {self.threshold} nats{guard}"

    def picks(self, entry: Candidate) -> bool:
        low = entry.nats < self.threshold
        if low is not (self.sign is Sign.BELOW):
            return False
        return self.guard is None or entry.distance() <= self.guard


@dataclass(frozen=True)
class Calibrated:
    """A rule for each layer and modality; a cell without one never aliases."""

    cells: Mapping[tuple[int, Modality], CellRule]

    @property
    def words(self) -> str:
        cells = sorted(self.cells.items())
        return ", ".join(f"layer {layer} {m} {cell.words}" for (layer, m), cell in cells)

    def threshold(self, layer: int, modality: Modality) -> float | None:
        cell = self.cells.get((layer, modality))
        return None if cell is None else cell.threshold

    def picks(self, entry: Candidate) -> bool:
        cell = self.cells.get((entry.layer, entry.modality))
        return cell is not None and cell.picks(entry)


@dataclass(frozen=True)
class AtRandom:
    """The control of DESIGN 5: each entry with probability `share`, whatever its entropy."""

    share: float
    seed: int = 0

    @property
    def words(self) -> str:
        return f"at random {self.share}, seed {self.seed}"

    def threshold(self, layer: int, modality: Modality) -> float | None:
        return None

    def picks(self, entry: Candidate) -> bool:
        text = b"%d %d " % (self.seed, entry.layer) + entry.place
        drawn = hashlib.blake2b(text, digest_size=8).digest()
        return int.from_bytes(drawn, "little") < self.share * 2**64


@dataclass(frozen=True)
class ReusePolicy:
    """`rule` is `None` while reuse is off, `state` saying why. `shadow_budget`: mean nats that
    answers under it may diverge from those on full KV."""

    state: str
    rule: ReuseRule | None
    layers: tuple[int, ...] = ()  # layers that may point at the layer below
    shadow_budget: float = SHADOW_BUDGET_NATS

    @property
    def on(self) -> bool:
        return self.rule is not None

    @property
    def digest(self) -> str:
        """Part of every cache key: blocks written under another policy never match."""
        rule = "" if self.rule is None else self.rule.words
        return hashlib.blake2b(repr((rule, self.layers)).encode(), digest_size=8).hexdigest()

    def threshold(self, layer: int, modality: Modality) -> float | None:
        """Table 1's `entropy_th`; `None` where this cell never reuses, or not by entropy."""
        if self.rule is None or layer not in self.layers:
            return None
        return self.rule.threshold(layer, modality)

    def aliased_layers(
        self,
        modality: int,
        nats: NDArray[np.float32],
        place: bytes,
        likenesses: Callable[[], Sequence[Likeness | None]],
    ) -> list[int]:
        """Layers whose entry becomes the layer below's, for a block of `nats` `(layers, fill)`.

        A layer decides from the entropy of the layer below; where that is undefined (NaN) for
        any token of the block, no rule is asked. `likenesses()`, of each layer, is called where
        a rule needs it, and once.
        """
        if self.rule is None:
            return []
        of, highest, mean, read = MODALITIES[modality], nats.max(1), nats.mean(1), cache(likenesses)

        def likeness(layer: int) -> Likeness:
            found = read()[layer]
            assert found is not None, "the first layer has none below"
            return found

        entries = [
            Candidate(
                layer=i,
                modality=of,
                nats=float(highest[i - 1]),
                place=place,
                likeness=partial(likeness, i),
                mean_nats=float(mean[i - 1]),
                own_nats=float(highest[i]),
            )
            for i in self.layers
            if not np.isnan(highest[i - 1])
        ]
        return [entry.layer for entry in entries if self.rule.picks(entry)]


def off(reason: str) -> ReusePolicy:
    return ReusePolicy(f"off: {reason}", None)


def upper_layers(layers: int, talker_layer: int | None) -> tuple[int, ...]:
    """The upper ones of pairs 2k -> 2k+1, but the last layer and the one the Talker reads."""
    return tuple(k for k in range(1, layers - 1, 2) if k != talker_layer)


def likenesses(keys: Tensor, values: Tensor) -> list[Likeness | None]:
    """How like a block's K and V in each layer are to the layer below's; `None` for layer 0.

    Both `(layers, tokens, kv_heads, head_dim)`. Equal ones are at distance 0, of whatever size.
    """
    halves = torch.stack([keys, values]).float().flatten(3)
    own, below = halves[:, 1:], halves[:, :-1]
    sizes = halves.flatten(2).norm(dim=-1)
    off_by = (own - below).flatten(2).norm(dim=-1)
    off = torch.where(off_by == 0.0, 0.0, off_by / sizes[:, 1:])
    cosine = cosine_similarity(own, below, dim=-1).mean(2)
    parts = torch.stack([off, cosine, sizes[:, 1:], sizes[:, :-1]]).permute(2, 0, 1).tolist()
    return [None, *(Likeness(*map(tuple, of)) for of in parts)]
