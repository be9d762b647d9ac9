"""Opening a Qwen3-Omni checkpoint folder."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import Tensor
from transformers import (
    PreTrainedTokenizerBase,
    Qwen2Tokenizer,
    Qwen3OmniMoeConfig,
    Qwen3OmniMoeForConditionalGeneration,
)
from transformers.utils import logging as transformers_logging

from monitors.detectors.speaking_time import VoiceModel
from runtime.model import requirements, voices, weights
from runtime.model.weights import WEIGHTS, CheckpointError, read_json

__all__ = [
    "FIGURES", "MANIFEST", "MODEL_TYPE", "WEIGHTS", "Checked", "Checkpoint", "CheckpointError",
    "MediaFigures", "check", "load",
]  # fmt: skip

MODEL_TYPE = "qwen3_omni_moe"
MANIFEST = "redline.json"  # ours: version, and the digest that its weights must have
FIGURES = "preprocessor_config.json"

log = logging.getLogger(__name__)


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
    voices: Mapping[str, VoiceModel] = field(default_factory=dict[str, VoiceModel])  # if known

    @property
    def device(self) -> torch.device:
        return self.model.device


def load(
    folder: Path,
    device: str = "cpu",
    *,
    dtype: torch.dtype | None = None,
    pool_bytes: int = 0,
    on_read: Callable[[int], None] = lambda _: None,
) -> Checkpoint:
    """Open a checkpoint folder: a tiny one or a real Qwen3-Omni, in one file or in shards.

    The weights run in float32 on a CPU (which multiplies bfloat16 slowly) and in their stored
    type on an accelerator, unless `dtype` says otherwise. `pool_bytes` of KV cache must fit
    beside them. Nothing is loaded before the folder, its digest and the free memory are checked.

    The audio encoder is set to attend within one second, so that encoding slice by slice equals
    encoding the whole (S2.1). Raises `CheckpointError`.
    """
    folder = Path(folder)
    with _quiet():
        found = check(folder, device, dtype=dtype, pool_bytes=pool_bytes, on_read=on_read)
        known = voices.load(folder, found.digest)
        model = _load_model(folder, found.config, found.shards, found.dtype, found.device)
    audio = model.thinker.model.audio_tower
    audio.n_window_infer = 2 * audio.n_window
    return Checkpoint(
        model=model,
        tokenizer=found.tokenizer,
        config=model.config,
        figures=found.figures,
        version=found.version,
        weights_digest=found.digest,
        folder=folder,
        voices=known,
    )


@dataclass(frozen=True)
class Checked:
    """A folder that can be loaded, and what was found in it."""

    config: Any  # Qwen3OmniMoeConfig
    figures: MediaFigures
    tokenizer: PreTrainedTokenizerBase
    version: str
    digest: str
    shards: list[Path]
    dtype: torch.dtype
    device: torch.device


def check(
    folder: Path,
    device: str = "cpu",
    *,
    dtype: torch.dtype | None = None,
    pool_bytes: int = 0,
    freed: requirements.Freed | None = None,
    on_read: Callable[[int], None] = lambda _: None,
) -> Checked:
    """All that `load` asks of a folder and of the machine, with no weight loaded.

    `freed`: what is given back before it loads; `on_read` hears of the bytes that the digest
    reads. Raises `CheckpointError`.
    """
    with _quiet():
        config = _read_config(folder)
        figures = _read_figures(folder, config)
        _check(folder, config, figures)
        tokenizer = _load_tokenizer(folder, config)
        version, expected = _read_manifest(folder)
        shards = weights.find(folder)
        sizes = _measure(folder, shards, expected)
        place = requirements.open_device(device)
        runs_in = dtype or (torch.float32 if place.type == "cpu" else sizes.stored)
        need = requirements.Need(sizes.bytes_as(runs_in), runs_in, pool_bytes)
        requirements.require_memory(folder, need, place, freed)
        digest = weights.digest(shards, on_read)
        if expected is not None:
            weights.require_digest(folder, digest, expected)
    return Checked(config, figures, tokenizer, version, digest, shards, runs_in, place)


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars, and no advice from transformers: what matters is raised or logged here."""
    level, bars = (
        transformers_logging.get_verbosity(),
        transformers_logging.is_progress_bar_enabled(),
    )
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()


def _read_config(folder: Path) -> Any:
    raw = read_json(folder / "config.json")
    if raw.get("model_type") != MODEL_TYPE:
        raise CheckpointError(
            f"{folder}: is a {raw.get('model_type')!r} checkpoint; this engine runs {MODEL_TYPE}"
        )
    if not raw.get("enable_audio_output", True):
        raise CheckpointError(f"{folder}: was saved without its Talker; use an Instruct checkpoint")
    if raw.get("quantization_config"):
        raise CheckpointError(f"{folder}: is quantised; use the bfloat16 checkpoint")
    try:
        return Qwen3OmniMoeConfig.from_dict(raw)
    except (StrictDataclassError, ValueError, TypeError, KeyError, AttributeError) as err:
        raise CheckpointError(f"{folder / 'config.json'}: cannot be used: {_line(err)}") from err


def _check(folder: Path, config: Any, figures: MediaFigures) -> None:
    from runtime.model import configuration  # it reads the Talker, which reads this module

    configuration.check(folder, config, figures)


def _read_manifest(folder: Path) -> tuple[str, str | None]:
    """The version, and the digest that the weights must have where the manifest says one."""
    path = folder / MANIFEST
    if not path.exists():
        return folder.name, None
    manifest = read_json(path)
    if "version" not in manifest:
        raise CheckpointError(f"{path}: names no version; {weights.AGAIN}")
    return manifest["version"], manifest.get("weights_digest")


def _measure(folder: Path, shards: list[Path], expected: str | None) -> weights.Sizes:
    """The weights' sizes; of files that cannot be measured, the digest says the most."""
    try:
        return weights.measure(shards)
    except CheckpointError:
        if expected is not None:
            weights.require_digest(folder, weights.digest(shards), expected)
        raise


def _load_model(
    folder: Path, config: Any, shards: list[Path], dtype: torch.dtype, device: torch.device
) -> Qwen3OmniMoeForConditionalGeneration:
    """The model from these very files, and from no other that the folder may hold."""
    try:
        loaded: Any = Qwen3OmniMoeForConditionalGeneration.from_pretrained(
            None,
            config=config,
            state_dict=weights.read(shards),
            dtype=dtype,
            output_loading_info=True,
            experts_implementation="grouped_mm",
        )
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, SafetensorError) as err:
        raise CheckpointError(f"{folder}: the weights do not load: {_line(err)}") from err
    model, info = loaded
    if info["missing_keys"]:
        names = sorted(info["missing_keys"])
        raise CheckpointError(
            f"{folder}: {len(names)} weights are missing, among them {weights.listed(names)}"
        )
    if info["unexpected_keys"]:
        names = sorted(info["unexpected_keys"])
        log.warning("%s: %d weights are not used: %s", folder, len(names), weights.listed(names))
    model.eval().requires_grad_(False).to(device)
    if device.type == "cpu":
        _own(model)
    return model


def _own(model: torch.nn.Module) -> None:
    """Copy what are views of the files: else a file that changes later changes the model."""
    tensors: list[Tensor] = [*model.parameters(), *model.buffers()]
    for tensor in tensors:
        tensor.data = tensor.data.clone()


def _line(err: Exception) -> str:
    """An error of a library in one line: an engine's last words are the last line of its log."""
    return " ".join(str(err).split())


def _load_tokenizer(folder: Path, config: Any) -> PreTrainedTokenizerBase:
    try:
        tokenizer: Any = Qwen2Tokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as err:
        raise CheckpointError(f"{folder}: the tokenizer does not load: {_line(err)}") from err
    thinker = config.thinker_config
    markers = {
        "<|im_start|>": config.im_start_token_id,
        "<|im_end|>": config.im_end_token_id,
        "<|audio_pad|>": thinker.audio_token_id,
        "<|image_pad|>": thinker.image_token_id,
        "<|video_pad|>": thinker.video_token_id,
    }
    # Without its files transformers makes an empty one, and says nothing.
    wrong = [name for name, at in markers.items() if tokenizer.convert_tokens_to_ids(name) != at]
    if wrong or len(tokenizer) > thinker.text_config.vocab_size:
        raise CheckpointError(
            f"{folder}: the tokenizer is missing, or is that of another model; {weights.AGAIN}"
        )
    return tokenizer


def _read_figures(folder: Path, config: Any) -> MediaFigures:
    raw = read_json(folder / FIGURES)
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
    except TypeError as err:
        raise CheckpointError(f"{folder / FIGURES}: cannot be used: {err}") from err
