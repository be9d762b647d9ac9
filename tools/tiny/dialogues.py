"""Batches to train on: dialogues about one clip each, several questions with their answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from monitors.labels import Modality
from runtime.kv.tokens import CODE
from runtime.model.checkpoint import Checkpoint
from runtime.model.processor import Processor
from runtime.model.prompt import Prompt
from runtime.quality.scenes import AUDIO_HZ, FPS, Scene, Size, draw_scene
from runtime.quality.tasks import (
    CLIP_KINDS,
    HEARS,
    SEES,
    WORDINGS,
    Kind,
    Media,
    Question,
    ask,
    parts_of,
)
from runtime.residents.port import TextPart, Turn
from tools.tiny.bank import TAIL_TOKENS, TOKEN_SAMPLES, Bank

SILENT = -100  # no loss at this place
QUESTIONS = 3  # to one clip
TAILED = 0.4  # of clips: sound that outlasts the pictures
TEXT_FIRST = 0.1  # of dialogues: the question stands before the clip
WITH_SYSTEM = 0.15
SYSTEM = Turn(role="system", parts=(TextPart(text="You are a helpful assistant."),))
KINDS = {
    Kind.PAIRS: 5,
    Kind.DIGITS: 4,
    Kind.COLOURS: 4,
    Kind.SHAPES: 2,
    Kind.DIGIT_AT: 1,
    Kind.COLOUR_AT: 1,
}


@dataclass(frozen=True, eq=False)
class Batch:
    """B dialogues, padded on the right to T tokens."""

    prompts: tuple[Prompt, ...]
    ids: Tensor  # (B, T)
    positions: Tensor  # (3, B, T)
    labels: Tensor  # (B, T): the id itself inside answers, else `SILENT`
    audio: Tensor  # (B, T) bool
    visual: Tensor  # (B, T) bool
    heard: Tensor  # (tokens, H): what the audio tower made of all sound
    seen: Tensor  # (tokens, H), and what the first layer adds to it
    deep: Tensor


@dataclass(frozen=True, eq=False)
class _Dialogue:
    prompt: Prompt
    heard: Tensor
    seen: Tensor
    deep: Tensor


class Dialogues:
    """Draws batches for one checkpoint's tokenizer and media figures, out of encoded seconds."""

    def __init__(self, checkpoint: Checkpoint, bank: Bank, rng: np.random.Generator) -> None:
        self._rng, self._bank = rng, bank
        self._processor = Processor(checkpoint)
        ids: Any = checkpoint.tokenizer.convert_tokens_to_ids
        self._start, self._end = ids("<|im_start|>"), ids("<|im_end|>")
        self._assistant = checkpoint.config.assistant_token_id

    def draw(self, count: int, seconds: int, size: Size) -> Batch:
        """`count` dialogues about clips of `seconds`; one in eight is about a picture or text."""
        return self._collate([self._dialogue(seconds, size) for _ in range(count)])

    def _dialogue(self, seconds: int, size: Size) -> _Dialogue:
        rng = self._rng
        kind, alone = Kind.PAIRS, False
        lottery = rng.random()
        if lottery < 0.06:
            kind = Kind.IMAGE
        elif lottery < 0.12:
            kind = Kind.TEXT
        elif lottery < 0.22:
            kind, alone = (Kind.DIGITS, Kind.COLOURS)[rng.integers(2)], True
        scene = draw_scene(1 if kind is Kind.IMAGE else seconds, rng)
        tail = int(rng.integers(1, TAIL_TOKENS + 1)) if rng.random() < TAILED else 0
        media = _blank(kind, scene, size, tail, alone=alone)
        parts, arrays = parts_of(media, "")
        turns = [SYSTEM] if rng.random() < WITH_SYSTEM else []
        for place, question in enumerate(self._questions(kind, scene, alone)):
            said = [TextPart(text=question.text)]
            if place == 0:
                said = [*said, *parts] if rng.random() < TEXT_FIRST else [*parts, *said]
            turns += [
                Turn(role="user", parts=tuple(said)),
                Turn(role="assistant", parts=(TextPart(text=question.answer),)),
            ]
        heard = seen = deep = self._bank.sound[:0].flatten(0, 1)
        if media.sound is not None:
            heard = self._bank.hear(scene, tail, rng)
        if media.pictures is not None or media.image is not None:
            seen, deep = self._bank.see(scene, size, rng)
        return _Dialogue(self._processor.prompt(turns, arrays), heard, seen, deep)

    def _questions(self, kind: Kind, scene: Any, alone: bool) -> list[Question]:
        rng = self._rng
        if kind is Kind.TEXT:
            kinds = [Kind.TEXT] * QUESTIONS
        elif kind is Kind.IMAGE:
            kinds = [Kind.IMAGE] * (1 + rng.integers(2))
        else:
            allowed = [k for k in KINDS if not alone or (k in SEES) != (k in HEARS)]
            if alone:
                senses = SEES if kind in SEES else HEARS
                allowed = [k for k in allowed if k in senses]
            weights = np.array([KINDS[k] for k in allowed], float)
            kinds = [
                allowed[i] for i in rng.choice(len(allowed), QUESTIONS, p=weights / weights.sum())
            ]
        questions = []
        for one in dict.fromkeys(kinds) if kind in CLIP_KINDS else kinds:
            wording = int(rng.integers(len(WORDINGS[one]))) if rng.random() < 0.5 else 0
            try:
                questions.append(ask(one, scene, rng, wording))
            except ValueError:
                questions.append(ask(Kind.DIGITS if kind in HEARS else Kind.COLOURS, scene, rng))
        return questions

    def _collate(self, dialogues: Sequence[_Dialogue]) -> Batch:
        longest = max(len(one.prompt) for one in dialogues)
        shape = len(dialogues), longest
        ids, labels = np.zeros(shape, np.int64), np.full(shape, SILENT)
        positions = np.zeros((3, *shape), np.int64)
        modality = np.full(shape, CODE[Modality.TEXT], np.int8)
        for row, one in enumerate(dialogues):
            prompt, n = one.prompt, len(one.prompt)
            ids[row, :n], positions[:, row, :n] = prompt.ids, prompt.positions
            modality[row, :n] = prompt.modality
            labels[row, :n] = np.where(self._answers(prompt), prompt.ids, SILENT)
        pictured = np.isin(modality, [CODE[Modality.IMAGE], CODE[Modality.VIDEO]])
        return Batch(
            prompts=tuple(one.prompt for one in dialogues),
            ids=torch.from_numpy(ids),
            positions=torch.from_numpy(positions),
            labels=torch.from_numpy(labels),
            audio=torch.from_numpy(modality == CODE[Modality.AUDIO]),
            visual=torch.from_numpy(pictured),
            heard=torch.cat([one.heard for one in dialogues]),
            seen=torch.cat([one.seen for one in dialogues]),
            deep=torch.cat([one.deep for one in dialogues]),
        )

    def _answers(self, prompt: Prompt) -> NDArray[np.bool_]:
        """The tokens of assistant turns, their end included."""
        answered = np.zeros(len(prompt), bool)
        for start in np.flatnonzero(prompt.ids == self._start):
            if prompt.ids[start + 1 : start + 2] == self._assistant:
                stop = start + int(np.argmax(prompt.ids[start:] == self._end))
                answered[start + 3 : stop + 1] = stop > start
        return answered


def _blank(kind: Kind, scene: Scene, size: Size, tail: int, *, alone: bool) -> Media:
    """Media of the right shape; the bank has the content."""
    if kind is Kind.TEXT:
        return Media()
    if kind is Kind.IMAGE:
        return Media(image=np.broadcast_to(np.uint8(0), (*size, 3)))
    frames = FPS * scene.seconds, *size, 3
    seen, heard = not alone or kind in SEES, not alone or kind in HEARS
    samples = scene.seconds * AUDIO_HZ + tail * TOKEN_SAMPLES
    return Media(
        pictures=np.broadcast_to(np.uint8(0), frames) if seen else None,
        sound=np.broadcast_to(np.float32(0), samples) if heard else None,
    )
