"""The tiny checkpoint's shape: a whole Qwen3-Omni, small enough for one CPU core."""

from typing import Any

from transformers import Qwen2Tokenizer, Qwen3OmniMoeConfig

HIDDEN = 128  # of the Thinker
SENSE = 64  # of the two encoders
VOICE = 96  # of the Talker
CODE_GROUPS = 8  # S3.2 as read: 4 codebooks x 2 sub-frames of 10 ms, every 20 ms
CODEBOOK = 128
RESERVED = 1024  # marks and voices behind the codes, as transformers expects
UPSAMPLE = {"upsampling_ratios": [2, 2], "upsample_rates": [8, 5, 3]}  # 480 samples: 20 ms
VOICES = ("chelsie", "ethan", "aiden")
UNITS_PER_S = 13  # TMRoPE positions a second, as Qwen3-Omni

# Tokens of 2 s at 2 frames/s: 288 at 640x360 and above, 96 at 320x240, 32 at 160x160.
PATCH = 20  # 40 pixels a token and side divide 1280x720, 640x360, 320x240 and 160x160
FIGURES: dict[str, Any] = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "image_processor_type": "Qwen2VLImageProcessor",
    "sampling_rate": 16_000,
    "feature_size": 128,
    "n_fft": 400,
    "hop_length": 160,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "patch_size": PATCH,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "min_pixels": 40 * 40,
    "max_pixels": 640 * 360,
}


def build(tokenizer: Qwen2Tokenizer) -> Qwen3OmniMoeConfig:
    """The configuration for `tokenizer`'s vocabulary."""
    ids: Any = tokenizer.convert_tokens_to_ids
    media = {
        "audio_token_id": ids("<|audio_pad|>"),
        "image_token_id": ids("<|image_pad|>"),
        "video_token_id": ids("<|video_pad|>"),
        "audio_start_token_id": ids("<|audio_start|>"),
        "audio_end_token_id": ids("<|audio_end|>"),
        "vision_start_token_id": ids("<|vision_start|>"),
        "vision_end_token_id": ids("<|vision_end|>"),
        "position_id_per_seconds": UNITS_PER_S,
    }
    return Qwen3OmniMoeConfig(
        thinker_config=_thinker(tokenizer, media),
        talker_config=_talker(media),
        code2wav_config=_code2wav(),
        im_start_token_id=ids("<|im_start|>"),
        im_end_token_id=ids("<|im_end|>"),
        tts_pad_token_id=ids("<tts_pad>"),
        tts_bos_token_id=ids("<tts_text_bos>"),
        tts_eos_token_id=ids("<tts_text_eod>"),
        system_token_id=_word(tokenizer, "system"),
        user_token_id=_word(tokenizer, "user"),
        assistant_token_id=_word(tokenizer, "assistant"),
    )


def _word(tokenizer: Qwen2Tokenizer, word: str) -> int:
    ids = tokenizer.encode(word, add_special_tokens=False)
    if len(ids) != 1:
        raise ValueError(
            f"the tokenizer splits {word!r} into {len(ids)} tokens; the Talker needs 1"
        )
    return ids[0]


def _rope(theta: float) -> dict[str, Any]:
    return {"rope_theta": theta, "rope_type": "default"}


def _mrope() -> dict[str, Any]:
    """Sections for time, height and width: half of head_dim 32 in all.

    Base 1e4 spreads the few frequencies over the minute that such a model is asked about.
    """
    return {**_rope(1e4), "mrope_section": [6, 5, 5]}


def _heads(layers: int, hidden: int = HIDDEN) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "max_position_embeddings": 65_536,
    }


def _experts(width: int) -> dict[str, Any]:
    return {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": width}


def _thinker(tokenizer: Qwen2Tokenizer, media: dict[str, Any]) -> dict[str, Any]:
    return {
        **media,
        "user_token_id": _word(tokenizer, "user"),
        "text_config": {
            **_heads(layers=4),
            **_experts(112),
            "vocab_size": -(-len(tokenizer) // 64) * 64,
            "rope_parameters": _mrope(),
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        "audio_config": {
            "num_mel_bins": FIGURES["feature_size"],
            "encoder_layers": 2,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 2 * SENSE,
            "d_model": SENSE,
            "n_window": 50,
            "n_window_infer": 100,  # attention within one slice of a second
            "output_dim": HIDDEN,
            "downsample_hidden_size": 16,
        },
        "vision_config": {
            "depth": 2,
            "hidden_size": SENSE,
            "intermediate_size": 2 * SENSE,
            "num_heads": 2,
            "patch_size": PATCH,
            "spatial_merge_size": FIGURES["merge_size"],
            "temporal_patch_size": FIGURES["temporal_patch_size"],
            "out_hidden_size": HIDDEN,
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": [0],
        },
    }


def _talker(media: dict[str, Any]) -> dict[str, Any]:
    marks = CODEBOOK + 100
    return {
        **media,
        "num_code_groups": CODE_GROUPS,
        "thinker_hidden_size": HIDDEN,
        "accept_hidden_layer": 2,
        "spatial_merge_size": FIGURES["merge_size"],
        "codec_pad_id": marks,
        "codec_bos_id": marks + 1,
        "codec_eos_token_id": marks + 2,
        "codec_nothink_id": marks + 7,
        "codec_think_bos_id": marks + 8,
        "codec_think_eos_id": marks + 9,
        "speaker_id": {voice: marks + 20 + place for place, voice in enumerate(VOICES)},
        "text_config": {
            **_heads(layers=2, hidden=VOICE),
            **_experts(72),
            "vocab_size": CODEBOOK + RESERVED,
            "shared_expert_intermediate_size": VOICE,
            "norm_topk_prob": True,
            "rope_parameters": _mrope(),
        },
        "code_predictor_config": {
            **_heads(layers=1, hidden=VOICE),
            "vocab_size": CODEBOOK,
            "num_code_groups": CODE_GROUPS,
            "rope_parameters": _rope(1e6),
        },
    }


def _code2wav() -> dict[str, Any]:
    return {
        **UPSAMPLE,
        "codebook_size": CODEBOOK,
        "num_quantizers": CODE_GROUPS,
        "hidden_size": SENSE,
        "intermediate_size": 2 * SENSE,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "sliding_window": 72,
        "decoder_dim": 96,
        "rope_parameters": _rope(1e4),
    }
