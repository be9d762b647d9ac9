"""The Talker's last course: long texts behind long clips, so that its speech ends there too.

Only the Talker learns. The other courses stop at 16 seconds and 34 words; people send longer clips,
and a Talker that has met none speaks on until it is cut off, which counts as a fault.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from runtime.model.checkpoint import Checkpoint
from runtime.quality.scenes import Size
from tools.tiny import sharing
from tools.tiny.bank import Bank
from tools.tiny.dialogues import Dialogues
from tools.tiny.hearing import hear
from tools.tiny.lessons import AUDIO_TOKENS, PICTURE_TOKENS
from tools.tiny.loop import Loop
from tools.tiny.speaking import Utterance, speak
from tools.tiny.utterances import Utterances

LONGEST_CLIP_S = 90
HEARD_TOKENS = 2400  # of one clip, at most
LONGEST_TEXT = 120  # words; the codes count them modulo 128
SHORT_TEXTS, SHORT_WORDS = 2, 34  # beside each long one, so that nothing is forgotten


class LongSpeech:
    """Draws what is heard from `bank`, and lets the Thinker hear it without learning."""

    def __init__(self, checkpoint: Checkpoint, bank: Bank, rng: np.random.Generator) -> None:
        self._model: Any = checkpoint.model
        self._rng = rng
        self._dialogues = Dialogues(checkpoint, bank, rng)
        self._utterances = Utterances(checkpoint, rng)
        sharing.register()
        self._model.thinker.model.language_model.config._attn_implementation = sharing.NAME

    def run(self, loop: Loop, steps: int) -> None:
        for _ in loop.steps(steps):
            loss = speak(self._model, self._draw())
            loop.learn(loss, steps, speech=loss.item())

    def _draw(self) -> list[Utterance]:
        """An answer to a clip, a long text behind the same clip, and short texts alone."""
        seconds = int(self._rng.integers(1, LONGEST_CLIP_S + 1))
        batch = self._dialogues.draw(1, seconds, self._size(seconds))
        with torch.no_grad():
            heard = hear(self._model, batch, None)
        (answer,) = self._utterances.answers(batch, heard, 1)
        long, *short = [
            *self._utterances.read_aloud(1, LONGEST_TEXT),
            *self._utterances.read_aloud(SHORT_TEXTS, SHORT_WORDS),
        ]
        behind = replace(long, prompt=answer.prompt, states=answer.states)
        return [answer, behind, *short]

    def _size(self, seconds: int) -> Size:
        tokens = {size: seconds * (t + AUDIO_TOKENS) for size, t in PICTURE_TOKENS.items()}
        sizes = [size for size, count in tokens.items() if count <= HEARD_TOKENS]
        return sizes[self._rng.integers(len(sizes))]
