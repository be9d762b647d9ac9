"""Whose trace a request is part of, and what of it reaches an OTLP receiver."""

import logging
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, http_attributes, url_attributes
from opentelemetry.trace import SpanContext

from monitors import tracing
from monitors.labels import Outcome
from monitors.requests import Told
from monitors.span_names import Attribute
from monitors.spans import Renderer
from monitors.trace_queue import Content, Trace
from monitors.tracing import TraceContext, Tracing
from tests.support.otlp import Receiver, attributes, receiving
from tests.support.records import CUT, LATE, LEG_SPAN, TOKEN, a_leg, a_record

ROOT = Path(__file__).parents[3]
CALLER_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER_SPAN = "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{CALLER_TRACE}-{CALLER_SPAN}-01"}
NOT_SAMPLED = {"traceparent": f"00-{CALLER_TRACE}-{CALLER_SPAN}-00"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


def begin(tracer: Tracing, headers: dict[str, str] | None = None) -> TraceContext:
    context = tracer.begin(headers or {})
    assert context is not None
    return context


# ---------------------------------------------------------------- what arrives
def test_a_kept_request_is_one_trace_under_its_caller_with_its_parts_at_their_times(
    receiver: Receiver,
) -> None:
    tracer = tracing.configure(receiver.url, "redline-gateway")
    context = begin(tracer, SAMPLED)
    tracer.keep(context, a_record(TOKEN, LATE, CUT), None)
    tracer.shutdown()

    spans = {span.name: span for span in receiver.spans()}
    assert set(spans) == {
        "chat redline", "decode media", "generate b", "prefill", "decode", "talker",
    }  # fmt: skip
    chat, leg = spans["chat redline"], spans["generate b"]
    assert {span.trace_id.hex() for span in spans.values()} == {CALLER_TRACE}
    assert (chat.parent_span_id.hex(), chat.span_id.hex()) == (CALLER_SPAN, context.span_id)
    assert spans["decode media"].parent_span_id == leg.parent_span_id == chat.span_id
    assert leg.span_id.hex() == LEG_SPAN
    assert {spans[s].parent_span_id for s in ("prefill", "decode", "talker")} == {leg.span_id}
    assert (chat.kind, leg.kind) == (Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT)
    # Thinker and Talker overlap, and the spans say so.
    decode, talker = spans["decode"], spans["talker"]
    assert decode.start_time_unix_nano < talker.start_time_unix_nano < decode.end_time_unix_nano
    assert talker.end_time_unix_nano - talker.start_time_unix_nano == pytest.approx(2e8, abs=1e3)
    assert receiver.services() == {"redline-gateway"}


def test_the_requests_span_carries_what_the_conventions_name(receiver: Receiver) -> None:
    tracer = tracing.configure(receiver.url, "redline")
    tracer.keep(begin(tracer), a_record(TOKEN), None)
    tracer.shutdown()
    chat = next(span for span in receiver.spans() if span.kind == Span.SPAN_KIND_SERVER)
    given = attributes(chat)
    assert {name: value for name, value in given.items() if not name.startswith("redline.")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "redline",
        "gen_ai.conversation.id": "s1",
        "gen_ai.request.model": "redline",
        "gen_ai.request.max_tokens": 64,
        "gen_ai.request.stream": True,
        "gen_ai.output.type": "speech",
        "gen_ai.response.id": "chatcmpl-r1",
        "gen_ai.response.model": "v1",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.response.time_to_first_chunk": 0.1,
        "gen_ai.usage.input_tokens": 146,
        "gen_ai.usage.output_tokens": 12,
        "gen_ai.usage.cache_read.input_tokens": 96,
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
    }
    assert given["redline.kept"] == ["sampled"]
    assert chat.status.code == Status.STATUS_CODE_UNSET


def test_first_outputs_lines_and_faults_are_events_with_the_evidence(receiver: Receiver) -> None:
    tracer = tracing.configure(receiver.url, "redline")
    tracer.keep(begin(tracer), a_record(TOKEN, LATE, CUT), None)
    tracer.shutdown()
    chat = next(span for span in receiver.spans() if span.kind == Span.SPAN_KIND_SERVER)
    events = {event.name: attributes(event) for event in chat.events}
    assert events["first_token"] == {"redline.seconds": 0.1}
    assert events["line crossed"] == {
        "redline.milestone": "first_audio_packet", "redline.line_s": 0.25,
    }  # fmt: skip
    assert events["fault"] == {
        "redline.fault": "speech_truncated",
        "redline.fault.grade": "hard",
        "redline.fault.origin": "output",
        "redline.fault.detector": "speech",
        "redline.fault.rule": "samples_lost",
        "redline.fault.detail": "480 samples never came",
        "redline.fault.at_ms": 1230.0,
        "redline.fault.value": 480.0,
        "redline.fault.limit": 0.0,
        "redline.fault.unit": "samples",
    }


@pytest.mark.parametrize(
    ("outcome", "told", "status"),
    [
        (Outcome.LOST, Told(at_s=0.2, status=503, code="resident_lost"), Status.STATUS_CODE_ERROR),
        (Outcome.FAILED, Told(at_s=0.2, status=200, code="engine_error"), Status.STATUS_CODE_ERROR),
        (Outcome.REFUSED, Told(at_s=0.2, status=400, code="bad"), Status.STATUS_CODE_UNSET),
        (Outcome.CANCELLED, Told(at_s=0.2, status=None), Status.STATUS_CODE_UNSET),
    ],
)
def test_a_span_is_in_error_for_what_the_server_did_and_not_for_its_client(
    receiver: Receiver, outcome: Outcome, told: Told, status: int
) -> None:
    tracer = tracing.configure(receiver.url, "redline")
    tracer.keep(begin(tracer), a_record(outcome=outcome, told=told, usage=None), None)
    tracer.shutdown()
    chat = next(span for span in receiver.spans() if span.kind == Span.SPAN_KIND_SERVER)
    assert chat.status.code == status
    assert attributes(chat).get("error.type") == told.code
    assert attributes(chat).get("http.response.status_code") == told.status


def test_a_cut_over_shows_both_legs_and_the_moment(receiver: Receiver) -> None:
    first = a_leg(
        resident="a", version="v2", stages=(), span_id="cc" * 8, departed_s=0.1, left_s=0.2
    )
    second = a_leg(boarded_s=0.2, departed_s=0.2)
    tracer = tracing.configure(receiver.url, "redline")
    tracer.keep(begin(tracer), a_record(legs=(first, second)), None)
    tracer.shutdown()
    spans = {span.name: span for span in receiver.spans()}
    assert {"generate a", "generate b"} <= set(spans)
    (event,) = [e for e in spans["chat redline"].events if e.name == "cut over"]
    assert attributes(event) == {"redline.resident": "b", "redline.resident.left": "a"}


def test_content_is_on_the_span_only_when_it_is_given(receiver: Receiver) -> None:
    tracer = tracing.configure(receiver.url, "redline")
    tracer.keep(begin(tracer), a_record(), Content("[in]", "[out]"))
    tracer.keep(begin(tracer), a_record(), None)
    tracer.shutdown()
    said, silent = [
        attributes(span) for span in receiver.spans() if span.kind == Span.SPAN_KIND_SERVER
    ]
    assert (said["gen_ai.input.messages"], said["gen_ai.output.messages"]) == ("[in]", "[out]")
    assert not {"gen_ai.input.messages", "gen_ai.output.messages"} & silent.keys()


def test_a_trace_that_cannot_be_made_leaves_nothing_in_the_next_one() -> None:
    renderer, own = Renderer("t"), SpanContext(1, 2, is_remote=False)
    with pytest.raises(ValueError, match="no hex"):
        renderer.spans(Trace(own, None, a_record(legs=(a_leg(span_id="no hex"),)), None))
    good = Trace(own, None, a_record(), None)
    assert len(renderer.spans(good)) == good.spans


def test_an_endpoint_with_a_path_is_used_as_it_is(receiver: Receiver) -> None:
    tracer = tracing.configure(f"{receiver.url}/v1/traces", "redline")
    tracer.keep(begin(tracer), a_record(), None)
    tracer.shutdown()
    assert receiver.spans()


# ---------------------------------------------------------------- whose trace
def test_requests_without_a_caller_get_traces_of_their_own(receiver: Receiver) -> None:
    tracer = tracing.configure(receiver.url, "redline")
    begun = [begin(tracer) for _ in range(3)]
    tracer.shutdown()
    assert len({context.trace_id for context in begun}) == 3
    assert all(context.parent is None for context in begun)


def test_the_share_counts_for_new_traces_and_a_callers_decision_stands(receiver: Receiver) -> None:
    for ratio, kept in ((0.0, 0), (1.0, 400)):
        tracer = tracing.configure(receiver.url, "redline", ratio)
        assert sum(begin(tracer).sampled for _ in range(400)) == kept
        assert begin(tracer, SAMPLED).sampled
        assert not begin(tracer, NOT_SAMPLED).sampled
        tracer.shutdown()
    half = tracing.configure(receiver.url, "redline", 0.5)
    assert 100 < sum(begin(half).sampled for _ in range(400)) < 300
    half.shutdown()


def test_another_process_gets_our_span_as_parent_and_the_decision(receiver: Receiver) -> None:
    tracer = tracing.configure(receiver.url, "gateway", 0.0)
    for headers, flag in ((SAMPLED, "01"), (NOT_SAMPLED, "00")):
        context = begin(tracer, {**headers, "tracestate": "vendor=1"})
        assert context.onward(LEG_SPAN) == {
            "traceparent": f"00-{CALLER_TRACE}-{LEG_SPAN}-{flag}",
            "tracestate": "vendor=1",
        }
        engine = begin(tracer, context.onward(LEG_SPAN))
        assert engine.trace_id == CALLER_TRACE
        assert engine.parent is not None
        assert f"{engine.parent.span_id:016x}" == LEG_SPAN
    assert begin(tracer).onward(LEG_SPAN)["traceparent"].endswith(f"-{LEG_SPAN}-00")
    tracer.shutdown()


def test_off_still_hands_on_a_callers_trace_and_sends_nothing() -> None:
    tracer = tracing.configure(None, "redline")
    assert tracer.begin({}) is None
    context = begin(tracer, SAMPLED)
    assert context.onward(LEG_SPAN) == SAMPLED
    assert (context.trace_id, context.sampled, context.ours) == (CALLER_TRACE, True, False)
    tracer.keep(context, a_record(), None)
    tracer.shutdown()
    assert tracer.dropped_spans == 0


def test_off_loads_neither_sdk_nor_http_client() -> None:
    program = (
        "import sys; from monitors import tracing; tracing.configure(None, 'x').begin({});"
        "print([m for m in ('opentelemetry.sdk.trace', 'requests') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, timeout=60
    )
    assert done.stdout.strip() == b"[]"


@pytest.mark.parametrize("value", ["00-zz-zz-01", "", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_broken_traceparent_starts_a_new_trace(receiver: Receiver, value: str) -> None:
    assert tracing.configure(None, "redline").begin({"traceparent": value}) is None
    tracer = tracing.configure(receiver.url, "redline")
    assert begin(tracer, {"traceparent": value}).parent is None
    tracer.shutdown()


# ---------------------------------------------------------------- a collector in trouble
@contextmanager
def refusing() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@contextmanager
def silent() -> Iterator[str]:
    """A listener that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("endpoint", [refusing, silent])
def test_a_dead_collector_costs_no_time_and_its_losses_are_counted(
    endpoint: "type[refusing] | type[silent]", caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "opentelemetry")
    record = a_record(TOKEN)
    with endpoint() as url:
        tracer = tracing.configure(url, "redline")
        began = time.monotonic()
        for _ in range(4_000):  # many times what the queue holds
            tracer.keep(begin(tracer), record, None)
        assert time.monotonic() - began < 10.0  # one blocking export each would take hours
        assert tracer.dropped_spans > 10_000
        began = time.monotonic()
        tracer.shutdown(timeout_s=0.1)
        assert time.monotonic() - began < 5.0
        tracer.shutdown(timeout_s=0.1)  # again: does nothing


@pytest.mark.parametrize("endpoint", ["", "tempo:4318", "grpc://tempo:4317", "http://"])
def test_an_endpoint_that_is_no_http_url_stops_the_start(endpoint: str) -> None:
    with pytest.raises(ValueError, match="give an HTTP URL"):
        tracing.configure(endpoint, "redline")


def test_an_impossible_sample_ratio_stops_the_start() -> None:
    with pytest.raises(ValueError, match="sample_ratio"):
        tracing.configure("http://127.0.0.1:4318", "redline", sample_ratio=1.5)


def test_names_are_those_of_the_conventions_where_they_have_one() -> None:
    convention = {
        value
        for module in (gen_ai_attributes, http_attributes, url_attributes, error_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    ours = {name.value for name in Attribute if not name.startswith("redline.")}
    assert len(ours) > 15
    assert ours <= convention
