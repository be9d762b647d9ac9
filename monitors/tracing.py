"""Which requests are traced, under whose trace, and how that context travels (W3C).

A trace is put together when its request has ended, and only where it is worth keeping: one that
crossed a line, was found faulty or ended badly always is, of the others a share (ADR 26).
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from monitors.requests import RequestRecord
from monitors.trace_queue import Content, Trace, TraceQueue

_W3C = TraceContextTextMapPropagator()
_LOW_64 = 2**64 - 1  # what OpenTelemetry's own ratio sampler looks at


@dataclass(frozen=True)
class TraceContext:
    """The trace of one request: `own` is its span, `parent` its caller's, `ours` whether we trace.

    `own.trace_flags.sampled` tells what was decided before anything was known: others may go by
    it. Where we do not trace, `own` is the caller's span.
    """

    own: SpanContext
    parent: SpanContext | None
    ours: bool

    @property
    def trace_id(self) -> str:
        """32 hex digits."""
        return f"{self.own.trace_id:032x}"

    @property
    def span_id(self) -> str:
        """16 hex digits."""
        return f"{self.own.span_id:016x}"

    @property
    def sampled(self) -> bool:
        """Whether it is kept whatever comes."""
        return self.own.trace_flags.sampled

    def onward(self, span_id: str) -> dict[str, str]:
        """`traceparent` and, where the caller sent one, `tracestate`: they make our span `span_id`
        the parent of what another process does. Where we do not trace, the caller's stays it."""
        span = int(span_id, 16) if self.ours else self.own.span_id
        context = SpanContext(
            self.own.trace_id, span, False, self.own.trace_flags, self.own.trace_state
        )
        headers: dict[str, str] = {}
        _W3C.inject(headers, context=set_span_in_context(NonRecordingSpan(context), Context()))
        return headers


def new_span_id() -> str:
    """16 hex digits, never all zero."""
    return f"{random.getrandbits(64) or 1:016x}"


class Tracing:
    """Begins traces and takes finished ones. Get one by `configure`."""

    def __init__(self, queue: TraceQueue | None = None, sample_ratio: float = 1.0) -> None:
        self._queue = queue
        self._bound = round(sample_ratio * (_LOW_64 + 1))

    @property
    def on(self) -> bool:
        return self._queue is not None

    @property
    def dropped_spans(self) -> int:
        """Spans that should have been sent and were not, so far."""
        return 0 if self._queue is None else self._queue.dropped_spans

    def begin(self, headers: Mapping[str, str]) -> TraceContext | None:
        """The trace of a request with these headers (lower-case names): its caller's, else a new
        one; None where tracing is off and the caller has none."""
        found = get_current_span(_W3C.extract(headers, context=Context())).get_span_context()
        parent = found if found.is_valid else None
        if self._queue is None:
            return None if parent is None else TraceContext(parent, None, ours=False)
        trace_id = random.getrandbits(128) or 1 if parent is None else parent.trace_id
        return TraceContext(
            SpanContext(
                trace_id,
                int(new_span_id(), 16),
                is_remote=False,
                trace_flags=TraceFlags(int(self._samples(trace_id, parent))),
                trace_state=None if parent is None else parent.trace_state,
            ),
            parent,
            ours=True,
        )

    def keep(self, context: TraceContext, record: RequestRecord, content: Content | None) -> None:
        """Send the trace of a request that has ended, soon and on another thread. Never waits:
        where too many wait already, it is dropped and counted."""
        if self._queue is not None and context.ours:
            self._queue.offer(Trace(context.own, context.parent, record, content))

    def shutdown(self, timeout_s: float = 2.0) -> None:
        """Send what waits, for at most `timeout_s`; what is left then is dropped."""
        if self._queue is not None:
            self._queue.close(timeout_s)

    def _samples(self, trace_id: int, parent: SpanContext | None) -> bool:
        """A caller's decision stands; else the share, decided by the id as other services do."""
        if parent is not None:
            return parent.trace_flags.sampled
        return trace_id & _LOW_64 < self._bound


def configure(endpoint: str | None, service: str, sample_ratio: float = 1.0) -> Tracing:
    """Tracing to the OTLP collector at `endpoint` (`http://host:4318`); None turns it off.

    `sample_ratio` of ordinary new traces is kept. Nothing global is set. Raises `ValueError` for
    an endpoint that is no HTTP URL or a ratio outside 0..1.
    """
    if not 0.0 <= sample_ratio <= 1.0:
        raise ValueError(f"sample_ratio must lie between 0 and 1, not {sample_ratio}")
    if endpoint is None:
        return Tracing()
    # Imported here: a process that traces nothing does not load the SDK and its HTTP client.
    from monitors.spans import Collector

    return Tracing(TraceQueue(Collector(endpoint, service)), sample_ratio)
