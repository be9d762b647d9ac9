"""`voices.json`: how each voice of a checkpoint speaks and ends, beside its weights.

`redline voices` writes it. The gateway judges speech by it; without it, only by its accounts.
"""

import logging
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from monitors.contract import Wire
from monitors.detectors.speaking_time import SIZES, VoiceModel
from runtime.model.weights import CheckpointError

VOICES_FILE = "voices.json"

log = logging.getLogger(__name__)


class Made(Wire, frozen=True):
    """How the models came about: `count` texts of each kind for each voice to fit to, as many
    others to verify on."""

    readings: tuple[str, ...]
    count: int
    seed: int


class Voices(Wire, frozen=True):
    """What the file says of these very weights, by the name of the voice."""

    weights_digest: str
    voices: dict[str, VoiceModel]
    made: Made | None = None


def load(folder: Path, weights_digest: str) -> Mapping[str, VoiceModel]:
    """The voices that are known; none where there is no file, or it is of other weights.

    Raises `CheckpointError` for a file that cannot be used.
    """
    path = folder / VOICES_FILE
    if not path.exists():
        return {}
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Voices)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as err:
        raise CheckpointError(
            f"{path}: {err}; remove the file, then fit them again: redline voices"
        ) from err
    if found.weights_digest != weights_digest:
        log.warning("%s is of other weights: speech is judged by its accounts alone", path)
        return {}
    broken = [name for name, model in found.voices.items() if not all(_sound(model))]
    if broken:
        raise CheckpointError(
            f"{path}: {', '.join(broken)}: no such voice can be; remove the file, then fit them "
            "again: redline voices"
        )
    return {name.lower(): model for name, model in found.voices.items()}


def write(folder: Path, voices: Voices) -> Path:
    """Replace the file at once: a reader finds the old one or the new one, whole."""
    path = folder / VOICES_FILE
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(voices), indent=1) + b"\n")
    os.replace(fresh, path)
    return path


def _sound(model: VoiceModel) -> Iterator[bool]:
    """Spreads are what a difference is divided by."""
    for pace in model.paces.values():
        numbers = (pace.start, pace.syllable, pace.word, pace.minor, pace.major, pace.bias)
        yield all(math.isfinite(number) for number in numbers)
        yield len(pace.spread) == len(SIZES) + 1
        yield all(one is None or (math.isfinite(one) and one > 0.0) for one in pace.spread)
