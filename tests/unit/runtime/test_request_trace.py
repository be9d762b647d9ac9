"""One trace per request: the stages as children, the first outputs as events."""

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from monitors.contract import Level
from monitors.labels import Milestone, Outcome
from monitors.tracing import Tracing
from runtime.book import Stamp
from runtime.residents.port import Finished
from runtime.traces import RequestTrace

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
END = Finished(
    request_id="r", text_reason="stop", speech_reason=None, prompt_tokens=5, cached_tokens=3,
    completion_tokens=2, codec_frames=0, samples=0, av_offset_ms=None, residency=(),
    queue_s=0.1, encode_s=0.2, prefill_s=0.3, decode_s=0.4,
)  # fmt: skip


def test_a_request_is_one_trace_of_its_caller_with_the_engines_stages_in_order() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    now = [100.0]
    trace = RequestTrace(
        Tracing(provider.get_tracer("t")), {"traceparent": CALLER}, {}, wall=lambda: now[0]
    )
    now[0] = 100.5
    trace.decoded()
    trace.departed(Stamp("a", "v2", "s", "r", 1, 4, Level()))
    trace.first(Milestone.FIRST_TOKEN, 0.6)
    trace.finished(END)
    trace.end(Outcome.OK)

    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert list(spans) == ["decode media", "queue", "encode", "prefill", "decode", "chat"]
    chat = spans["chat"]
    assert trace.trace_id == f"{chat.context.trace_id:032x}" == CALLER.split("-")[1]
    assert (trace.traceparent or "").startswith(f"00-{trace.trace_id}-")
    assert chat.attributes is not None
    assert chat.attributes["redline.version"] == "v2"
    assert chat.attributes["redline.route_epoch"] == 4
    assert chat.attributes["redline.outcome"] == "ok"
    assert chat.attributes["gen_ai.usage.cache_read.input_tokens"] == 3
    assert [event.name for event in chat.events] == ["first_token"]
    children = [spans[name] for name in ("queue", "encode", "prefill", "decode")]
    assert [round((c.end_time or 0) / 1e9, 3) for c in children] == [100.6, 100.8, 101.1, 101.5]
    assert all(c.parent is not None for c in children)
