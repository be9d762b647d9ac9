"""Held-out clips over the tiny checkpoint: the right answer dictated over any cache, and scored."""

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from bench.models import shipped
from runtime.engine.build import EngineSettings, build_cache
from runtime.engine.forward import Forward
from runtime.engine.request import Request
from runtime.kv.cache import KvCache
from runtime.kv.reuse import ReusePolicy, off
from runtime.kv.sequence import Sequence
from runtime.model import attention
from runtime.model.checkpoint import Checkpoint
from runtime.model.processor import Processor
from runtime.model.thinker import Thinker
from runtime.quality.held_out import Sample, draw
from runtime.quality.likelihood import Dictated, Dictation
from runtime.quality.tasks import Kind, parts_of, question_part
from runtime.residents.port import Array, Generate, Turn

KINDS = (Kind.DIGITS, Kind.COLOURS, Kind.PAIRS)
SECONDS = 8
POOL_BYTES = 64_000_000


@dataclass(frozen=True)
class Heard:
    """Mean nats per token of the right answer, and whether greedy decoding gives just that."""

    nats: float
    exact: bool


def clips(count: int, *, seed: int = 0) -> list[Sample]:
    """`count` questions about as many clips, the kinds in turn."""
    return [draw(KINDS[n % len(KINDS)], SECONDS, n // len(KINDS), seed=seed) for n in range(count)]


def asking(sample: Sample, *, write: bool, max_tokens: int = 64) -> tuple[Generate, list[Array]]:
    """The sample as a request for text."""
    parts, arrays = parts_of(sample.media, sample.name)
    asked = Generate(
        request_id=sample.name,
        session="",
        turns=(Turn(role="user", parts=(*parts, *question_part(sample.question))),),
        max_tokens=max_tokens,
        speech=False,
        voice="ethan",
        salt="",
        cache_write=write,
    )
    return asked, list(arrays)


class Marked(Dictated):
    """Keeps whether the model would have said what is dictated."""

    def __init__(self, loaded: Checkpoint) -> None:
        super().__init__(loaded)
        self.agrees: list[bool] = []

    def next_tokens(self, hidden: Tensor) -> list[int]:
        right = super().next_tokens(hidden)
        self.agrees.append(Thinker.next_tokens(self, hidden) == right)
        return right


class ClipRun:
    """One cache, every step observed, so that a rule sees all that it can. `loaded`: by default
    the shipped checkpoint on the CPU."""

    def __init__(self, reuse: ReusePolicy | None = None, loaded: Checkpoint | None = None) -> None:
        loaded = loaded or shipped()
        attention.register()
        self.entries = 0  # (layer, block) entries of all tables so far
        self.sequence: Sequence | None = None  # of the latest clip
        self._thinker = Marked(loaded)
        settings = EngineSettings(
            name="bench",
            version="",
            pool_bytes=POOL_BYTES,
            observe_every=1,
            reuse=reuse or off("native"),
        )
        self.kv: KvCache[Any] = build_cache(loaded, settings)
        self._processor = Processor(loaded)
        self._forward = Forward(self._thinker, self.kv, clock=lambda: 0.0)

    def dictate(self, sample: Sample, between: Callable[[], None] = lambda: None) -> Heard:
        """`between`: what happens to the cache behind the prompt, ahead of the answer."""
        request, dictation = self._prepare(sample)
        self._thinker.taking, self._thinker.agrees = [dictation], []
        opened = self.kv.open(request.tokens(), request.asked.max_tokens, salt="", write=False)
        assert opened is not None
        request.sequence = self.sequence = opened
        try:
            while not self._forward.prefill(request, opened):
                pass
            between()
            while request.text_reason is None:
                refused = self._forward.decode([request])
                assert not refused
            self.entries += self.kv.pool.layers * len(opened.table.blocks)
        finally:
            self.kv.close(opened)
        return Heard(float(np.mean(dictation.nats)), all(self._thinker.agrees))

    def _prepare(self, sample: Sample) -> tuple[Request, Dictation]:
        asked, arrays = asking(sample, write=False)
        prompt = self._processor.prompt(asked.turns, arrays)
        request = Request(asked, prompt, shipped().tokenizer, None, None, 0.0)
        return request, Dictation([*_encoded(sample.question.answer), self._thinker.eos_id])


def _encoded(text: str) -> SequenceOf[int]:
    tokenizer: Any = shipped().tokenizer
    return tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
