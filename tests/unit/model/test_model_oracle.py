"""The streaming loop against transformers' own `generate`: the same text, the same codes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from monitors.labels import Modality
from runtime.model import checkpoint
from runtime.model.checkpoint import Checkpoint
from runtime.model.codec import CodecStream
from runtime.model.features import LogMel, patches
from runtime.model.processor import Processor
from runtime.model.prompt import Prompt
from runtime.model.talker import END, TalkerStream
from runtime.residents.port import TextPart
from tests.unit.model.dense import APART, DenseThinker, Media, assistant, system, user

MAX_TOKENS, MAX_FRAMES = 10, 60


@dataclass(frozen=True)
class Answer:
    tokens: list[int]
    codes: torch.Tensor  # (8, frames)
    pcm: torch.Tensor


@pytest.fixture(scope="module")
def oracle(tiny_checkpoint: Path) -> Iterator[Checkpoint]:
    """A model of its own: `generate` leaves state in it."""
    own = checkpoint.load(tiny_checkpoint)
    # transformers 5.24.0 reads the audio configuration of the Talker, which has none.
    own.model.talker.config.audio_config = own.config.thinker_config.audio_config
    return own


def _inputs(prompt: Prompt, own: Checkpoint) -> dict[str, Any]:
    """The prompt as transformers' processor would hand it over: one audio, one video item."""
    figures, inputs = own.figures, {"input_ids": torch.from_numpy(prompt.ids)[None]}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    by_kind = {
        kind: [s.media for s in prompt.segments if s.modality is kind and s.media is not None]
        for kind in Modality
    }
    if sounds := by_kind[Modality.AUDIO]:
        mel = torch.cat([LogMel(figures)(samples) for samples in sounds], dim=1)
        inputs["input_features"] = mel[None]
        inputs["feature_attention_mask"] = torch.ones(1, mel.shape[1], dtype=torch.long)
    if clips := by_kind[Modality.VIDEO]:
        pixels, grids = zip(*[patches(frames, figures) for frames in clips], strict=True)
        inputs["pixel_values_videos"] = torch.cat(pixels)
        t = sum(grid[0] for grid in grids)
        inputs["video_grid_thw"] = torch.tensor([[t, *grids[0][1:]]])
        inputs["video_second_per_grid"] = torch.tensor([1.0])
    if images := by_kind[Modality.IMAGE]:
        pixels, grids = zip(*[patches(frames, figures) for frames in images], strict=True)
        inputs["pixel_values"] = torch.cat(pixels)
        inputs["image_grid_thw"] = torch.tensor(grids)
    return inputs


def _generate(own: Checkpoint, prompt: Prompt, monkeypatch: pytest.MonkeyPatch) -> Answer:
    kept: dict[str, torch.Tensor] = {}
    decode = own.model.code2wav.chunked_decode

    def keep(codes: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        kept["codes"] = codes[0]
        return decode(codes, **kwargs)

    monkeypatch.setattr(own.model.code2wav, "chunked_decode", keep)
    unspeakable = DenseThinker(own).thinker._unspeakable.nonzero().flatten().tolist()
    ids, pcm = own.model.generate(
        **_inputs(prompt, own), speaker="Ethan",
        thinker_max_new_tokens=MAX_TOKENS, thinker_do_sample=False,
        thinker_eos_token_id=own.config.im_end_token_id, thinker_suppress_tokens=unspeakable,
        talker_max_new_tokens=MAX_FRAMES, talker_do_sample=False, talker_repetition_penalty=1.0,
    )  # fmt: skip
    return Answer(ids[0, len(prompt) :].tolist(), kept["codes"], pcm.flatten())


def _stream(own: Checkpoint, prompt: Prompt) -> Answer:
    """Our loop. The last token is not spoken: it is the end, or (as in generate) the cut."""
    tokens, states = DenseThinker(own).text(prompt, MAX_TOKENS)
    talker, codec = TalkerStream(own, "ethan", max_frames=MAX_FRAMES), CodecStream(own)
    rest, codes, pcm = iter(tokens[1:-1]), [], []
    frame = talker.prefill(prompt, states, tokens[0])
    while frame is not None:
        codes.append(frame)
        pcm.append(torch.from_numpy(codec.push(frame[:, None])))
        frame = talker.step(next(rest, END))
    return Answer(tokens, torch.stack(codes, dim=1), torch.cat(pcm))


def _turns(kind: str, media: Media) -> list[Any]:
    text = TextPart(text="Describe what you hear and see.")
    match kind:
        case "text":
            return [system(), user(text)]
        case "image":
            return [user(media.image(), text), assistant("A shape."), user("Which one?")]
        case _:
            heard = [media.audio(), media.audio(1000)]
            seen = [media.video(), media.video(2000)]
            return [system(), user(*heard, APART, *seen, text), assistant("Yes."), user("Sure?")]


@pytest.mark.parametrize("kind", ["text", "image", "sound and video"])
def test_streaming_equals_generate(
    oracle: Checkpoint, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    media = Media(5)
    prompt = Processor(oracle).prompt(_turns(kind, media), media.arrays)
    theirs = _generate(oracle, prompt, monkeypatch)
    ours = _stream(oracle, prompt)
    assert ours.tokens == theirs.tokens
    assert ours.codes.shape[1] < MAX_FRAMES - 1  # speech ended by itself
    assert torch.equal(ours.codes, theirs.codes)
    assert ours.pcm.shape == theirs.pcm.shape
    assert (ours.pcm - theirs.pcm).abs().max() < 1e-4
