"""`reuse.json`: what was found out about reuse on a checkpoint, beside its weights (DESIGN 5).

A file that names the weights and no more says "trained for sharing": the article's thresholds
hold (S1.3). `redline calibrate` writes one with a rule for each layer and modality that is safe.
"""

import math
import os
from collections import Counter
from pathlib import Path

import msgspec

from monitors.contract import Wire
from monitors.labels import Modality
from monitors.redlines import EntropyThresholds
from runtime.kv.reuse import (
    SHADOW_BUDGET_NATS,
    Calibrated,
    CellRule,
    LowEntropy,
    ReusePolicy,
    ReuseRule,
    Sign,
    off,
    upper_layers,
)
from runtime.kv.tokens import MODALITIES

CALIBRATION_FILE = "reuse.json"


class CalibrationError(ValueError):
    """A calibration file that cannot be used; the message says where and what to do."""


class Cell(Wire, frozen=True):
    """One layer and modality that may alias; see `CellRule`."""

    layer: int
    modality: Modality
    sign: Sign
    threshold: float
    guard: float | None = None


class Made(Wire, frozen=True):
    """How it came about. Losses are rises of the perplexity of right answers, as shares, of the
    policy as a whole on `clips` clips that no threshold was chosen on; the interval is of 95 %.
    `random_loss`: on the same clips, of as many entries drawn at random."""

    budget: float
    loss: float
    loss_low: float
    loss_high: float
    aliased_share: float
    random_loss: float
    clips: int
    seconds: int
    seed: int


class Calibration(Wire, frozen=True, omit_defaults=True):
    """What the file says of these very weights.

    `thresholds`, in nats, replace S1.3's one by one; `cells`, where given, replace them all, and
    what is not among them never aliases. `shadow_budget`: nats, see `ReusePolicy`.
    """

    weights_digest: str
    thresholds: dict[Modality, float] = msgspec.field(default_factory=dict)
    cells: tuple[Cell, ...] | None = None
    shadow_budget: float = SHADOW_BUDGET_NATS
    made: Made | None = None


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
    found = _read(path)
    if found.weights_digest != weights_digest:
        return off(f"uncalibrated: {CALIBRATION_FILE} is of other weights")
    allowed = upper_layers(layers, talker_layer)
    wrong = _wrong(found, allowed)
    if wrong is not None:
        raise CalibrationError(f"{path}: {wrong}; calibrate again or remove the file")
    return ReusePolicy("on", _rule(found, defaults), allowed, found.shadow_budget)


def write(path: Path, calibration: Calibration) -> None:
    """Replace the file at once: a reader finds the old one or the new one, whole."""
    text = msgspec.json.format(msgspec.json.encode(calibration), indent=2) + b"\n"
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(text)
    os.replace(fresh, path)


def _read(path: Path) -> Calibration:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Calibration)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as err:
        raise CalibrationError(f"{path}: {err}; calibrate again or remove the file") from err


def _rule(found: Calibration, defaults: EntropyThresholds) -> ReuseRule:
    if found.cells is None:
        return LowEntropy({m: found.thresholds.get(m, defaults.of(m)) for m in MODALITIES})
    return Calibrated(
        {(c.layer, c.modality): CellRule(c.sign, c.threshold, c.guard) for c in found.cells}
    )


def _wrong(found: Calibration, allowed: tuple[int, ...]) -> str | None:
    """What makes a readable file unusable, in words."""
    cells = found.cells or ()
    if found.cells is not None and found.thresholds:
        return "it has both thresholds and cells, and one would hide the other"
    if not _is_size(found.shadow_budget):
        return f"shadow_budget is {found.shadow_budget}, which is no number of nats"
    for where, count in Counter((c.layer, c.modality) for c in cells).items():
        if count > 1:
            return f"layer {where[0]}, {where[1]} stands there {count} times"
    for cell in cells:
        if cell.layer not in allowed:
            layers = ", ".join(map(str, allowed)) or "none"
            return f"layer {cell.layer} may not alias on this checkpoint; layers that may: {layers}"
        if cell.guard is not None and not _is_size(cell.guard):
            return f"layer {cell.layer}, {cell.modality}: a guard of {cell.guard} is no distance"
    return None


def _is_size(value: float) -> bool:
    return math.isfinite(value) and value >= 0.0
