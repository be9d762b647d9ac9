"""One trace per request, sent as OTLP over HTTP when there is a collector; else nothing at all.

A collector that is slow, dead or gone costs a request nothing: spans wait in a bounded queue on
a thread of their own, and the oldest are dropped when it is full.
"""

import threading
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.trace import NoOpTracer, Span, SpanKind, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

QUEUE_SPANS = 2_048
BATCH_SPANS = 256
FLUSH_EVERY_S = 1.0
EXPORT_TIMEOUT_S = 2.0

Value = str | bool | int | float


class Attribute(StrEnum):
    """Span attributes: OpenTelemetry's GenAI convention where it has a name, else `redline.`."""

    OPERATION = "gen_ai.operation.name"
    CONVERSATION = "gen_ai.conversation.id"
    REQUEST_MODEL = "gen_ai.request.model"
    REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
    RESPONSE_MODEL = "gen_ai.response.model"
    RESPONSE_ID = "gen_ai.response.id"
    FINISH_REASONS = "gen_ai.response.finish_reasons"
    TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
    OUTPUT_TYPE = "gen_ai.output.type"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
    RESIDENT = "redline.resident"
    VERSION = "redline.version"
    ROUTE_EPOCH = "redline.route_epoch"
    POOL_EPOCH = "redline.pool_epoch"
    OUTCOME = "redline.outcome"


class _Stoppable(Protocol):
    def shutdown(self) -> None: ...


class Tracing:
    """Starts spans and carries their W3C context over process borders. Get one by `configure`."""

    def __init__(self, tracer: Tracer, *, stops: tuple[_Stoppable, ...] = ()) -> None:
        self._tracer = tracer
        self._stops = stops  # the provider, then the exporter
        self._w3c = TraceContextTextMapPropagator()

    def start(
        self,
        name: str,
        parent: Span | Context | None = None,
        *,
        attributes: Mapping[str, Value] | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        at_wall: float | None = None,
    ) -> Span:
        """A span that the caller ends. `at_wall`: when it began, calendar seconds; None: now."""
        return self._tracer.start_span(
            name,
            context=set_span_in_context(parent)
            if isinstance(parent, Span)
            else parent or Context(),
            kind=kind,
            attributes=attributes,
            start_time=None if at_wall is None else _nanoseconds(at_wall),
        )

    def record(
        self,
        name: str,
        parent: Span,
        start_wall: float,
        end_wall: float,
        attributes: Mapping[str, Value] | None = None,
    ) -> None:
        """A span that is over already, between two calendar times (an engine's stage, say)."""
        span = self.start(name, parent, attributes=attributes, at_wall=start_wall)
        span.end(_nanoseconds(end_wall))

    def extract(self, headers: Mapping[str, str]) -> Context:
        """The caller's trace from `traceparent` and `tracestate` (lower-case header names)."""
        return self._w3c.extract(headers, context=Context())

    def inject(self, span: Span) -> dict[str, str]:
        """The headers that make `span` the parent in another process; none for a no-op span."""
        headers: dict[str, str] = {}
        self._w3c.inject(headers, context=set_span_in_context(span, Context()))
        return headers

    def shutdown(self, timeout_s: float = 2.0) -> None:
        """Send what is queued, for at most `timeout_s`; what is left then is dropped."""
        if not self._stops:
            return
        provider, exporter = self._stops
        flush = threading.Thread(target=provider.shutdown, name="trace-flush", daemon=True)
        flush.start()
        flush.join(timeout_s)
        if flush.is_alive():
            exporter.shutdown()  # its retries end here, a hanging export at its own timeout
        self._stops = ()


def configure(endpoint: str | None, service: str, sample_ratio: float = 1.0) -> Tracing:
    """Tracing to the OTLP collector at `endpoint` (`http://host:4318`); None turns it off.

    `sample_ratio` of new traces is kept; a caller's own decision is respected. Nothing global is
    set. Raises `ValueError` for an endpoint that is no HTTP URL or a ratio outside 0..1.
    """
    if endpoint is None:
        return Tracing(NoOpTracer())
    if not 0.0 <= sample_ratio <= 1.0:
        raise ValueError(f"sample_ratio must lie between 0 and 1, not {sample_ratio}")
    provider, exporter = _pipeline(_traces_url(endpoint), service, sample_ratio)
    return Tracing(provider.get_tracer("redline"), stops=(provider, exporter))


def trace_id(span: Span) -> str | None:
    """32 hex digits for logs and exemplars; None for a span that leads nowhere."""
    context = span.get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else None


def span_id(span: Span) -> str | None:
    """16 hex digits for logs; None for a span that leads nowhere."""
    context = span.get_span_context()
    return f"{context.span_id:016x}" if context.is_valid else None


def _pipeline(url: str, service: str, sample_ratio: float) -> "tuple[TracerProvider, _Stoppable]":
    # Imported here: a process that traces nothing does not load the SDK and its HTTP client.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

    exporter = OTLPSpanExporter(endpoint=url, timeout=EXPORT_TIMEOUT_S)
    provider = TracerProvider(
        sampler=ParentBasedTraceIdRatio(sample_ratio),
        resource=Resource.create({SERVICE_NAME: service}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(
        BatchSpanProcessor(
            exporter,
            max_queue_size=QUEUE_SPANS,
            max_export_batch_size=BATCH_SPANS,
            schedule_delay_millis=FLUSH_EVERY_S * 1_000,
        )
    )
    return provider, exporter


def _traces_url(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"trace endpoint {endpoint!r}: give an HTTP URL like http://tempo:4318")
    return endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}/v1/traces"


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
