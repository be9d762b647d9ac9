"""How likely a checkpoint finds the right answers: teacher-forced over the engine's own cache.

A `Dictated` Thinker writes the right answer whatever it would have said itself, so that prefill,
decode, reuse and quantisation go as they do in the engine, slice by slice and token by token.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from monitors.contract import KvRung
from runtime.engine.build import EngineSettings, build_cache
from runtime.engine.forward import Forward
from runtime.engine.request import Request
from runtime.kv.admission import PromptTooLong
from runtime.kv.cache import KvCache
from runtime.kv.sequence import Sequence as Cached
from runtime.kv.slabs import PoolExhausted, PoolTooSmall
from runtime.model import attention
from runtime.model.checkpoint import Checkpoint
from runtime.model.processor import Processor
from runtime.model.thinker import Thinker
from runtime.residents.port import Array, Generate


class NotANumber(RuntimeError):
    """The model's answer is no distribution over tokens."""


@dataclass
class Dictation:
    """The right answer's tokens, the end included; for each, what it would have cost in nats, the
    hidden state `(hidden,)` before it, and whether it was the likeliest."""

    tokens: Sequence[int]
    nats: list[float] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)
    likeliest: list[bool] = field(default_factory=list)

    @property
    def next(self) -> int:
        return self.tokens[len(self.nats)]

    @property
    def mean(self) -> float:
        """Nats per token."""
        return float(np.mean(self.nats))

    @property
    def exact(self) -> bool:
        """Whether the model, left to itself, would have said just this."""
        return all(self.likeliest)


class Dictated(Thinker):
    """Set `taking` before each forward: the dictations of its rows."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        attention.register()
        super().__init__(checkpoint, attention=attention.NAME)
        self.taking: Sequence[Dictation] = ()

    def next_tokens(self, hidden: Tensor) -> list[int]:
        """The right ones for each of (T, H), noting what they cost."""
        costs = -self.logits(hidden).double().log_softmax(-1)
        right = [dictation.next for dictation in self.taking]
        for dictation, row, state, token in zip(self.taking, costs, hidden, right, strict=True):
            dictation.nats.append(float(row[token]))
            dictation.states.append(state.clone())
            dictation.likeliest.append(int(row.argmin()) == token)
        return right


Ended = Callable[[KvCache[Any], Cached], None]


@dataclass
class Pages:
    """Live pages where answers ended, in sum: their bytes, those of native ones, and tokens."""

    bytes: int = 0
    native_bytes: int = 0
    tokens: int = 0


class Likelihood:
    """Answers are dictated over one cache of `settings`, kept in format `kv`. `ended` is shown
    each sequence at the end of its answer."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        settings: EngineSettings,
        kv: KvRung,
        ended: Ended = lambda *_: None,
    ) -> None:
        self.pages = Pages()
        self._ended = ended
        self._tokenizer = checkpoint.tokenizer
        self._processor = Processor(checkpoint)
        self._thinker = Dictated(checkpoint)
        self._cache = build_cache(checkpoint, settings)
        self._cache.set_kv(kv)
        self._forward = Forward(self._thinker, self._cache, clock=lambda: 0.0)

    def answer(self, text: str) -> list[int]:
        """Tokens of a right answer, the end included."""
        encoded = self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        return [*encoded, self._thinker.eos_id]

    def nats(self, asked: Sequence[tuple[Generate, Sequence[Array], str]]) -> list[float]:
        """Mean nats per token of each right answer. Raises what `dictate` does."""
        return [dictation.mean for dictation in self.dictate(asked)]

    def logits(self, dictation: Dictation) -> Tensor:
        """`(tokens, vocabulary)`, of what was dictated."""
        return self._thinker.logits(torch.stack(dictation.states))

    def dictate(self, asked: Sequence[tuple[Generate, Sequence[Array], str]]) -> list[Dictation]:
        """Each right answer; all are in the cache together.

        Raises `PoolTooSmall`, `NotANumber`, and `PromptError` for what is no prompt.
        """
        pairs = [self._prepare(*one) for one in asked]
        try:
            with self._open([request for request, _ in pairs]):
                for request, dictation in pairs:
                    self._prefill(request, dictation)
                while going := [pair for pair in pairs if pair[0].text_reason is None]:
                    self._decode(going)
                self._count_pages([request for request, _ in pairs])
        except (PoolExhausted, PromptTooLong) as err:
            raise _too_small() from err
        for request, dictation in pairs:
            _check(request.request_id, dictation)
        return [dictation for _, dictation in pairs]

    def _prepare(
        self, asked: Generate, arrays: Sequence[Array], right: str
    ) -> tuple[Request, Dictation]:
        prompt = self._processor.prompt(asked.turns, arrays)
        request = Request(asked, prompt, self._tokenizer, None, None, 0.0)
        return request, Dictation(self.answer(right))

    @contextmanager
    def _open(self, requests: Sequence[Request]) -> Iterator[None]:
        try:
            for request in requests:
                asked = request.asked
                request.sequence = self._cache.open(
                    request.tokens(), asked.max_tokens, salt=asked.salt, write=asked.cache_write
                )
                if request.sequence is None:
                    raise _too_small()
            yield
        finally:
            for request in requests:
                if request.sequence is not None:
                    self._cache.close(request.sequence)

    def _prefill(self, request: Request, dictation: Dictation) -> None:
        assert request.sequence is not None
        self._thinker.taking = [dictation]
        while not self._forward.prefill(request, request.sequence):
            self._cache.settle()
        self._cache.settle()

    def _decode(self, going: Sequence[tuple[Request, Dictation]]) -> None:
        self._thinker.taking = [dictation for _, dictation in going]
        refused = self._forward.decode([request for request, _ in going])
        if refused:
            raise _too_small()
        self._cache.settle()

    def _count_pages(self, requests: Sequence[Request]) -> None:
        cache = self._cache
        while cache.settle():
            pass
        account, shape = cache.pool.account(), cache.pool.shape
        if account.host.any():
            raise _too_small()
        for request in requests:
            assert request.sequence is not None
            table = request.sequence.table
            self._ended(cache, request.sequence)
            self.pages.tokens += table.length
            self.pages.native_bytes += len(table.blocks) * cache.pool.layers * shape.native_bytes
        self.pages.bytes += int(account.live.sum())


def _check(name: str, dictation: Dictation) -> None:
    """A likelihood that is no number is a fault of the engine, never a score."""
    mean = dictation.mean
    if not np.isfinite(mean):
        raise NotANumber(f"sample {name}: the model gives no number for the right answer ({mean})")


def _too_small() -> PoolTooSmall:
    return PoolTooSmall(
        "the pool is too small for the samples in flight: give it more megabytes, or ask about"
        " shorter clips"
    )
