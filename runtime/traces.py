"""One trace per request: how long it was decoded, queued, encoded, prefilled and generated."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.trace import SpanKind

from monitors.labels import Milestone, Outcome
from monitors.tracing import Attribute, Tracing, span_id, trace_id
from runtime.book import Stamp
from runtime.residents.port import Finished


class RequestTrace:
    """The span of one request and its children. `wall`: calendar seconds."""

    def __init__(
        self,
        tracing: Tracing,
        headers: Mapping[str, str],
        attributes: Mapping[str, str | int],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._tracing = tracing
        self._wall = wall
        self._span = tracing.start(
            "chat", tracing.extract(headers), attributes=attributes, kind=SpanKind.SERVER
        )
        self._since = wall()

    @property
    def trace_id(self) -> str | None:
        return trace_id(self._span)

    @property
    def traceparent(self) -> str | None:
        """For the engine's own spans."""
        return self._tracing.inject(self._span).get("traceparent")

    def log_fields(self) -> dict[str, Any]:
        """What a log line of this request carries."""
        return {"trace_id": self.trace_id, "span_id": span_id(self._span)}

    def decoded(self) -> None:
        """The media of the request is cut into slices."""
        now = self._wall()
        self._tracing.record("decode media", self._span, self._since, now)

    def departed(self, stamp: Stamp) -> None:
        """The request was handed to a resident."""
        self._since = self._wall()
        self._span.set_attribute(Attribute.RESIDENT, stamp.resident)
        self._span.set_attribute(Attribute.VERSION, stamp.version)
        self._span.set_attribute(Attribute.ROUTE_EPOCH, stamp.route_epoch)
        if stamp.pool_epoch is not None:
            self._span.set_attribute(Attribute.POOL_EPOCH, stamp.pool_epoch)

    def first(self, milestone: Milestone, seconds: float) -> None:
        """A milestone was reached."""
        self._span.add_event(milestone, {"seconds": seconds})
        if milestone is Milestone.FIRST_TOKEN:
            self._span.set_attribute(Attribute.TIME_TO_FIRST_CHUNK, seconds)

    def finished(self, finished: Finished) -> None:
        """The engine's stages, one after the other as it told them."""
        at = self._since
        for stage in ("queue", "encode", "prefill", "decode"):
            seconds = float(getattr(finished, f"{stage}_s"))
            self._tracing.record(stage, self._span, at, at + seconds)
            at += seconds
        self._span.set_attribute(Attribute.INPUT_TOKENS, finished.prompt_tokens)
        self._span.set_attribute(Attribute.OUTPUT_TOKENS, finished.completion_tokens)
        self._span.set_attribute(Attribute.CACHED_TOKENS, finished.cached_tokens)
        self._span.set_attribute(Attribute.FINISH_REASONS, finished.text_reason)

    def end(self, outcome: Outcome) -> None:
        """The request is over."""
        self._span.set_attribute(Attribute.OUTCOME, outcome)
        self._span.end()
