"""One answer's speech: text tokens in, packets of sound out, while the Thinker still writes."""

from collections import deque
from collections.abc import Callable
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from monitors.labels import Stage
from runtime.engine.stages import Stages
from runtime.model.checkpoint import Checkpoint
from runtime.model.codec import CodecStream, Pcm
from runtime.model.prompt import Prompt
from runtime.model.talker import END, TalkerStream
from runtime.residents.port import AudioDelta, Generate

FIRST_PACKET_FRAMES = 2
PACKET_FRAMES = 4
SAMPLE_RATE = 24_000
FRAMES_PER_TOKEN = 25  # half a second of speech a token is far more than speech takes
EXTRA_FRAMES = 100
TRUNCATED_FRAMES = 5  # where the truncation drill cuts: inside a packet

Made = TypeVar("Made")


class Speech:
    """Feed `say` the text tokens and `end` their end; `advance` makes one codec frame.

    Raises `UnknownVoice` where the checkpoint has no such voice.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        asked: Generate,
        due: float,
        clock: Callable[[], float],
    ) -> None:
        limit = EXTRA_FRAMES + FRAMES_PER_TOKEN * asked.max_tokens
        self._talker = TalkerStream(checkpoint, asked.voice, max_frames=limit)
        self._codec = CodecStream(checkpoint)
        self._request_id = asked.request_id
        self._clock = clock
        self._text: deque[int] = deque()
        self._text_over = False
        self._heard = False
        self._codes: list[Tensor] = []
        self.over = False
        self.reason: Literal["stop", "length"] | None = None
        self.samples = 0
        self.due = due  # when the listener runs dry, on the engine's clock
        self.stages = Stages()  # of the whole request

    @property
    def frames(self) -> int:
        """Codec frames so far, whether their sound went out or not."""
        return self._talker.frames

    @property
    def ready(self) -> bool:
        """Whether `advance` has something to speak."""
        return not self.over and (bool(self._text) or self._text_over)

    @property
    def starves(self) -> bool:
        return not self.over and not self.ready

    def say(self, token: int) -> None:
        self._text.append(token)

    def end(self) -> None:
        """The text is over."""
        self._text_over = True

    def advance(
        self, prompt: Prompt, states: Tensor | None, now: float, *, truncated: bool
    ) -> AudioDelta | None:
        """One more frame; a packet when enough are there, or the last one when speech is over.

        `states` `(n, hidden)` of the prompt are read by the first call only. `truncated`: the
        drill, in which the Talker is cut off and its last samples are lost.
        """
        codes = self._timed(Stage.TALKER, lambda: self._next_codes(prompt, states))
        if codes is not None:
            self._codes.append(codes)
        if truncated and (codes is None or self.frames >= TRUNCATED_FRAMES):
            return self._finish(np.zeros(0, np.float32), "length", now, lost=True)
        if codes is None:
            pcm = self._timed(Stage.VOCODER, self._decode_rest)
            return self._finish(pcm, self._talker.reason or "stop", now)
        wanted = PACKET_FRAMES if self._codec.frames else FIRST_PACKET_FRAMES
        if len(self._codes) < wanted:
            return None
        return self._packet(self._timed(Stage.VOCODER, self._decode), now)

    def _next_codes(self, prompt: Prompt, states: Tensor | None) -> Tensor | None:
        token = self._text.popleft() if self._text else END
        if self._heard:
            return self._talker.step(token)
        self._heard = True
        if token is None:
            return None  # an empty answer: nothing to speak
        return self._talker.prefill(prompt, _states(prompt, states), token)

    def _timed(self, stage: Stage, work: Callable[[], Made]) -> Made:
        began = self._clock()
        made = work()
        self.stages.add(stage, began, self._clock())
        return made

    def _decode_rest(self) -> Pcm:
        return np.concatenate([self._decode(), self._codec.finish()])

    def _decode(self) -> Pcm:
        if not self._codes:
            return np.zeros(0, np.float32)
        return self._codec.push(torch.stack(self._codes, dim=1))

    def _packet(self, pcm: Pcm, now: float) -> AudioDelta | None:
        frames, self._codes = len(self._codes), []
        self.samples += len(pcm)
        self.due = max(self.due, now) + len(pcm) / SAMPLE_RATE
        if not len(pcm):
            return None
        data = (pcm * 32767.0).astype("<i2").tobytes()
        return AudioDelta(request_id=self._request_id, pcm=data, frames=frames)

    def _finish(
        self, pcm: Pcm, reason: Literal["stop", "length"], now: float, *, lost: bool = False
    ) -> AudioDelta | None:
        if lost:
            self._codes = []
        self.over, self.reason = True, reason
        return self._packet(pcm, now)


def _states(prompt: Prompt, states: Tensor | None) -> Tensor:
    """Nothing was heard where there are none: no row will be read."""
    return torch.zeros(len(prompt), 0) if states is None else states
