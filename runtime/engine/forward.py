"""The Thinker's work on the cache: one prefill slice of a request, or one token of many."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from monitors.labels import Stage
from runtime.engine.request import Request, segments_in
from runtime.kv.cache import KvCache
from runtime.kv.sequence import Sequence as Cached
from runtime.kv.slabs import PoolExhausted
from runtime.kv.step import PagedStep, Span
from runtime.kv.tokens import PREFILL_TOKENS
from runtime.model.prompt import Segment
from runtime.model.thinker import SegmentEmbedding, Thinker, pack


@dataclass(frozen=True, eq=False)
class _Part:
    """One request's share of a packed step."""

    request: Request
    sequence: Cached
    span: Span


class Forward:
    """`clock`: monotonic seconds, for the requests' own timings."""

    def __init__(
        self,
        thinker: Thinker,
        cache: KvCache[SegmentEmbedding],
        clock: Callable[[], float],
    ) -> None:
        self._thinker = thinker
        self._cache = cache
        self._clock = clock

    def prefill(self, request: Request, sequence: Cached) -> bool:
        """The next slice of the prompt; true when that was the last, and a token came of it."""
        start = sequence.table.length
        stop = min(start + PREFILL_TOKENS, len(request.prompt))
        last = stop == len(request.prompt)
        began = self._clock()
        embedding = self._embed(request, start, stop)
        encoded = self._clock()
        part = _Part(request, sequence, self._cache.grow(sequence, stop - start))
        hidden = self._run([part], embedding, start_of=[start], observed=last)
        if last:
            request.remember(hidden[-1])
            request.wrote(self._thinker.next_tokens(hidden[-1:])[0], self._thinker.eos_id)
        request.stages.add(Stage.ENCODE, began, encoded)
        request.stages.add(Stage.PREFILL, encoded, self._clock())
        return last

    def decode(self, requests: Sequence[Request]) -> dict[str, PoolExhausted]:
        """One token for each; those whose next page was not to be had, and why."""
        parts, refused = [], {}
        for request in requests:
            assert request.sequence is not None
            try:
                span = self._cache.grow(request.sequence, 1)
            except PoolExhausted as err:
                refused[request.request_id] = err
                continue
            parts.append(_Part(request, request.sequence, span))
        if parts:
            embedding = self._thinker.embed_tokens([p.request.generated[-1] for p in parts])
            starts = [p.sequence.table.length - 1 for p in parts]
            hidden = self._run(parts, embedding, start_of=starts, observed=False)
            tokens = self._thinker.next_tokens(hidden)
            for part, row, token in zip(parts, hidden, tokens, strict=True):
                part.request.remember(row)
                part.request.wrote(token, self._thinker.eos_id)
        return refused

    def replay(
        self, request: Request, sequence: Cached, answer: Sequence[int]
    ) -> tuple[Tensor, bool]:
        """The next slice of a prompt and the answer that was given to it: hidden states `(n, H)`,
        and whether that was all. Nothing of it is observed, shared or kept."""
        start, prompt = sequence.table.length, len(request.prompt)
        whole = prompt + len(answer)
        stop = min(start + PREFILL_TOKENS, prompt if start < prompt else whole)
        if start < prompt:
            embedding = self._embed(request, start, stop)
        else:
            embedding = self._thinker.embed_tokens(answer[start - prompt : stop - prompt])
        span = self._cache.grow(sequence, stop - start)
        out = self._thinker.forward(
            embedding.emb,
            request.positions(start, stop - start),
            embedding.visual,
            embedding.deepstack,
            paged=PagedStep(self._cache.pool, [span], sampled=False),
        )
        return out.last_hidden, stop == whole

    def _run(
        self,
        parts: Sequence[_Part],
        embedding: SegmentEmbedding,
        *,
        start_of: Sequence[int],
        observed: bool,
    ) -> Tensor:
        """A packed forward; hidden states `(T, H)` behind the last layer."""
        step = self._cache.step([part.span for part in parts], observed=observed)
        positions = [
            part.request.positions(start, part.span.new)
            for part, start in zip(parts, start_of, strict=True)
        ]
        out = self._thinker.forward(
            embedding.emb,
            torch.cat(positions, dim=2),
            embedding.visual,
            embedding.deepstack,
            paged=step,
        )
        at = 0
        for index, part in enumerate(parts):
            states = out.accept_hidden[at : at + part.span.new]
            self._cache.absorb(part.sequence, states, step.observations[index])
            at += part.span.new
        return out.last_hidden

    # ------------------------------------------------------------ embeddings
    def _embed(self, request: Request, start: int, stop: int) -> SegmentEmbedding:
        """Tokens `[start, stop)` of the prompt, through the encoders where nothing is kept."""
        pieces = []
        for segment in segments_in(request.prompt.segments, start, stop):
            whole = self._whole(request, segment)
            low, high = max(start, segment.start), min(stop, segment.stop)
            pieces.append(whole.cut(low - segment.start, high - segment.start))
            keep = high < segment.stop
            request.embedding = (segment.start, whole) if keep else None
        return pack(pieces)

    def _whole(self, request: Request, segment: Segment) -> SegmentEmbedding:
        if request.embedding is not None and request.embedding[0] == segment.start:
            return request.embedding[1]
        if segment.part is None:
            return self._thinker.embed(request.prompt, segment)
        epoch, key = self._cache.pool.epoch, (request.asked.salt, segment.digest)
        kept = self._cache.encoders.get(key, epoch)
        if kept is not None:
            return kept
        made = self._thinker.embed(request.prompt, segment)
        if request.asked.cache_write:
            self._cache.encoders.put(key, epoch, made, tokens=segment.stop - segment.start)
        return made
