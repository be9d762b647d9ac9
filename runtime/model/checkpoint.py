"""A Qwen3-Omni checkpoint folder: opening one, and making the project's tiny one."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoTokenizer,
    PreTrainedTokenizerBase,
    Qwen3OmniMoeForConditionalGeneration,
)

MODEL_TYPE = "qwen3_omni_moe"
MANIFEST = "redline.json"  # ours: version and seed of a checkpoint that `create` made
FIGURES = "preprocessor_config.json"
INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"


class CheckpointError(ValueError):
    """A folder that cannot be served; the message says what is wrong and what to do."""


@dataclass(frozen=True)
class MediaFigures:
    """How raw media becomes encoder input. Sides in pixels, `hop` and `n_fft` in samples."""

    sample_rate: int
    mel_bins: int
    n_fft: int
    hop: int
    mel_window: int  # mel frames the audio encoder folds at once: one second
    patch: int
    merge: int
    temporal_patch: int
    min_pixels: int
    max_pixels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    units_per_s: float  # TMRoPE positions per second; one unit is 1000 / units_per_s ms

    @property
    def cell(self) -> int:
        """Side of the square of pixels behind one visual token; frame sides are multiples of it."""
        return self.patch * self.merge


@dataclass(frozen=True)
class Checkpoint:
    """A loaded model and all that is needed to talk to it."""

    model: Qwen3OmniMoeForConditionalGeneration
    tokenizer: PreTrainedTokenizerBase
    config: Any  # Qwen3OmniMoeConfig
    figures: MediaFigures
    version: str
    weights_digest: str  # blake2b over the safetensors files, hex
    folder: Path

    @property
    def device(self) -> torch.device:
        return self.model.device


def create(folder: Path, *, version: str, seed: int) -> Path:
    """Make the tiny checkpoint in `folder` without network, in seconds; returns `folder`.

    Same seed, same weights digest; `version` is only a name. `runtime/model/tiny.py` says what
    such a checkpoint can and cannot do: its weights are random.
    """
    from runtime.model import tiny  # tiny reads the Talker, which reads this module

    return tiny.create(folder, version=version, seed=seed)


def load(folder: Path, device: str = "cpu") -> Checkpoint:
    """Open a checkpoint folder: a `create`d one or a real Qwen3-Omni, in one file or in shards.

    The audio encoder is set to attend within one second, so that encoding slice by slice equals
    encoding the whole (S2.1). Raises `CheckpointError`.
    """
    folder = Path(folder)
    version = _read_version(folder)
    shards = _shards(folder)
    model = _load_model(folder, device)
    audio = model.thinker.model.audio_tower
    audio.n_window_infer = 2 * audio.n_window
    return Checkpoint(
        model=model,
        tokenizer=_load_tokenizer(folder, model.config),
        config=model.config,
        figures=_read_figures(folder, model.config),
        version=version,
        weights_digest=_digest(shards),
        folder=folder,
    )


def _read_version(folder: Path) -> str:
    config = _read_json(folder / "config.json")
    if config.get("model_type") != MODEL_TYPE:
        raise CheckpointError(
            f"{folder}: is a {config.get('model_type')!r} checkpoint; this engine runs {MODEL_TYPE}"
        )
    if not config.get("enable_audio_output", True):
        raise CheckpointError(f"{folder}: was saved without its Talker; use an Instruct checkpoint")
    manifest = folder / MANIFEST
    return _read_json(manifest)["version"] if manifest.exists() else folder.name


def _read_json(path: Path) -> dict[str, Any]:
    if not path.parent.is_dir():
        raise CheckpointError(f"{path.parent}: no such checkpoint folder")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise CheckpointError(f"{path}: cannot be read: {err.strerror}") from err
    except ValueError as err:
        raise CheckpointError(f"{path}: is not JSON: {err}") from err


def _shards(folder: Path) -> list[Path]:
    """The weight files, by the index where there is one. Missing ones are named."""
    if (folder / INDEX).exists():
        index = _read_json(folder / INDEX)
        shards = [folder / name for name in sorted(set(index["weight_map"].values()))]
    else:
        shards = [folder / WEIGHTS]
    missing = [shard.name for shard in shards if not shard.is_file()]
    if missing:
        raise CheckpointError(f"{folder}: weight files are missing: {', '.join(missing)}")
    return shards


def _digest(shards: list[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for shard in shards:
        with shard.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _load_model(folder: Path, device: str) -> Qwen3OmniMoeForConditionalGeneration:
    try:
        loaded: Any = Qwen3OmniMoeForConditionalGeneration.from_pretrained(
            folder,
            dtype="auto",
            local_files_only=True,
            output_loading_info=True,
            experts_implementation="grouped_mm",
        )
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, SafetensorError) as err:
        raise CheckpointError(f"{folder}: the weights do not load: {err}") from err
    model, info = loaded
    if info["missing_keys"]:
        names = sorted(info["missing_keys"])
        raise CheckpointError(
            f"{folder}: {len(names)} weights are missing, among them {', '.join(names[:3])}"
        )
    return model.eval().requires_grad_(False).to(device)


def _load_tokenizer(folder: Path, config: Any) -> PreTrainedTokenizerBase:
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as err:
        raise CheckpointError(f"{folder}: the tokenizer does not load: {err}") from err
    # Without its files transformers makes an empty one, and says nothing.
    if tokenizer.convert_tokens_to_ids("<|im_start|>") != config.im_start_token_id:
        raise CheckpointError(f"{folder}: the tokenizer is missing, or is that of another model")
    return tokenizer


def _read_figures(folder: Path, config: Any) -> MediaFigures:
    raw = _read_json(folder / FIGURES)
    vision, audio = config.thinker_config.vision_config, config.thinker_config.audio_config
    try:
        return MediaFigures(
            sample_rate=raw["sampling_rate"],
            mel_bins=raw["feature_size"],
            n_fft=raw["n_fft"],
            hop=raw["hop_length"],
            mel_window=2 * audio.n_window,
            patch=vision.patch_size,
            merge=vision.spatial_merge_size,
            temporal_patch=vision.temporal_patch_size,
            min_pixels=raw["min_pixels"],
            max_pixels=raw["max_pixels"],
            mean=tuple(raw["image_mean"]),
            std=tuple(raw["image_std"]),
            units_per_s=float(config.thinker_config.position_id_per_seconds),
        )
    except KeyError as err:
        raise CheckpointError(f"{folder / FIGURES}: has no {err}; is it a Qwen3-Omni?") from err
