"""The project's tiny Qwen3-Omni: the real architecture and wiring with 4 M random weights.

It hears, sees, writes and speaks through every part of the real model, fast enough for one CPU
core, but it understands nothing: its text is noise and its voice a hum. Three things are set
after the random draw, so that whoever runs it meets the behaviour of a trained model:

- **Speech ends.** One row of the Talker, the end of speech, is a linear probe fitted in closed
  form to tell places whose text is over from places that still speak (`fit_end_of_speech`).
- **Speech is audible.** The last convolution is freed of its constant offset and scaled to one
  loudness (`set_loudness`).
- **Text is text.** Not in the weights: `Thinker.logits` masks markers for every checkpoint.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import Qwen2Tokenizer, Qwen3OmniMoeForConditionalGeneration

from runtime.model import tiny_config, tiny_tokenizer
from runtime.model.checkpoint import FIGURES, MANIFEST, WEIGHTS
from runtime.model.talker import RESERVED, SpeechInput

LOUDNESS_RMS = 0.1
TEXT_GAIN = 16.0  # how much louder the Talker reads text than its own last frame
END_LOGIT = 12.0  # the probe aims at it where the text is over, at its negative before
RIDGE = 1e-3
STREAMS, LONGEST = 64, 40  # synthetic answers that the probe is fitted on, and their tokens


def create(folder: Path, *, version: str, seed: int) -> Path:
    """Write config, tokenizer, chat template, processor figures and weights into `folder`.

    The same seed gives the same bytes on one kind of CPU, whatever the thread count.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tiny_tokenizer.build()
    with _one_thread(), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = Qwen3OmniMoeForConditionalGeneration(tiny_config.build(tokenizer)).eval()
        draw_weights(model)
        set_loudness(model)
        fit_end_of_speech(model, tokenizer)
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_file(model.state_dict(), folder / WEIGHTS, metadata={"format": "pt"})
    manifest = {"version": version, "seed": seed, "weights": "random, see runtime/model/tiny.py"}
    for name, content in ((FIGURES, tiny_config.FIGURES), (MANIFEST, manifest)):
        (folder / name).write_text(json.dumps(content, indent=2), encoding="utf-8")
    return folder


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums in one order: more threads would add up the fitted numbers differently."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def draw_weights(model: Any) -> None:
    """Normal weights scaled by fan-in (one small scale for all leaves inputs without effect)."""
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            if name == "bias":
                weight.zero_()
            elif weight.dim() > 1:
                weight.normal_(std=_fan_in(module, weight) ** -0.5)
    tables = _frame_tables(model)
    for table in tables:  # a frame is their sum
        table.weight *= len(tables) ** -0.5
    model.talker.text_projection.linear_fc2.weight *= TEXT_GAIN
    tables[0].weight[-RESERVED:] *= TEXT_GAIN  # marks and voices are said beside text


def _fan_in(module: nn.Module, weight: Tensor) -> float:
    """How many inputs one output sums up."""
    match module:
        case nn.Embedding():
            return 1.0
        case nn.ConvTranspose1d():
            return module.in_channels * module.kernel_size[0] / module.stride[0]
        case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
            return float(weight[0].numel())
        case _:
            return float(weight.shape[-1])


def set_loudness(model: Any) -> None:
    """Scale the output kernel of Code2Wav so that random codes sound at `LOUDNESS_RMS`.

    A kernel whose taps sum to zero answers a constant with silence: no offset is left.
    """
    code2wav = model.code2wav
    kernel = code2wav.decoder[-1].conv.weight
    kernel -= kernel.mean(dim=2, keepdim=True)
    codes = torch.randint(code2wav.config.codebook_size, (4, code2wav.config.num_quantizers, 50))
    kernel *= 1e-3  # far from the clipping bounds while it is measured
    kernel *= LOUDNESS_RMS / code2wav(codes).square().mean().sqrt()


def fit_end_of_speech(model: Any, tokenizer: Qwen2Tokenizer) -> None:
    """Fit the Talker's end-of-speech row by ridge regression on synthetic answers.

    Each answer hears some random text and media states, speaks 1 to `LONGEST` random tokens over
    random codes, and goes on past its text. Random codes make all inputs known beforehand: one
    forward gives the state of every place.
    """
    talker, config = model.talker, model.config.talker_config
    lengths = torch.randint(1, LONGEST + 1, (STREAMS, 1))
    places = torch.arange(LONGEST + 8)[None]  # place i eats token i; 0 is in the opening
    states = torch.cat(
        [_spoken_states(model, tokenizer, lengths, places, heard) for heard in (8, 64)]
    )
    over = (places >= lengths).flatten().repeat(2)
    weight = torch.where(over, 1.0 / over.sum(), 1.0 / (~over).sum())[:, None]
    target = torch.where(over, END_LOGIT, -END_LOGIT)[:, None]
    gram = (weight * states).T @ states + RIDGE * torch.eye(states.shape[1])
    row = torch.linalg.solve(gram, (weight * states).T @ target)
    talker.codec_head.weight[config.codec_eos_token_id] = row[:, 0]


def _spoken_states(
    model: Any, tokenizer: Qwen2Tokenizer, lengths: Tensor, places: Tensor, heard: int
) -> Tensor:
    """States of the Talker at `places` of answers of `lengths` (S, 1) tokens: (S * places, D)."""
    speech, voices = SpeechInput(model), [*model.config.talker_config.speaker_id.values()]
    words = tokenizer.vocab_size - len(tiny_tokenizer.MARKERS)
    text = torch.randint(words, (len(lengths), places.shape[1]))
    turn = torch.tensor([[model.config.im_start_token_id, *tokenizer.encode("assistant\n")]])
    opening = torch.cat(
        [speech.opening(voices[k % len(voices)], turn, row[None, :1]) for k, row in enumerate(text)]
    )
    hidden = torch.randn(len(lengths), heard, model.config.talker_config.thinker_hidden_size)
    listened = torch.where(
        torch.rand(len(lengths), heard, 1) < 0.5,
        speech.media(hidden),
        speech.text(torch.randint(words, (len(lengths), heard))),
    )
    track = torch.where((places < lengths)[..., None], speech.text(text), speech.rest)
    track = torch.where((places == lengths)[..., None], speech.end, track)[:, 1:]
    emb = torch.cat([listened, opening, track + _random_frames(model, track.shape[:2])], dim=1)
    out = model.talker.model(inputs_embeds=emb, use_cache=False)
    return out.last_hidden_state[:, -places.shape[1] :].flatten(0, 1)


def _random_frames(model: Any, shape: torch.Size) -> Tensor:
    """Embedded frames of random codes, (*shape, D)."""
    codes = model.talker.code_predictor.config.vocab_size
    frames = [table(torch.randint(codes, shape)) for table in _frame_tables(model)]
    return torch.stack(frames).sum(0)


def _frame_tables(model: Any) -> list[nn.Embedding]:
    """The embeddings that one codec frame is the sum of, by code index."""
    talker = model.talker
    return [talker.get_input_embeddings(), *talker.code_predictor.get_input_embeddings()]
