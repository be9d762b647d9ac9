"""A shipped checkpoint asked over caches of one's choice; what came out, number by number."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from runtime.engine.build import EngineSettings, build_cache
from runtime.engine.forward import Forward
from runtime.engine.request import Request
from runtime.kv.cache import KvCache
from runtime.kv.reuse import ReusePolicy, off
from runtime.kv.tokens import TEXT
from runtime.model import attention
from runtime.model.checkpoint import Checkpoint
from runtime.model.processor import Processor
from runtime.model.talker import END, TalkerStream
from runtime.model.thinker import Thinker
from runtime.quality.held_out import draw
from runtime.quality.scenes import draw_scene
from runtime.quality.tasks import Kind, make_media, parts_of
from runtime.residents.port import Array, Generate, Part, TextPart, Turn

POOL_BYTES = 16_000_000
FRAMES = 6  # of speech that are compared
SECONDS = 4  # of a clip


# ---------------------------------------------------------------- questions
@dataclass(frozen=True, eq=False)
class Asked:
    parts: Sequence[Part]
    arrays: Sequence[Array]
    salt: str = "tenant"

    def generate(self) -> Generate:
        return Generate(
            request_id="r",
            session="",
            turns=(Turn(role="user", parts=tuple(self.parts)),),
            max_tokens=4,
            speech=True,
            voice="aiden",
            salt=self.salt,
        )


def words(text: str) -> TextPart:
    return TextPart(text=text)


def text_alone(text: str) -> Asked:
    return Asked([words(text)], [])


def picture(number: int = 0) -> tuple[list[Part], list[Array]]:
    sample = draw(Kind.IMAGE, 1, number, seed=0)
    return parts_of(sample.media, sample.name)


def clip(kind: Kind, number: int = 0) -> tuple[list[Part], list[Array]]:
    """Of the senses that `kind` asks about."""
    rng = np.random.default_rng(number)
    media = make_media(kind, draw_scene(SECONDS, rng), (96, 96), rng, alone=True)
    return parts_of(media, f"{kind} {number}")


# ---------------------------------------------------------------- answers
@dataclass(frozen=True, eq=False)
class Answer:
    """`logits` (steps, V) of speakable tokens; `states` (media tokens, H); `codes` (frames, 8)."""

    cached: int
    prompt: int
    encoded: int  # slices that were encoded
    logits: Tensor
    tokens: list[int]
    states: Tensor
    codes: Tensor


class _Heard(Thinker):
    """Keeps the logits behind each token it chose."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        attention.register()
        super().__init__(checkpoint, attention=attention.NAME)
        self.rows: list[Tensor] = []

    def next_tokens(self, hidden: Tensor) -> list[int]:
        self.rows.append(self.logits(hidden)[-1])
        return super().next_tokens(hidden)


class Asker:
    """Asks one request at a time. Reuse is off unless a policy says otherwise."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._processor = Processor(checkpoint)

    def cache(self, reuse: ReusePolicy | None = None) -> KvCache:
        settings = EngineSettings("a", "v", POOL_BYTES, reuse=reuse or off("compared with itself"))
        return build_cache(self._checkpoint, settings)

    def ask(self, kv: KvCache, asked: Asked) -> Answer:
        """The whole answer, from the prompt on."""
        request = self._request(asked)
        thinker, found = _Heard(self._checkpoint), (kv.encoders.lookups, kv.encoders.hits)
        forward = Forward(thinker, kv, clock=lambda: 0.0)
        sequence = request.sequence = kv.open(
            request.tokens(), request.asked.max_tokens, salt=asked.salt, write=True
        )
        assert sequence is not None
        while not forward.prefill(request, sequence):
            pass
        while request.text_reason is None:
            assert not forward.decode([request])
        states = self._states(request)
        kv.close(sequence)
        assert kv.check() == ()
        logits = torch.stack(thinker.rows)
        lookups, hits = kv.encoders.lookups - found[0], kv.encoders.hits - found[1]
        return Answer(
            cached=sequence.cached,
            prompt=len(request.prompt),
            encoded=lookups - hits,
            logits=logits[:, torch.isfinite(logits[0])],
            tokens=request.generated,
            states=states[torch.from_numpy(request.prompt.modality != TEXT)],
            codes=self._codes(request, states),
        )

    def _request(self, asked: Asked) -> Request:
        generate = asked.generate()
        prompt = self._processor.prompt(generate.turns, asked.arrays)
        return Request(generate, prompt, self._checkpoint.tokenizer, None, None, 0.0)

    def _states(self, request: Request) -> Tensor:
        assert request.sequence is not None
        assert request.sequence.states is not None
        return request.sequence.states

    def _codes(self, request: Request, states: Tensor) -> Tensor:
        """The first frames that the Talker speaks of the answer; fewer where it ends before."""
        talker = TalkerStream(self._checkpoint, request.asked.voice, max_frames=FRAMES)
        first, *others = request.generated
        frames, codes = [], talker.prefill(request.prompt, states, first)
        while codes is not None:
            frames.append(codes)
            codes = talker.step(others.pop(0) if others else END)
        return torch.stack(frames)
