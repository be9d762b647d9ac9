"""What the engine relies on in a checkpoint's configuration: refused here, in a sentence."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runtime.model.checkpoint import MediaFigures
from runtime.model.codec import look_ahead
from runtime.model.features import TOKENS_PER_WINDOW
from runtime.model.talker import RESERVED
from runtime.model.timeline import TOKEN_MS, WINDOW_MS
from runtime.model.weights import CheckpointError

# Those whose frequencies stay the same however long a sequence becomes: pages are written once.
ROPE_TYPES = ("default", "linear", "llama3", "yarn")
HEARD_HZ = 16_000  # of the samples that come from the gateway, whose decoders torch stays out of
_MROPE_DEFAULT = (24, 20, 20)  # what transformers takes where the configuration has none


def check(folder: Path, config: Any, figures: MediaFigures) -> None:
    """Raises `CheckpointError` with the first thing that this engine cannot run.

    `config`: a `Qwen3OmniMoeConfig`.
    """
    for fault in _faults(config, figures):
        raise CheckpointError(
            f"{folder}: {fault}: this engine cannot run that; check its config.json"
        )


def _faults(config: Any, figures: MediaFigures) -> Iterator[str]:
    yield from _language("the Thinker", config.thinker_config.text_config)
    yield from _language("the Talker", config.talker_config.text_config)
    yield from _rope("the code predictor", config.talker_config.code_predictor_config)
    yield from _rope("Code2Wav", config.code2wav_config)
    yield from _joints(config)
    yield from _senses(config.thinker_config, figures)
    yield from _codes(config.talker_config, config.code2wav_config)
    yield from _waveform(config.code2wav_config)


def _language(who: str, text: Any) -> Iterator[str]:
    yield from _rope(who, text)
    if not getattr(text, "head_dim", None):
        yield f"{who} has no head_dim"
        return
    sections = text.rope_parameters.get("mrope_section", _MROPE_DEFAULT)
    if len(sections) != 3 or 2 * sum(sections) != text.head_dim:
        yield (
            f"{who}'s mrope_section {list(sections)} must be three figures that add up to "
            f"{text.head_dim // 2}, half of head_dim"
        )


def _rope(who: str, text: Any) -> Iterator[str]:
    found = text.rope_parameters["rope_type"]
    if found not in ROPE_TYPES:
        yield f"{who} has rope_type {found!r}, not one of {', '.join(ROPE_TYPES)}"


def _joints(config: Any) -> Iterator[str]:
    """Where one part reads what another writes."""
    thinker, talker = config.thinker_config, config.talker_config
    text = thinker.text_config
    width = text.hidden_size
    widths = {
        "vision_config.out_hidden_size": thinker.vision_config.out_hidden_size,
        "audio_config.output_dim": thinker.audio_config.output_dim,
        "talker_config.thinker_hidden_size": talker.thinker_hidden_size,
    }
    for name, found in widths.items():
        if found != width:
            yield f"{name} is {found}, but the Thinker's hidden_size is {width}"
    layer, layers = talker.accept_hidden_layer, text.num_hidden_layers
    if not 0 <= layer <= layers:
        yield f"the Talker listens to layer {layer} of a Thinker of {layers} layers"
    if len(thinker.vision_config.deepstack_visual_indexes) > layers:
        yield f"pictures are added to more than the Thinker's {layers} layers"


def _senses(thinker: Any, figures: MediaFigures) -> Iterator[str]:
    vision, audio = thinker.vision_config, thinker.audio_config
    if not isinstance(figures.patch, int) or not isinstance(figures.temporal_patch, int):
        yield "vision patches are not square"
    if vision.in_channels != 3:
        yield f"the vision encoder reads {vision.in_channels} channels, not RGB"
    if math.isqrt(vision.num_position_embeddings) ** 2 != vision.num_position_embeddings:
        yield f"{vision.num_position_embeddings} vision positions make no square"
    if audio.num_mel_bins != figures.mel_bins:
        yield (
            f"the audio encoder reads {audio.num_mel_bins} mel bins, but the preprocessor's "
            f"feature_size is {figures.mel_bins}"
        )
    if figures.sample_rate != HEARD_HZ:
        yield f"sound is read at {figures.sample_rate} Hz, not {HEARD_HZ} Hz"
    window_ms = 1000 * figures.mel_window * figures.hop / figures.sample_rate
    tokens = math.ceil(figures.mel_window / 8)
    if (window_ms, tokens) != (WINDOW_MS, TOKENS_PER_WINDOW):
        yield (
            f"the audio encoder's window is {window_ms:g} ms and {tokens} tokens, not "
            f"{WINDOW_MS:g} ms and {TOKENS_PER_WINDOW} of {TOKEN_MS:g} ms"
        )
    if figures.units_per_s <= 0:
        yield f"position_id_per_seconds is {figures.units_per_s:g}"


def _codes(talker: Any, code2wav: Any) -> Iterator[str]:
    groups = {
        "talker_config": talker.num_code_groups,
        "code_predictor_config": talker.code_predictor_config.num_code_groups,
        "code2wav_config (num_quantizers)": code2wav.num_quantizers,
    }
    if len(set(groups.values())) != 1:
        found = ", ".join(f"{name} {count}" for name, count in groups.items())
        yield f"the codes of a frame differ in number: {found}"
    rows, codes = talker.text_config.vocab_size, code2wav.codebook_size
    most = max(rows - RESERVED, talker.code_predictor_config.vocab_size)
    if most > codes:
        yield f"the Talker says {most} codes, but Code2Wav's codebook_size is {codes}"
    if not talker.speaker_id:
        yield "the Talker has no voice (speaker_id is empty)"
    names = ("eos_token", "pad", "bos", "nothink", "think_bos", "think_eos")
    marks = {f"codec_{name}_id": getattr(talker, f"codec_{name}_id") for name in names}
    for name, mark in (marks | (talker.speaker_id or {})).items():
        if not 0 <= mark < rows:
            yield f"{name} is {mark}, outside the Talker's vocabulary of {rows}"


def _waveform(code2wav: Any) -> Iterator[str]:
    rates = code2wav.upsample_rates
    per_frame = math.prod([*code2wav.upsampling_ratios, *rates])
    if look_ahead(rates) > per_frame:
        yield (
            f"Code2Wav looks {look_ahead(rates)} samples ahead, more than the {per_frame} of a "
            "frame"
        )
