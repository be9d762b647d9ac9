"""Texts read aloud by the checkpoint that ships, and rules that do not hold given up."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from monitors.detectors.speaking_time import Spoken, fit
from monitors.detectors.syllables import Language
from runtime.model import checkpoint
from runtime.model.checkpoint import Checkpoint
from runtime.quality import speaking
from runtime.quality.plan import PlanError
from runtime.quality.readings import Reading, draw, named
from runtime.quality.speaking import Aloud, Reader, fit_voices
from runtime.quality.tones import read_back


@pytest.fixture(scope="module")
def shipped(shipped_checkpoint: Path) -> Iterator[Checkpoint]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield checkpoint.load(shipped_checkpoint)
    torch.set_num_threads(threads)


def test_a_text_is_read_aloud_word_for_word_and_by_its_accounts(shipped: Checkpoint) -> None:
    reader = Reader(shipped)
    aloud = reader.read("ethan", "seven red two")
    heard = (aloud.pcm / 32767).astype(np.float32)
    assert read_back(heard, 24_000) == ["seven", "red", "two"]
    assert len(aloud.pcm) == aloud.frames * reader.samples_per_frame
    assert aloud.reason == "stop"


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_a_reading_cut_short_is_told_by_the_voice_that_ships(
    shipped: Checkpoint, share: float
) -> None:
    reader, model = Reader(shipped), shipped.voices["ethan"]
    aloud = reader.read("ethan", "one blue three yellow five white")
    assert reader.faults(aloud, model) == set()
    assert reader.faults(aloud.cut(share), model) & {"short", "hard_end"}


class Babbler(Reader):
    """Reads like a metronome, but now and then breaks off; in place of a Talker."""

    def __init__(self, _: Checkpoint) -> None:
        self.voices = ["anna"]
        self.samples_per_frame = 480
        self._read = 0

    def read(self, voice: str, text: str) -> Aloud:
        self._read += 1
        frames = 25 * len(text.split()) + 5
        breaks_off = self._read > 90 and self._read % 10 == 0  # after what it is fitted to
        frames = frames // 2 if breaks_off else frames
        at = np.arange(frames * 480) / 24_000
        pcm = (9000 * np.sin(2 * np.pi * 200 * at)).astype(np.int16)
        if not breaks_off:
            pcm[-2400:] = 0
        return Aloud(text, (pcm,), frames, "length" if self._read == 3 else "stop")


def test_a_rule_that_whole_readings_break_is_given_up(
    shipped: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speaking, "Reader", Babbler)
    (voice,) = fit_voices(shipped, [Reading.WORDS], 80).voices
    assert voice.withdrawn == ("hard_end", "short")
    assert (voice.model.end_db, voice.model.paces) == (None, {})
    assert voice.model.tail_s is not None
    assert (voice.verified, voice.unfinished) == (80, 1)


def test_a_pace_is_given_up_for_the_language_that_broke_it_alone() -> None:
    texts = [*draw(Reading.ENGLISH, 50, seed=0), *draw(Reading.CHINESE, 50, seed=0)]
    model = fit([Spoken(text, 0.1 * len(text), -50.0, 0.2) for text in texts])
    kept = speaking._without(model, "short", "你好。")  # pyright: ignore[reportPrivateUsage]
    assert set(model.paces) == set(Language)
    assert set(kept.paces) == {Language.ENGLISH}


def test_too_few_texts_are_refused(shipped: Checkpoint) -> None:
    with pytest.raises(PlanError, match="give at least 40"):
        fit_voices(shipped, [Reading.WORDS], 39)


@pytest.mark.parametrize("reading", Reading)
def test_texts_all_differ_and_come_again_by_their_seed(reading: Reading) -> None:
    texts = draw(reading, 200, seed=4)
    assert len(set(texts)) == 200
    assert texts == draw(reading, 200, seed=4)
    assert texts != draw(reading, 200, seed=5)


def test_texts_are_named_in_a_list() -> None:
    assert named("zh, en,zh") == (Reading.CHINESE, Reading.ENGLISH)
