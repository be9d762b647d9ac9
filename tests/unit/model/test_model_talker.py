from typing import Any

import numpy as np
import pytest
import torch

from runtime.model.checkpoint import Checkpoint
from runtime.model.processor import Processor
from runtime.model.prompt import Prompt
from runtime.model.talker import END, TalkerStream, UnknownVoice
from runtime.quality.words import COLOURS, DIGITS
from tests.unit.model.dense import DenseThinker, Media, assistant, system, user

WORDS = ["what", "do", "you", "hear", "the", "red", "light", "again", "tell", "me", "你好", "seven"]
LENGTHS = [1, 1, 2, 3, 5, 8, 13, 21, 30]  # of texts, in words, each a token
FRAMES_PER_WORD = 5
SAID = [*DIGITS, *COLOURS]
VOICES = ("chelsie", "ethan", "aiden")


def _speak(stream: TalkerStream, prompt: Prompt, states: Any, tokens: list[int]) -> list[Any]:
    """All frames of `tokens`; stops eating where the stream does."""
    frames, rest = [], iter(tokens[1:])
    codes = stream.prefill(prompt, states, tokens[0])
    while codes is not None:
        frames.append(codes)
        codes = stream.step(next(rest, END))
    return frames


@pytest.fixture(scope="module")
def asked(processor: Processor, dense: DenseThinker) -> list[tuple[Prompt, Any]]:
    """Prompts with and without media, and what the Thinker heard in them."""
    rng = np.random.default_rng(11)
    prompts = []
    for number in range(12):
        media = Media(number)
        parts = [[], media.clip(2), [media.image()], [media.audio()]][number % 4]
        question = " ".join(rng.choice(WORDS, rng.integers(1, 15)))
        turns = [system(), user(*parts, question)]
        if number % 3 == 0:
            turns += [assistant("I see."), user("And now?")]
        prompts.append(processor.prompt(turns, media.arrays))
    return [(prompt, dense.prefill(prompt)[0].accept_hidden) for prompt in prompts]


@pytest.mark.parametrize("batch", range(3))
def test_speech_ends_when_the_text_does(
    loaded: Checkpoint, asked: list[tuple[Prompt, Any]], batch: int
) -> None:
    rng = np.random.default_rng(batch)
    for number, length in enumerate(LENGTHS):
        prompt, states = asked[(batch * 10 + number) % len(asked)]
        tokens = loaded.tokenizer.encode("".join(f" {word}" for word in rng.choice(SAID, length)))
        assert len(tokens) == length
        stream = TalkerStream(loaded, VOICES[number % 3], max_frames=200)
        frames = _speak(stream, prompt, states, tokens)
        assert stream.reason == "stop"
        assert len(frames) == stream.frames
        assert length * 0.6 <= len(frames) / FRAMES_PER_WORD <= length + 5


def test_what_the_thinker_writes_is_spoken_to_its_end(
    trained: Checkpoint, processor: Processor
) -> None:
    thinker, written = DenseThinker(trained), 0
    for seed in range(4):
        media = Media(seed)
        prompt = processor.prompt([system(), user(*media.clip(2), WORDS[seed])], media.arrays)
        tokens, states = thinker.text(prompt, 16)
        spoken = [token for token in tokens if token != thinker.thinker.eos_id]
        if not spoken:
            continue
        written += 1
        stream = TalkerStream(trained, "ethan", max_frames=200)
        assert len(_speak(stream, prompt, states, spoken)) == FRAMES_PER_WORD * len(spoken)
        assert stream.reason == "stop"
    assert written


def test_codes_are_codes(loaded: Checkpoint, asked: list[tuple[Prompt, Any]]) -> None:
    prompt, states = asked[1]
    frames = torch.stack(
        _speak(TalkerStream(loaded, "ethan", max_frames=50), prompt, states, [7] * 12)
    )
    assert frames.shape[1] == 8
    assert int(frames.min()) >= 0
    assert int(frames.max()) < loaded.config.code2wav_config.codebook_size
    assert len({tuple(frame.tolist()) for frame in frames}) > 3


def test_frames_are_bounded(loaded: Checkpoint, asked: list[tuple[Prompt, Any]]) -> None:
    prompt, states = asked[0]
    stream = TalkerStream(loaded, "ethan", max_frames=3)
    assert len(_speak(stream, prompt, states, list(range(30)))) == 3
    assert stream.reason == "length"


def test_what_was_heard_reaches_the_talker(
    loaded: Checkpoint, asked: list[tuple[Prompt, Any]]
) -> None:
    """Its state, not its codes: the trained one speaks what it reads, whatever was heard."""
    prompt, states = asked[1]
    hidden = []
    for heard in (states, states * -3):
        stream = TalkerStream(loaded, "ethan", max_frames=50)
        stream.prefill(prompt, heard, 5)
        hidden.append(stream._hidden)
    assert (hidden[0] - hidden[1]).abs().max() > 1e-3


def test_a_voice_is_heard_in_every_frame(
    loaded: Checkpoint, asked: list[tuple[Prompt, Any]]
) -> None:
    prompt, states = asked[1]
    (ethan, aiden) = (
        _speak(TalkerStream(loaded, voice, max_frames=50), prompt, states, [5] * 10)
        for voice in ("ethan", "aiden")
    )
    assert len(ethan) > 10
    assert not any(torch.equal(*pair) for pair in zip(ethan, aiden, strict=False))


def test_an_unknown_voice_is_refused_with_a_choice_before_any_work(loaded: Checkpoint) -> None:
    with pytest.raises(UnknownVoice, match="aiden, chelsie, ethan"):
        TalkerStream(loaded, "nobody", max_frames=5)


def test_nothing_follows_the_end(loaded: Checkpoint, asked: list[tuple[Prompt, Any]]) -> None:
    prompt, states = asked[0]
    stream = TalkerStream(loaded, "ethan", max_frames=5)
    stream.prefill(prompt, states, 5)
    while stream.step(END) is not None:
        with pytest.raises(RuntimeError, match="no token may follow"):
            stream.step(6)
    with pytest.raises(RuntimeError, match="over"):
        stream.step(END)


def test_a_stream_knows_its_bytes(loaded: Checkpoint, asked: list[tuple[Prompt, Any]]) -> None:
    prompt, states = asked[0]
    stream = TalkerStream(loaded, "ethan", max_frames=5)
    stream.prefill(prompt, states, 5)
    places = int(prompt.user.sum()) + 9
    assert stream.nbytes == 2 * places * 2 * 2 * 32 * 4  # layers, K and V, heads, dim, float32
