"""Code2Wav's training: codec frames -> the very waveform that they stand for."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from runtime.quality.tones import WORDS
from tools.tiny.loop import Loop
from tools.tiny.speech_codes import CODEBOOK, VOICES, Codes, codes_of, waveform

UTTERANCES, WORDS_EACH = 8, 4  # of a batch
SPOKEN = (*WORDS, "unknown", ",")
SPECTRA = (256, 1024)  # windows in samples


def train(code2wav: Any, loop: Loop, steps: int, rng: np.random.Generator) -> None:
    """L1 on the samples and the distance of two magnitude spectra."""
    for _ in loop.steps(steps):
        drawn = [draw_utterance(rng) for _ in range(UTTERANCES)]
        made = unclipped(code2wav, torch.from_numpy(np.stack(drawn)))
        wanted = torch.from_numpy(np.stack([waveform(codes) for codes in drawn]))
        wanted = wanted[:, : made.shape[1]]  # the decoder ends early by its look-ahead
        error = (made - wanted).abs().mean()
        loop.learn(5.0 * error + 0.3 * _spectral(made, wanted), steps, error=error.item())


def draw_utterance(rng: np.random.Generator) -> Codes:
    """Out of the middle of an answer: every count of words is met."""
    words = [SPOKEN[i] for i in rng.integers(len(SPOKEN), size=WORDS_EACH)]
    return codes_of(words, VOICES[rng.integers(len(VOICES))], int(rng.integers(CODEBOOK)))


def unclipped(code2wav: Any, codes: Tensor) -> Tensor:
    """(B, 8, n) -> (B, samples), as Code2Wav's own forward, but with a gradient beyond +-1."""
    embedded = code2wav.code_embedding(codes + code2wav.code_offset).mean(1)
    hidden = code2wav.pre_transformer(inputs_embeds=embedded).last_hidden_state.transpose(1, 2)
    for stage in [*code2wav.upsample, code2wav.decoder]:
        for module in stage:
            hidden = module(hidden)
    return hidden[:, 0]


def _spectral(made: Tensor, wanted: Tensor) -> Tensor:
    distance = torch.zeros(())
    for window in SPECTRA:
        a, b = (
            torch.stft(
                x, window, window // 4, window=torch.hann_window(window), return_complex=True
            ).abs()
            for x in (made, wanted)
        )
        distance = distance + (a - b).abs().mean() / b.mean()
    return distance
