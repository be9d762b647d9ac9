"""One request in the engine, from its prompt to its last event."""

from collections.abc import Sequence as SequenceOf
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from monitors.detectors import operations
from monitors.labels import Modality, Stage
from runtime.engine.scheduler import RequestView
from runtime.engine.speech import Speech
from runtime.engine.stages import Stages
from runtime.kv.entropy import EntropyBuffer
from runtime.kv.sequence import Sequence
from runtime.kv.tokens import MODALITIES, MediaSpan, PromptTokens
from runtime.model.prompt import Prompt, Segment
from runtime.model.thinker import SegmentEmbedding
from runtime.residents.port import Finished, Generate, Residency, TextDelta, VideoPart

TRAIL_TOKENS = 64  # of an answer that is checked later: what is kept of it has a bound
_BROKEN = "\N{REPLACEMENT CHARACTER}"  # ends a text whose last character is not whole yet


class Request:
    """Waiting while `sequence` is `None`; then prefilled, decoded and spoken a step at a time."""

    def __init__(
        self,
        asked: Generate,
        prompt: Prompt,
        tokenizer: Any,
        speech: Speech | None,
        pixels_off: operations.Difference | None,
        now: float,
    ) -> None:
        self.asked = asked
        self.prompt = prompt
        self.speech = speech
        self.pixels_off = pixels_off  # received against sent frames; None: not told
        self.arrived = self.served = now
        self.sequence: Sequence | None = None
        self.embedding: tuple[int, SegmentEmbedding] | None = None  # of a segment part-way in
        self.generated: list[int] = []
        self.trail: list[Tensor] | None = None  # (hidden,) behind each token; None: not kept
        self.text_reason: Literal["stop", "length"] | None = None
        self.stages = Stages() if speech is None else speech.stages
        self.stale_tokens: int | None = None  # found under a flushed epoch's keys; None: not sought
        self.video_told = not any(_is_key_frame(s) for s in prompt.segments)
        self._tokenizer = tokenizer
        self._tokens = _tokens(prompt)
        self._shown = 0  # characters of the text that are out
        self._told = 0  # tokens that are accounted for in deltas

    @property
    def request_id(self) -> str:
        return self.asked.request_id

    @property
    def log_fields(self) -> dict[str, str]:
        """What a log line about it carries."""
        return log_fields(self.asked)

    @property
    def done(self) -> bool:
        return self.text_reason is not None and (self.speech is None or self.speech.over)

    @property
    def prefilled(self) -> int:
        """Prompt tokens that are in the Thinker."""
        return 0 if self.sequence is None else min(self.sequence.table.length, len(self.prompt))

    @property
    def remaining(self) -> int:
        """Tokens still to prefill and, at most, to decode."""
        return len(self.prompt) - self.prefilled + self.asked.max_tokens - len(self.generated)

    def waited(self, until: float) -> None:
        """In the lanes, since it came."""
        self.stages.waited(Stage.QUEUE, self.arrived, until)

    def tokens(self) -> PromptTokens:
        """The prompt as the cache sees it: one object, by which the cache knows its keys."""
        return self._tokens

    def view(self) -> RequestView:
        left = np.unique(self.prompt.modality[self.prefilled :])
        speech = self.speech
        return RequestView(
            request_id=self.request_id,
            arrived=self.arrived,
            served=self.served,
            modalities=frozenset(MODALITIES[code] for code in left),
            decodes=bool(self.generated) and self.text_reason is None,
            speaks=speech is not None and speech.ready,
            starves=speech is not None and speech.starves,
            speech_due=None if speech is None else speech.due,
        )

    def mean_entropy(self, entropy: EntropyBuffer) -> float | None:
        """Cross-modal, in nats, over what was measured of it; `None` where nothing was."""
        if self.sequence is None:
            return None
        nats = entropy.values[self.sequence.row]
        measured = nats[~np.isnan(nats)]
        return float(measured.mean()) if len(measured) else None

    def sheds(self) -> bool:
        """Whether it is low-lane work: text that nobody hears or sees (S2.4)."""
        return self.speech is None and {s.modality for s in self.prompt.segments} == {Modality.TEXT}

    def positions(self, start: int, count: int) -> Tensor:
        """`(3, 1, count)` of tokens `start` onward, prompt or answer."""
        inside = self.prompt.positions[:, start : start + count]
        first = self.prompt.next_position + max(0, start - len(self.prompt))
        beyond = np.arange(first, first + count - inside.shape[1])
        columns = np.concatenate([inside, np.tile(beyond, (3, 1))], axis=1)
        return torch.from_numpy(columns)[:, None]

    def wrote(self, token: int, eos_id: int) -> None:
        """The Thinker's next token: the end of the text, or one more to say."""
        if token == eos_id:
            self._end_text("stop")
            return
        self.generated.append(token)
        if self.speech is not None:
            self.speech.say(token)
        if len(self.generated) >= self.asked.max_tokens:
            self._end_text("length")

    def remember(self, hidden: Tensor) -> None:
        """Keep the `(hidden,)` state that the next token comes from, where that was asked for."""
        if self.trail is not None and len(self.trail) < TRAIL_TOKENS:
            self.trail.append(hidden.clone())

    def text_delta(self) -> TextDelta | None:
        """What can be shown of the text since the last delta; whole characters only."""
        text = self._tokenizer.decode(self.generated)
        if text.endswith(_BROKEN) and self.text_reason is None:
            return None
        fresh, tokens = text[self._shown :], len(self.generated) - self._told
        if not fresh and not tokens:
            return None
        self._shown, self._told = len(text), len(self.generated)
        return TextDelta(request_id=self.request_id, text=fresh, tokens=tokens)

    def video_reached(self) -> bool:
        """Whether the first key frame has just come to be in the Thinker; true once."""
        if self.video_told:
            return False
        first = next(s for s in self.prompt.segments if _is_key_frame(s))
        self.video_told = self.prefilled >= first.stop
        return self.video_told

    def finished(self) -> Finished:
        """Its last event. Call it while the sequence is open."""
        assert self.sequence is not None
        assert self.text_reason is not None
        speech = self.speech
        return Finished(
            request_id=self.request_id,
            text_reason=self.text_reason,
            speech_reason=None if speech is None else speech.reason,
            prompt_tokens=len(self.prompt),
            cached_tokens=self.sequence.cached,
            completion_tokens=len(self.generated),
            codec_frames=0 if speech is None else speech.frames,
            samples=0 if speech is None else speech.samples,
            av_offset_ms=self.prompt.av_offset_ms,
            clock_error=self.prompt.clock_error,
            residency=self._residency(self.sequence),
            stages=self.stages.told(),
            stale_tokens=self.stale_tokens,
        )

    def _end_text(self, reason: Literal["stop", "length"]) -> None:
        self.text_reason = reason
        if self.speech is not None:
            self.speech.end()

    def _residency(self, sequence: Sequence) -> tuple[Residency, ...]:
        masses = zip(MODALITIES, sequence.hit.tolist(), sequence.lookup.tolist(), strict=True)
        return tuple(
            Residency(modality=modality, hit_mass=hit, lookup_mass=lookup)
            for modality, hit, lookup in masses
            if lookup > 0
        )


def log_fields(asked: Generate) -> dict[str, str]:
    """Ids alone: those of the request, its session and the span that called us."""
    fields = {"request_id": asked.request_id, "session": asked.session}
    if asked.traceparent is not None:
        _, trace_id, span_id, _ = asked.traceparent.split("-")
        fields |= {"trace_id": trace_id, "span_id": span_id}
    return fields


def _tokens(prompt: Prompt) -> PromptTokens:
    media = tuple(
        MediaSpan(s.start, s.stop, s.digest) for s in prompt.segments if s.part is not None
    )
    return PromptTokens(prompt.ids, prompt.modality, prompt.positions, media)


def _is_key_frame(segment: Segment) -> bool:
    return isinstance(segment.part, VideoPart) and segment.part.key_frame


def segments_in(segments: SequenceOf[Segment], start: int, stop: int) -> list[Segment]:
    """Those that hold a token of `[start, stop)`."""
    return [s for s in segments if s.start < stop and start < s.stop]
