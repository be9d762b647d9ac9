import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen3OmniMoeConfig
from transformers.utils import logging as transformers_logging

from runtime.media.fidelity import MODEL_HZ
from runtime.model import configuration
from runtime.model.checkpoint import Checkpoint, MediaFigures
from runtime.model.weights import CheckpointError

FOLDER = Path("qwen3-omni")
MROPE = {
    "rope_theta": 1_000_000,
    "rope_scaling": {
        "interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default",
        "type": "default",
    },
}  # fmt: skip


def _published() -> dict[str, Any]:
    """Figures of Qwen3-Omni-30B-A3B-Instruct, in the words of its config.json."""
    return {
        "model_type": "qwen3_omni_moe",
        "dtype": "bfloat16",
        "enable_audio_output": True,
        "thinker_config": {
            "audio_token_id": 151_675, "image_token_id": 151_655, "video_token_id": 151_656,
            "position_id_per_seconds": 13, "seconds_per_chunk": 2,
            "audio_config": {
                "num_mel_bins": 128, "d_model": 1280, "encoder_layers": 32, "n_window": 50,
                "n_window_infer": 800, "output_dim": 2048, "downsample_hidden_size": 480,
            },
            "vision_config": {
                "depth": 27, "hidden_size": 1152, "num_heads": 16, "patch_size": 16,
                "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 2048,
                "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24],
                "in_channels": 3, "image_size": 768,
            },
            "text_config": {
                **MROPE, "num_hidden_layers": 48, "hidden_size": 2048, "head_dim": 128,
                "num_attention_heads": 32, "num_key_value_heads": 4, "num_experts": 128,
                "num_experts_per_tok": 8, "vocab_size": 152_064, "sliding_window": None,
                "use_sliding_window": False, "use_qk_norm": True, "intermediate_size": 768,
                "shared_expert_intermediate_size": 0, "max_position_embeddings": 65_536,
            },
        },
        "talker_config": {
            "num_code_groups": 16, "accept_hidden_layer": 24, "thinker_hidden_size": 2048,
            "codec_bos_id": 2149, "codec_eos_token_id": 2150, "codec_nothink_id": 2155,
            "codec_pad_id": 2148, "codec_think_bos_id": 2156, "codec_think_eos_id": 2157,
            "speaker_id": {"chelsie": 2301, "ethan": 2302, "aiden": 2303},
            "spatial_merge_size": 2,
            "text_config": {
                **MROPE, "num_hidden_layers": 20, "hidden_size": 1024, "head_dim": 128,
                "num_attention_heads": 16, "num_key_value_heads": 2, "num_experts_per_tok": 6,
                "vocab_size": 3072, "shared_expert_intermediate_size": 768,
            },
            "code_predictor_config": {
                "num_code_groups": 16, "vocab_size": 2048, "rope_theta": 1_000_000,
            },
        },
        "code2wav_config": {
            "num_quantizers": 16, "codebook_size": 2048, "upsample_rates": [8, 5, 4, 3],
            "upsampling_ratios": [2, 2], "sliding_window": 72, "rope_theta": 10_000,
            "num_semantic_quantizers": 1, "semantic_codebook_size": 4096,
        },
    }  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    with _errors_only():
        yield


@contextmanager
def _errors_only() -> Iterator[None]:
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    yield
    transformers_logging.set_verbosity(level)


@pytest.fixture
def figures(loaded: Checkpoint) -> MediaFigures:
    """Those of the published preprocessor_config.json."""
    return replace(loaded.figures, patch=16, max_pixels=12_845_056, min_pixels=3136)


def _config(**changes: Any) -> Any:
    """The published figures with some changed, by dotted place with `__` for the dot."""
    raw = copy.deepcopy(_published())
    for place, value in changes.items():
        *path, name = place.split("__")
        at = raw
        for step in path:
            at = at[step]
        at[name] = value
    return Qwen3OmniMoeConfig.from_dict(raw)


def test_the_published_model_is_accepted(figures: MediaFigures) -> None:
    config = _config()
    assert config.thinker_config.text_config.rope_parameters["mrope_section"] == [24, 20, 20]
    configuration.check(FOLDER, config, figures)


def test_the_tiny_model_is_accepted(loaded: Checkpoint) -> None:
    configuration.check(loaded.folder, loaded.config, loaded.figures)


def test_frequencies_that_stay_the_same_are_accepted(figures: MediaFigures) -> None:
    yarn = {"rope_type": "yarn", "factor": 2.0, "mrope_section": [24, 20, 20]}
    configuration.check(FOLDER, _config(thinker_config__text_config__rope_scaling=yarn), figures)


TEXT = "thinker_config__text_config__"
FAULTS: list[tuple[str, Any, str]] = [
    (f"{TEXT}head_dim", 64, "Thinker's mrope_section .* up to 32, half of head_dim"),
    (f"{TEXT}head_dim", None, "the Thinker has no head_dim"),
    (f"{TEXT}rope_scaling", {"mrope_section": [32, 32]}, "three figures"),
    (f"{TEXT}rope_scaling", {"rope_type": "dynamic", "factor": 2.0}, "rope_type 'dynamic'"),
    ("talker_config__text_config__head_dim", 64, "the Talker's mrope_section"),
    ("talker_config__code_predictor_config__rope_scaling",
     {"rope_type": "dynamic", "factor": 2.0}, "the code predictor has rope_type"),
    ("talker_config__num_code_groups", 8, "talker_config 8, code_predictor_config 16"),
    ("code2wav_config__num_quantizers", 32, r"\(num_quantizers\) 32"),
    ("code2wav_config__codebook_size", 1024, "says 2048 codes"),
    ("code2wav_config__upsampling_ratios", [], "555 samples ahead, more than the 480"),
    ("talker_config__speaker_id", {}, "no voice"),
    ("talker_config__speaker_id", {"eve": 9999}, "eve is 9999"),
    ("talker_config__codec_eos_token_id", 4198, "codec_eos_token_id is 4198, outside"),
    ("talker_config__accept_hidden_layer", 49, "layer 49 of a Thinker of 48"),
    ("talker_config__thinker_hidden_size", 1024, "thinker_hidden_size is 1024"),
    ("thinker_config__vision_config__out_hidden_size", 3584, "out_hidden_size is 3584"),
    ("thinker_config__vision_config__num_position_embeddings", 2300, "2300 vision positions"),
    ("thinker_config__vision_config__in_channels", 4, "4 channels"),
    ("thinker_config__audio_config__output_dim", 3584, "output_dim is 3584"),
    ("thinker_config__audio_config__num_mel_bins", 80, "80 mel bins"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "value", "sentence"), FAULTS)
def test_what_the_engine_cannot_run_is_named(
    figures: MediaFigures, place: str, value: Any, sentence: str
) -> None:
    with pytest.raises(CheckpointError, match=f"^qwen3-omni: .*{sentence}.*cannot run that"):
        configuration.check(FOLDER, _config(**{place: value}), figures)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"mel_window": 200}, "window is 2000 ms and 25 tokens"),
        ({"hop": 320}, "window is 2000 ms"),
        ({"sample_rate": 8000}, "8000 Hz, not 16000"),
        ({"units_per_s": 0.0}, "position_id_per_seconds"),
        ({"patch": (16, 14)}, "not square"),
    ],
)
def test_figures_that_the_engine_does_not_keep_time_with_are_named(
    figures: MediaFigures, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CheckpointError, match=sentence):
        configuration.check(FOLDER, _config(), replace(figures, **changes))


def test_sound_is_heard_at_the_rate_that_the_gateway_sends() -> None:
    assert configuration.HEARD_HZ == MODEL_HZ
