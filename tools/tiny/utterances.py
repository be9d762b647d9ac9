"""What the Talker is trained to say: answers of a batch, and any other text read aloud."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from runtime.model.checkpoint import Checkpoint
from runtime.model.processor import Processor
from runtime.model.prompt import Prompt
from runtime.quality.tasks import WORDINGS
from runtime.quality.words import COLOURS, DIGITS, SHAPES
from runtime.residents.port import TextPart, Turn
from tools.tiny.dialogues import SILENT, Batch
from tools.tiny.hearing import Heard
from tools.tiny.speaking import Utterance
from tools.tiny.speech_codes import VOICES

ANY_TOKEN_SHARE = 0.15  # of texts read aloud: tokens drawn from the whole vocabulary
OPENING = 3  # tokens of a turn before its text
_LEXICON = (*DIGITS, *COLOURS, *SHAPES)
_ASKED = [phrase.format("seven") for phrases in WORDINGS.values() for phrase in phrases]


class Utterances:
    def __init__(self, checkpoint: Checkpoint, rng: np.random.Generator) -> None:
        self._rng = rng
        self._tokenizer: Any = checkpoint.tokenizer
        self._processor = Processor(checkpoint)
        self._hidden: int = checkpoint.config.talker_config.thinker_hidden_size
        self._plain: int = self._tokenizer.vocab_size  # the markers stand behind

    def answers(self, batch: Batch, heard: Heard, count: int) -> list[Utterance]:
        """One answer each of the first `count` dialogues."""
        return [
            self._answer(prompt, batch.labels[row].numpy(), heard.states[row])
            for row, prompt in enumerate(batch.prompts[:count])
        ]

    def read_aloud(self, count: int, longest: int) -> list[Utterance]:
        """`count` texts of 1 to `longest` tokens that answer nothing."""
        return [self._reading(int(self._rng.integers(1, longest + 1))) for _ in range(count)]

    def _answer(self, prompt: Prompt, labels: Any, states: torch.Tensor) -> Utterance:
        spoken = np.flatnonzero(np.diff(labels != SILENT, prepend=False, append=False))
        runs = list(zip(spoken[::2], spoken[1::2], strict=True))
        start, stop = runs[self._rng.integers(len(runs))]
        asked = replace(
            prompt,
            ids=prompt.ids[:start],
            modality=prompt.modality[:start],
            positions=prompt.positions[:, :start],
            user=prompt.user[:start],
        )
        return self._utterance(asked, states[:start], prompt.ids[start : stop - 1].tolist())

    def _reading(self, length: int) -> Utterance:
        rng = self._rng
        if rng.random() < ANY_TOKEN_SHARE:
            tokens = rng.integers(0, self._plain, length).tolist()
        else:
            text = " ".join(_LEXICON[i] for i in rng.integers(len(_LEXICON), size=length))
            tokens = self._tokenizer.encode(text, add_special_tokens=False)
        question = TextPart(text=_ASKED[rng.integers(len(_ASKED))])
        prompt = self._processor.prompt([Turn(role="user", parts=(question,))], [])
        return self._utterance(prompt, torch.zeros(len(prompt), self._hidden), tokens)

    def _utterance(self, prompt: Prompt, states: torch.Tensor, tokens: Sequence[int]) -> Utterance:
        words = tuple(self._tokenizer.decode([token]) for token in tokens)
        voice = VOICES[self._rng.integers(len(VOICES))]
        return Utterance(prompt, states, tuple(tokens), words, voice)
