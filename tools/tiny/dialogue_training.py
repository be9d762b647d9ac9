"""The main training: Thinker and Talker on dialogues, text and speech losses 1:1 (S3.3)."""

from typing import Any

import numpy as np

from runtime.kv.reuse import upper_layers
from runtime.model.checkpoint import Checkpoint
from tools.tiny import sharing
from tools.tiny.bank import Bank
from tools.tiny.dialogues import Batch, Dialogues
from tools.tiny.hearing import Heard, hear
from tools.tiny.lessons import lesson
from tools.tiny.loop import Loop
from tools.tiny.sharing import Sharing, draw_sharing
from tools.tiny.speaking import speak
from tools.tiny.utterances import Utterances

BALANCE = 0.001  # weight of the experts' load
SHARED_BATCHES = 0.75  # of batches have shared blocks; the others keep the plain model good
SHARES = (0.25, 0.5, 0.75, 1.0)  # of their blocks
SPOKEN_ANSWERS, READ_ALOUD = 3, 6  # utterances to a batch
LONGEST_SPOKEN = 34  # words
TEXT_ONLY_UNTIL = 0.2  # of the training: before it there is nothing to say


class DialogueTraining:
    """`shared`: with K/V sharing (the control goes without); `speaks`: with the Talker."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        bank: Bank,
        rng: np.random.Generator,
        *,
        shared: bool,
        speaks: bool,
    ) -> None:
        self._model: Any = checkpoint.model
        self._rng = rng
        self._dialogues = Dialogues(checkpoint, bank, rng)
        self._utterances = Utterances(checkpoint, rng)
        self._shared, self._speaks = shared, speaks
        text = checkpoint.config.thinker_config.text_config
        talker_layer = checkpoint.config.talker_config.accept_hidden_layer
        self._layers = upper_layers(text.num_hidden_layers, talker_layer)
        sharing.register()
        self._model.thinker.model.language_model.config._attn_implementation = sharing.NAME

    def run(self, loop: Loop, steps: int, *, start: float = 0.0, shortest: int = 2) -> None:
        """`start`: where in the curriculum it begins, 1 for a training that goes on with clips of
        `shortest` seconds or more."""
        for step in loop.steps(steps):
            progress = start + (1.0 - start) * step / steps
            drawn = lesson(progress, self._rng, shortest)
            batch = self._dialogues.draw(drawn.dialogues, drawn.seconds, drawn.size)
            heard = hear(self._model, batch, self._sharing(batch))
            loss = heard.loss + BALANCE * heard.balance
            figures = {"text": heard.loss.item(), "right": heard.right.float().mean().item()}
            if self._speaks and progress >= TEXT_ONLY_UNTIL:
                speech = self._speech(batch, heard, progress)
                loss = loss + speech
                figures["speech"] = speech.item()
            loop.learn(loss, steps, **figures)

    def _sharing(self, batch: Batch) -> Sharing | None:
        if not self._shared or self._rng.random() >= SHARED_BATCHES:
            return None
        share = SHARES[self._rng.integers(len(SHARES))]
        codes = [prompt.modality for prompt in batch.prompts]
        return draw_sharing(codes, batch.ids.shape[1], self._layers, share, self._rng)

    def _speech(self, batch: Batch, heard: Heard, progress: float) -> Any:
        longest = max(4, min(LONGEST_SPOKEN, round(80 * (progress - TEXT_ONLY_UNTIL))))
        count = READ_ALOUD if longest < LONGEST_SPOKEN else READ_ALOUD // 2
        spoken = self._utterances.answers(batch, heard, SPOKEN_ANSWERS)
        return speak(self._model, [*spoken, *self._utterances.read_aloud(count, longest)])
