"""`reuse.json`: what was found out about reuse on a checkpoint, beside its weights (DESIGN 5).

A file that names the weights and no more says "trained for sharing": the article's thresholds
hold (S1.3). `redline calibrate` writes one with a rule for each layer and modality that is safe.
"""

import math
import os
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np

from monitors.contract import Wire
from monitors.labels import Modality
from monitors.redlines import EntropyThresholds
from runtime.kv.learned import Learned, Net, unflatten
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


class LearnedCell(Wire, frozen=True):
    """The net of one layer and modality; `weights` as `Net.flat`."""

    layer: int
    modality: Modality
    weights: tuple[float, ...]


class LearnedRule(Wire, frozen=True):
    """See `Learned`."""

    limit: float
    guard: float
    cells: tuple[LearnedCell, ...]


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
    what is not among them never aliases. `learned`, where given, replaces both. `shadow_budget`:
    nats, see `ReusePolicy`.
    """

    weights_digest: str
    thresholds: dict[Modality, float] = msgspec.field(default_factory=dict)
    cells: tuple[Cell, ...] | None = None
    learned: LearnedRule | None = None
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
    if found.learned is not None:
        of = found.learned
        return Learned({(c.layer, c.modality): _net(c) for c in of.cells}, of.limit, of.guard)
    if found.cells is None:
        return LowEntropy({m: found.thresholds.get(m, defaults.of(m)) for m in MODALITIES})
    return Calibrated(
        {(c.layer, c.modality): CellRule(c.sign, c.threshold, c.guard) for c in found.cells}
    )


def _wrong(found: Calibration, allowed: tuple[int, ...]) -> str | None:
    """What makes a readable file unusable, in words."""
    ways = {"thresholds": found.thresholds or None, "cells": found.cells, "learned": found.learned}
    both = [name for name, way in ways.items() if way is not None]
    if len(both) > 1:
        return f"it has both {' and '.join(both)}, and one would hide the other"
    if not _is_size(found.shadow_budget):
        return f"shadow_budget is {found.shadow_budget}, which is no number of nats"
    learned = found.learned
    cells = (found.cells or ()) if learned is None else learned.cells
    for where, count in Counter((c.layer, c.modality) for c in cells).items():
        if count > 1:
            return f"layer {where[0]}, {where[1]} stands there {count} times"
    for cell in cells:
        if cell.layer not in allowed:
            layers = ", ".join(map(str, allowed)) or "none"
            return f"layer {cell.layer} may not alias on this checkpoint; layers that may: {layers}"
        wrong = _wrong_weights(cell) if isinstance(cell, LearnedCell) else _wrong_guard(cell.guard)
        if wrong is not None:
            return f"layer {cell.layer}, {cell.modality}: {wrong}"
    return None if learned is None else _wrong_guard(learned.guard)


def _wrong_guard(guard: float | None) -> str | None:
    wrong = guard is not None and not _is_size(guard)
    return f"a guard of {guard} is no distance" if wrong else None


def _wrong_weights(cell: LearnedCell) -> str | None:
    try:
        _net(cell)
    except ValueError as err:
        return str(err)
    return None


def _net(cell: LearnedCell) -> Net:
    return unflatten(np.array(cell.weights, np.float64))


def _is_size(value: float) -> bool:
    return math.isfinite(value) and value >= 0.0
