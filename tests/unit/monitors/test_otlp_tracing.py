"""One trace per request reaches an OTLP receiver; a dead one costs requests nothing."""

import logging
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind

from monitors import tracing
from monitors.tracing import Attribute
from tests.support.otlp import Receiver, attributes, receiving

ROOT = Path(__file__).parents[3]
CALLER_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER_SPAN = "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{CALLER_TRACE}-{CALLER_SPAN}-01"}
NOT_SAMPLED = {"traceparent": f"00-{CALLER_TRACE}-{CALLER_SPAN}-00"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


# ---------------------------------------------------------------- with a receiver
def test_a_request_is_one_trace_of_spans_under_its_callers(receiver: Receiver) -> None:
    tracer = tracing.configure(receiver.url, "redline-gateway")
    request = tracer.start(
        "chat",
        tracer.extract(SAMPLED),
        kind=SpanKind.SERVER,
        attributes={Attribute.OPERATION: "chat", Attribute.INPUT_TOKENS: 146},
    )
    tracer.record("prefill", request, 1_700_000_000.5, 1_700_000_000.75)
    decode = tracer.start("decode", request)
    decode.end()
    request.set_attribute(Attribute.TIME_TO_FIRST_CHUNK, 0.25)
    request.end()
    tracer.shutdown()

    spans = {span.name: span for span in receiver.spans()}
    assert set(spans) == {"chat", "prefill", "decode"}
    assert {span.trace_id.hex() for span in spans.values()} == {CALLER_TRACE}
    assert spans["chat"].parent_span_id.hex() == CALLER_SPAN
    assert spans["prefill"].parent_span_id == spans["chat"].span_id
    assert spans["decode"].parent_span_id == spans["chat"].span_id
    prefill = spans["prefill"]
    took_ns = prefill.end_time_unix_nano - prefill.start_time_unix_nano
    assert took_ns == pytest.approx(250_000_000, abs=1_000)
    assert attributes(spans["chat"]) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": 146,
        "gen_ai.response.time_to_first_chunk": 0.25,
    }
    assert receiver.services() == {"redline-gateway"}


def test_requests_without_a_caller_get_traces_of_their_own(receiver: Receiver) -> None:
    tracer = tracing.configure(receiver.url, "redline")
    ids: list[str | None] = []
    for _ in range(3):
        span = tracer.start("chat", tracer.extract({}))
        ids.append(tracing.trace_id(span))
        span.end()
    tracer.shutdown()
    assert len(set(ids)) == 3
    assert {span.trace_id.hex() for span in receiver.spans()} == set(ids)
    assert all(not span.parent_span_id for span in receiver.spans())


def test_the_context_crosses_to_another_process_as_w3c_headers(receiver: Receiver) -> None:
    gateway = tracing.configure(receiver.url, "gateway")
    engine = tracing.configure(receiver.url, "engine")
    request = gateway.start("chat")
    headers = gateway.inject(request)
    assert headers.keys() == {"traceparent"}
    assert headers["traceparent"].startswith(
        f"00-{tracing.trace_id(request)}-{tracing.span_id(request)}-"
    )
    step = engine.start("generate", engine.extract(headers))
    assert tracing.trace_id(step) == tracing.trace_id(request)
    step.end()
    request.end()
    gateway.shutdown()
    engine.shutdown()
    sent = {span.name: span for span in receiver.spans()}
    assert sent["generate"].parent_span_id == sent["chat"].span_id


def test_the_sample_ratio_counts_for_new_traces_and_a_callers_decision_stands(
    receiver: Receiver,
) -> None:
    none = tracing.configure(receiver.url, "redline", sample_ratio=0.0)
    none.start("new").end()
    none.start("asked for", none.extract(SAMPLED)).end()
    none.shutdown()
    every = tracing.configure(receiver.url, "redline", sample_ratio=1.0)
    every.start("declined", every.extract(NOT_SAMPLED)).end()
    every.shutdown()
    assert [span.name for span in receiver.spans()] == ["asked for"]


def test_an_endpoint_with_a_path_is_used_as_it_is(receiver: Receiver) -> None:
    tracer = tracing.configure(f"{receiver.url}/v1/traces", "redline")
    tracer.start("chat").end()
    tracer.shutdown()
    assert [span.name for span in receiver.spans()] == ["chat"]


# ---------------------------------------------------------------- without one
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
def test_a_dead_collector_neither_slows_nor_fails_requests(
    endpoint: "type[refusing] | type[silent]", caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "opentelemetry")
    with endpoint() as url:
        tracer = tracing.configure(url, "redline")
        began = time.monotonic()
        for _ in range(tracing.QUEUE_SPANS * 2):  # twice what the queue holds: half is dropped
            tracer.start("chat", attributes={Attribute.OPERATION: "chat"}).end()
        assert time.monotonic() - began < 10.0  # one blocking export each would take hours
        began = time.monotonic()
        tracer.shutdown(timeout_s=0.1)
        assert time.monotonic() - began < 5.0
        tracer.shutdown()  # again: does nothing


def test_off_is_a_no_op_that_still_hands_on_a_callers_trace() -> None:
    tracer = tracing.configure(None, "redline")
    span = tracer.start("chat")
    assert not span.is_recording()
    assert tracing.trace_id(span) is tracing.span_id(span) is None
    assert tracer.inject(span) == {}
    tracer.record("prefill", span, 1.0, 2.0)
    span.end()
    assert tracer.inject(tracer.start("chat", tracer.extract(SAMPLED))) == SAMPLED
    tracer.shutdown()


def test_off_loads_neither_sdk_nor_http_client() -> None:
    program = (
        "import sys; from monitors import tracing; tracing.configure(None, 'x').start('y').end();"
        "print([m for m in ('opentelemetry.sdk.trace', 'requests') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, timeout=60
    )
    assert done.stdout.strip() == b"[]"


def test_a_broken_traceparent_starts_a_new_trace() -> None:
    tracer = tracing.configure(None, "redline")
    span = tracer.start("chat", tracer.extract({"traceparent": "00-zz-zz-01"}))
    assert tracing.trace_id(span) is None


@pytest.mark.parametrize("endpoint", ["", "tempo:4318", "grpc://tempo:4317", "http://"])
def test_an_endpoint_that_is_no_http_url_stops_the_start(endpoint: str) -> None:
    with pytest.raises(ValueError, match="give an HTTP URL"):
        tracing.configure(endpoint, "redline")


def test_an_impossible_sample_ratio_stops_the_start() -> None:
    with pytest.raises(ValueError, match="sample_ratio"):
        tracing.configure("http://127.0.0.1:4318", "redline", sample_ratio=1.5)


def test_genai_names_are_those_of_the_convention() -> None:
    convention = {
        value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")
    }
    ours = {name.value for name in Attribute if name.startswith("gen_ai.")}
    assert ours
    assert ours <= convention
