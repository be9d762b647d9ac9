"""Which blocks reuse the layer below's page (S1.2, S1.3).

Low cross-modal entropy makes a token redundant only in a checkpoint that was trained for it, so
reuse needs a calibration file beside the checkpoint that names its weights; without one it is
off and table 1 says so (DESIGN 5).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class ReusePolicy:
    """`thresholds` by modality in nats; `None` while reuse is off, `state` saying why."""

    state: str
    thresholds: Mapping[Modality, float] | None
    layers: tuple[int, ...] = ()  # layers that may point at the layer below

    @property
    def on(self) -> bool:
        return self.thresholds is not None

    @property
    def digest(self) -> str:
        """Part of every cache key: blocks written under another policy never match."""
        rule = sorted((self.thresholds or {}).items())
        return hashlib.blake2b(repr((rule, self.layers)).encode(), digest_size=8).hexdigest()

    def threshold(self, layer: int, modality: Modality) -> float | None:
        """Table 1's `entropy_th`; `None` where this cell never reuses."""
        if self.thresholds is None or layer not in self.layers:
            return None
        return self.thresholds[modality]

    def aliased_layers(self, modality: int, nats: NDArray[np.float32]) -> list[int]:
        """Layers whose entry becomes the layer below's, for a block of `nats` `(layers, fill)`.

        A layer decides from the entropy of the layer below, and only if **every** token of the
        block is below the threshold; NaN is not.
        """
        if self.thresholds is None:
            return []
        limit = self.thresholds[MODALITIES[modality]]
        return [layer for layer in self.layers if (nats[layer - 1] < limit).all()]


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
    thresholds = {m: found.thresholds.get(m, defaults.of(m)) for m in MODALITIES}
    return ReusePolicy("on", thresholds, upper_layers(layers, talker_layer))
