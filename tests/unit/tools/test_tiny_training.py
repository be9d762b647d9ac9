"""The parts of the tiny checkpoint's training: what it learns from is what the engine will do."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from monitors.labels import Modality
from runtime.kv.reuse import AtRandom, ReusePolicy
from runtime.kv.tokens import PromptTokens
from runtime.quality.tones import WORDS, read_back
from tests.unit.kv.tiny_text import TinyText, cache, opened, prompt
from tools.tiny import sharing, vocoder
from tools.tiny.lessons import BATCH_TOKENS, LONGEST_S, lesson
from tools.tiny.loop import SAVE_EVERY, Loop
from tools.tiny.sharing import Sharing, draw_sharing
from tools.tiny.speech_codes import (
    CODEBOOK,
    FRAME,
    GROUPS,
    RATE,
    VOICES,
    WORD_FRAMES,
    codes_of,
    waveform,
)

TEXT, AUDIO, VIDEO = Modality.TEXT, Modality.AUDIO, Modality.VIDEO


# ---------------------------------------------------------------- sharing
@pytest.fixture
def text_model() -> Iterator[TinyText]:
    made = TinyText()
    sharing.register()
    yield made
    made.model.set_attn_implementation("sdpa")


def dense(model: TinyText, tokens: PromptTokens, shared: Sharing | None) -> torch.Tensor:
    model.model.set_attn_implementation(sharing.NAME)
    return model.model(
        input_ids=torch.from_numpy(tokens.ids)[None],
        position_ids=torch.from_numpy(tokens.positions)[:, None],
        use_cache=False,
        sharing=shared,
    ).last_hidden_state[0]


def test_sharing_in_training_is_aliasing_in_the_cache(text_model: TinyText) -> None:
    """Token by token through pages, with every block that may alias aliased; and in one pass."""
    tokens = prompt((TEXT, 10), (VIDEO, 40), (AUDIO, 30), (TEXT, 110))
    kv = cache(reuse=ReusePolicy("on", AtRandom(1.0), layers=(1,)))
    running = opened(kv, tokens)
    paged = text_model.prefill(kv, running, size=1, observed=True)

    table, length = running.table, len(tokens)
    chosen, stops = torch.zeros(1, length, dtype=torch.bool), torch.full((1, length), 10**6)
    for index, block in enumerate(table.blocks):
        of = table.tokens_of(index)
        stops[0, of] = of.stop
        chosen[0, of] = bool(block.aliased)
    assert 40 < int(chosen.sum()) < length - 64
    shared = dense(text_model, tokens, Sharing((1,), chosen, stops))
    plain = dense(text_model, tokens, None)
    assert (paged - shared).abs().max() < 1e-4
    assert (paged - plain).abs().max() > 1e-2


def test_without_sharing_the_training_attention_is_the_stock_one(text_model: TinyText) -> None:
    tokens = prompt((TEXT, 10), (VIDEO, 40), (TEXT, 30))
    own = dense(text_model, tokens, None)
    assert (own - text_model.dense(tokens)).abs().max() < 1e-5


def test_blocks_are_chosen_whole_and_never_the_first() -> None:
    codes = [prompt((TEXT, 20), (VIDEO, 40), (AUDIO, 20)).codes]
    rng = np.random.default_rng(0)
    drawn = draw_sharing(codes, 90, (1,), 0.5, rng)
    blocks = [(0, 16), (16, 20), (20, 36), (36, 52), (52, 60), (60, 76), (76, 80)]
    assert not drawn.chosen[0, :16].any()
    assert not drawn.chosen[0, 80:].any()  # padding
    for start, stop in blocks:
        assert len(set(drawn.chosen[0, start:stop].tolist())) == 1
        assert set(drawn.stops[0, start:stop].tolist()) == {stop}
    assert draw_sharing(codes, 90, (1,), 1.0, rng).chosen[0, 16:80].all()


# ---------------------------------------------------------------- codes
@pytest.mark.parametrize("voice", VOICES)
def test_the_codes_of_an_answer_sound_like_it(voice: str) -> None:
    words = list(WORDS)
    codes = codes_of(words, voice)
    assert codes.shape == (GROUPS, WORD_FRAMES * len(words))
    assert 0 <= codes.min() <= codes.max() < CODEBOOK
    sound = waveform(codes)
    assert len(sound) == FRAME * codes.shape[1]
    assert read_back(sound, RATE) == words


def test_the_count_of_words_goes_on_and_changes_no_sound() -> None:
    first, later = codes_of(["red", "two"], "ethan"), codes_of(["red", "two"], "ethan", 127)
    assert np.array_equal(waveform(first), waveform(later))
    assert np.unique(later[2]).tolist() == [0, 127]
    assert np.array_equal(np.delete(first, [2, 6], axis=0), np.delete(later, [2, 6], axis=0))


def test_the_vocoder_meets_every_count_of_words() -> None:
    rng = np.random.default_rng(0)
    met = np.concatenate([vocoder.draw_utterance(rng)[2] for _ in range(600)])
    assert np.unique(met).tolist() == list(range(CODEBOOK))


def test_voices_differ_in_level_alone() -> None:
    quiet, loud = (waveform(codes_of(["red"], voice)) for voice in (VOICES[0], VOICES[-1]))
    assert np.allclose(loud, 2 * quiet)


# ---------------------------------------------------------------- lessons
def test_clips_grow_and_a_batch_keeps_its_size() -> None:
    rng = np.random.default_rng(0)
    early = [lesson(0.05, rng) for _ in range(200)]
    late = [lesson(0.9, rng) for _ in range(400)]
    assert {one.seconds for one in early} == {1}
    assert {one.seconds for one in late} == set(range(2, LONGEST_S + 1))
    assert {(one.seconds, one.size) for one in late} >= {(16, (240, 320)), (4, (360, 640))}
    assert all(one.dialogues >= BATCH_TOKENS // 1100 for one in late)


# ---------------------------------------------------------------- the loop
def trained(file: Path, steps: int, stop_after: int | None = None) -> torch.Tensor:
    """A line fitted to noise; cut off after `stop_after` steps."""
    torch.manual_seed(0)
    model, rng = nn.Linear(3, 1), np.random.default_rng(0)
    loop = Loop("line", file, model, rng, rate=0.01, tell=lambda *_: None)
    for step in loop.steps(steps):
        if step == stop_after:
            break
        x = torch.from_numpy(rng.standard_normal((8, 3), dtype=np.float32))
        loop.learn((model(x) - torch.randn(8, 1)).square().mean(), steps)
    return model.weight.detach().clone()


def test_a_training_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    steps = 2 * SAVE_EVERY
    whole = trained(tmp_path / "whole.state", steps)
    stopped = trained(tmp_path / "cut.state", steps, stop_after=SAVE_EVERY + 7)
    assert not torch.equal(stopped, whole)
    assert torch.equal(trained(tmp_path / "cut.state", steps), whole)
    assert torch.equal(trained(tmp_path / "cut.state", steps), whole)  # nothing is left to do
