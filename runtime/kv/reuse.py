"""Which blocks reuse the layer below's page (S1.2, S1.3).

Low cross-modal entropy makes a token redundant only in a checkpoint that was trained for it, so
reuse needs a calibration file beside the checkpoint that names its weights; without one it is
off and table 1 says so (DESIGN 5).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitors.contract import Wire
from monitors.labels import Modality
from monitors.redlines import EntropyThresholds
from runtime.kv.tokens import MODALITIES

CALIBRATION_FILE = "reuse.json"
NEWEST_TOKENS = 64  # never aliased: decided as prefill leaves a block this far behind
SINK_BLOCKS = 1  # attention sinks are never aliased


class Calibration(Wire, frozen=True):
    """`reuse.json`: thresholds in nats for these very weights; absent ones are S1.3's."""

    weights_digest: str
    thresholds: dict[Modality, float] = msgspec.field(default_factory=dict)


class CalibrationError(ValueError):
    """A calibration file that cannot be used; the message says where and what to do."""


class ReuseRule(Protocol):
    """Which of the entries that may alias do so."""

    @property
    def words(self) -> str:
        """All that its choice depends on: rules of equal words choose alike."""
        ...

    def threshold(self, modality: Modality) -> float | None:
        """In nats; `None` for a rule that has none."""
        ...

    def picks(self, layer: int, modality: Modality, nats: float, place: bytes) -> bool:
        """Whether `layer`'s entry of a block aliases.

        `nats`: the highest entropy of its tokens in the layer below. `place`: which block it is,
        the same wherever the same tokens stand before it.
        """
        ...


@dataclass(frozen=True)
class LowEntropy:
    """The article's rule: every token of the block is below its modality's threshold, in nats."""

    thresholds: Mapping[Modality, float]

    @property
    def words(self) -> str:
        return ", ".join(f"{m} < {nats} nats" for m, nats in sorted(self.thresholds.items()))

    def threshold(self, modality: Modality) -> float | None:
        return self.thresholds[modality]

    def picks(self, layer: int, modality: Modality, nats: float, place: bytes) -> bool:
        return nats < self.thresholds[modality]


@dataclass(frozen=True)
class AtRandom:
    """The control of DESIGN 5: each entry with probability `share`, whatever its entropy."""

    share: float
    seed: int = 0

    @property
    def words(self) -> str:
        return f"at random {self.share}, seed {self.seed}"

    def threshold(self, modality: Modality) -> float | None:
        return None

    def picks(self, layer: int, modality: Modality, nats: float, place: bytes) -> bool:
        drawn = hashlib.blake2b(b"%d %d " % (self.seed, layer) + place, digest_size=8).digest()
        return int.from_bytes(drawn, "little") < self.share * 2**64


@dataclass(frozen=True)
class ReusePolicy:
    """`rule` is `None` while reuse is off, `state` saying why."""

    state: str
    rule: ReuseRule | None
    layers: tuple[int, ...] = ()  # layers that may point at the layer below

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
        return self.rule.threshold(modality)

    def aliased_layers(self, modality: int, nats: NDArray[np.float32], place: bytes) -> list[int]:
        """Layers whose entry becomes the layer below's, for a block of `nats` `(layers, fill)`.

        A layer decides from the entropy of the layer below; where that is undefined (NaN) for
        any token of the block, no rule is asked.
        """
        if self.rule is None:
            return []
        of, highest = MODALITIES[modality], nats.max(1)
        defined = [layer for layer in self.layers if not np.isnan(highest[layer - 1])]
        return [i for i in defined if self.rule.picks(i, of, float(highest[i - 1]), place)]


def off(reason: str) -> ReusePolicy:
    return ReusePolicy(f"off: {reason}", None)


def upper_layers(layers: int, talker_layer: int | None) -> tuple[int, ...]:
    """The upper ones of pairs 2k -> 2k+1, but the last layer and the one the Talker reads."""
    return tuple(k for k in range(1, layers - 1, 2) if k != talker_layer)


def load_policy(
    checkpoint: Path,
    weights_digest: str,
    layers: int,
    talker_layer: int | None,
    defaults: EntropyThresholds,
) -> ReusePolicy:
    """The policy of a checkpoint folder. Raises `CalibrationError` for an unusable file."""
    path = checkpoint / CALIBRATION_FILE
    if not path.exists():
        return off("uncalibrated")
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Calibration)
    except msgspec.DecodeError as err:
        raise CalibrationError(f"{path}: {err}; calibrate again or remove the file") from err
    if found.weights_digest != weights_digest:
        return off("uncalibrated")
    rule = LowEntropy({m: found.thresholds.get(m, defaults.of(m)) for m in MODALITIES})
    return ReusePolicy("on", rule, upper_layers(layers, talker_layer))
