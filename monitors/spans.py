"""Finished requests as OpenTelemetry spans, sent as OTLP over HTTP.

Made on the sender's thread and for kept traces only: the request itself pays for none of it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    set_span_in_context,
)

from monitors.contract import FaultFound, LineCrossed, MediaRung, MilestoneReached
from monitors.labels import Milestone, Outcome
from monitors.requests import Leg, Noted, RequestRecord, StageTime
from monitors.rungs import shown
from monitors.span_names import ROUTE, Attribute, EventName
from monitors.trace_queue import Trace
from monitors.tracing import new_span_id

EXPORT_TIMEOUT_S = 2.0
OPERATION = "chat"

Value = str | bool | int | float | Sequence[str]


class Collector:
    """A `trace_queue.Sink`: the OTLP collector at `endpoint`. For one thread.

    Raises `ValueError` for an endpoint that is no HTTP URL.
    """

    def __init__(self, endpoint: str, service: str) -> None:
        self._exporter = OTLPSpanExporter(endpoint=_traces_url(endpoint), timeout=EXPORT_TIMEOUT_S)
        self._renderer = Renderer(service)
        self._closed = False

    def send(self, traces: Sequence[Trace]) -> bool:
        """Whether the collector took them."""
        spans: list[ReadableSpan] = []
        for trace in traces:
            spans += self._renderer.spans(trace)
            time.sleep(0)  # whoever serves requests has the interpreter first
        return self._exporter.export(spans) is SpanExportResult.SUCCESS

    def close(self) -> None:
        """End a call's retries, and take no more."""
        if not self._closed:
            self._closed = True
            self._exporter.shutdown()


class Renderer:
    """Makes spans of records, under the ids that were given out while the request ran."""

    def __init__(self, service: str) -> None:
        self._ids = _GivenIds()
        self._made = _Made()
        provider = TracerProvider(
            sampler=ALWAYS_ON,  # it was decided before
            resource=Resource.create({SERVICE_NAME: service}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        provider.add_span_processor(self._made)
        self._tracer = provider.get_tracer("redline")

    def spans(self, trace: Trace) -> list[ReadableSpan]:
        """The request's span last, those of its parts before it."""
        self._made.take()  # what is left of one that could not be made to its end
        record, start = trace.record, trace.record.received
        root = self._start(_name(record), trace, start)
        for stage in record.stages:
            self._stage(stage, root, start)
        for leg in record.legs:
            self._leg(leg, root, record)
        root.set_attributes(dict(_request_attributes(trace)))
        for noted in record.noted():
            self._event(root, noted, start)
        _add_cut_overs(root, record)
        if _is_error(record):
            root.set_status(StatusCode.ERROR)
        root.end(_ns(start + (record.ended_s or 0.0)))
        return self._made.take()

    def _start(self, name: str, trace: Trace, at: float) -> Span:
        self._ids.give(trace.own)
        return self._tracer.start_span(
            name, context=_under(trace.parent), kind=SpanKind.SERVER, start_time=_ns(at)
        )

    def _stage(self, stage: StageTime, parent: Span, start: float) -> None:
        busy = {Attribute.BUSY: None if stage.busy_s is None else round(stage.busy_s, 6)}
        self._ids.give(None)
        span = self._tracer.start_span(
            stage.stage.replace("_", " "),
            context=_under(parent.get_span_context()),
            attributes=dict(_known(busy)),
            start_time=_ns(start + stage.began_s),
        )
        span.end(_ns(start + stage.ended_s))

    def _leg(self, leg: Leg, root: Span, record: RequestRecord) -> None:
        """What was asked of one resident: the call that its own spans, if it has any, are under."""
        if leg.departed_s is None:
            return
        own = root.get_span_context()
        self._ids.give(SpanContext(own.trace_id, int(leg.span_id, 16), is_remote=False))
        span = self._tracer.start_span(
            f"generate {leg.resident}",
            context=_under(own),
            kind=SpanKind.CLIENT,
            attributes=dict(_leg_attributes(leg)),
            start_time=_ns(record.received + leg.departed_s),
        )
        for stage in leg.stages:
            self._stage(stage, span, record.received)
        left = record.ended_s if leg.left_s is None else leg.left_s
        span.end(_ns(record.received + (left or leg.departed_s)))

    def _event(self, span: Span, noted: Noted, start: float) -> None:
        made = event_of(noted)
        if made is not None:
            name, attributes = made
            span.add_event(name, attributes, timestamp=_ns(start + noted.at_s))


def event_of(noted: Noted) -> tuple[str, dict[str, Value]] | None:
    """A span event's name and attributes; None for what is an attribute or a span of its own."""
    match noted.body:
        case MilestoneReached() as body:
            return body.milestone, {Attribute.SECONDS: body.seconds}
        case LineCrossed() as body:
            return EventName.LINE, {
                Attribute.MILESTONE: body.milestone,
                Attribute.LINE: body.line_s,
            }
        case FaultFound() as body:
            return EventName.FAULT, _fault_attributes(body)
        case _:
            return None


def _fault_attributes(found: FaultFound) -> dict[str, Value]:
    return dict(
        _known(
            {
                Attribute.FAULT: found.fault,
                Attribute.GRADE: found.grade,
                Attribute.ORIGIN: found.origin,
                Attribute.DETECTOR: found.detector,
                Attribute.RULE: found.rule,
                Attribute.DETAIL: found.detail,
                Attribute.AT_MS: found.at_ms,
                Attribute.VALUE: found.value,
                Attribute.LIMIT: found.limit,
                Attribute.UNIT: found.unit or None,
            }
        )
    )


def _request_attributes(trace: Trace) -> Iterator[tuple[str, Value]]:
    record = trace.record
    yield Attribute.OPERATION, OPERATION
    yield Attribute.PROVIDER, "redline"
    yield Attribute.REQUEST_ID, record.request_id
    yield Attribute.RESPONSE_ID, f"chatcmpl-{record.request_id}"
    yield Attribute.HTTP_METHOD, "POST"
    yield Attribute.HTTP_ROUTE, ROUTE
    yield Attribute.URL_PATH, ROUTE
    yield Attribute.URL_SCHEME, "http"
    yield Attribute.LEGS, len(record.legs)
    yield Attribute.OPERATOR, record.operator
    if record.trace is not None:
        yield Attribute.KEPT, [str(reason) for reason in record.trace.keep or ()]
    yield from _known(
        {
            Attribute.CONVERSATION: record.session,
            Attribute.MEDIA: _named(record.media),
            Attribute.OUTCOME: record.outcome,
            Attribute.TIME_TO_FIRST_CHUNK: _first_token(record),
        }
    )
    if record.asked is not None:
        yield Attribute.REQUEST_MODEL, record.asked.model
        yield Attribute.REQUEST_MAX_TOKENS, record.asked.max_tokens
        yield Attribute.REQUEST_STREAM, record.asked.stream
        yield Attribute.OUTPUT_TYPE, "speech" if record.asked.speech else "text"
        yield Attribute.ASKED_MEDIA, record.asked.media.name.lower()
    if record.legs:
        yield Attribute.RESPONSE_MODEL, record.legs[-1].version
        yield Attribute.RESIDENT, record.legs[-1].resident
        yield Attribute.VERSION, record.legs[-1].version
    yield from _ending(record)
    if trace.content is not None:
        yield Attribute.INPUT_MESSAGES, trace.content.input_messages
        yield Attribute.OUTPUT_MESSAGES, trace.content.output_messages


def _ending(record: RequestRecord) -> Iterator[tuple[str, Value]]:
    if record.usage is not None:
        yield Attribute.INPUT_TOKENS, record.usage.prompt_tokens
        yield Attribute.OUTPUT_TOKENS, record.usage.completion_tokens
        yield Attribute.CACHED_TOKENS, record.usage.cached_tokens
        yield Attribute.FINISH_REASONS, [record.usage.text_reason]
    if record.told is not None:
        yield from _known(
            {Attribute.HTTP_STATUS: record.told.status, Attribute.ERROR: record.told.code}
        )


def _leg_attributes(leg: Leg) -> Iterator[tuple[str, Value]]:
    yield Attribute.RESIDENT, leg.resident
    yield Attribute.VERSION, leg.version
    yield Attribute.ROUTE_EPOCH, leg.route_epoch
    yield Attribute.LEVEL, shown(leg.level)
    yield from _known(
        {
            Attribute.POOL_EPOCH: leg.pool_epoch,
            Attribute.KV: None if leg.kv is None else leg.kv.name.lower(),
        }
    )


def _add_cut_overs(root: Span, record: RequestRecord) -> None:
    """Each time it went on to another resident."""
    for left, taken in zip(record.legs, record.legs[1:], strict=False):
        root.add_event(
            EventName.CUT_OVER,
            {Attribute.RESIDENT: taken.resident, Attribute.RESIDENT_LEFT: left.resident},
            timestamp=_ns(record.received + taken.boarded_s),
        )


def _is_error(record: RequestRecord) -> bool:
    """By the HTTP convention a server's span is in error for its own failures, not a client's."""
    failed = record.outcome in (Outcome.FAILED, Outcome.LOST)
    status = None if record.told is None else record.told.status
    return failed or (status is not None and status >= 500)


def _first_token(record: RequestRecord) -> float | None:
    for noted in record.noted():
        body = noted.body
        if isinstance(body, MilestoneReached) and body.milestone is Milestone.FIRST_TOKEN:
            return body.seconds
    return None


def _name(record: RequestRecord) -> str:
    """Operation and model, by the convention; a request that could not be read names no model."""
    return OPERATION if record.asked is None else f"{OPERATION} {record.asked.model}"


def _named(rung: MediaRung | None) -> str | None:
    return None if rung is None else rung.name.lower()


def _known(given: Mapping[Attribute, Value | None]) -> Iterator[tuple[str, Value]]:
    """Those that are known: an unknown value is no attribute."""
    for name, value in given.items():
        if value is not None:
            yield name, value


def _under(parent: SpanContext | None) -> Context:
    if parent is None:
        return Context()
    return set_span_in_context(NonRecordingSpan(parent), Context())


def _traces_url(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"trace endpoint {endpoint!r}: give an HTTP URL like http://tempo:4318")
    return endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}/v1/traces"


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


class _GivenIds(IdGenerator):
    """Gives out the ids it was told to; new ones where it was told none."""

    def __init__(self) -> None:
        self._next: SpanContext | None = None

    def give(self, context: SpanContext | None) -> None:
        """What the next span is to be called."""
        self._next = context

    def generate_trace_id(self) -> int:
        assert self._next is not None, "only a request's own span begins a trace"
        return self._next.trace_id

    def generate_span_id(self) -> int:
        return int(new_span_id(), 16) if self._next is None else self._next.span_id


class _Made(SpanProcessor):
    """Holds the spans of one trace until they are taken."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)

    def take(self) -> list[ReadableSpan]:
        taken, self._spans = self._spans, []
        return taken
