"""What remembering and tracing a request costs, and where: on the event loop, or beside it.

A request here is a spoken answer about a clip: nine stages, three first outputs, a line crossed,
two residency samples, and its line in the log, in the form and at the level of a gateway that
serves. Times are processor time of the thread that does the work.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import set_span_in_context

from bench.board import Direction, Figure, options, show
from bench.timing import Seconds, interleave, ratio
from monitors import logs
from monitors.contract import (
    KvRung,
    Level,
    LineCrossed,
    MediaRung,
    MilestoneReached,
    RequestFinished,
    ResidencySampled,
)
from monitors.labels import Milestone, Modality, Outcome, Stage
from monitors.requests import SERVED, TURNED_AWAY, Asked
from monitors.spans import Renderer
from monitors.trace_queue import Trace, TraceQueue
from monitors.tracing import Tracing
from runtime.requests import Requests
from runtime.residents.port import EngineStage, Finished
from runtime.stamp import Stamp

REQUESTS = 100  # of one round
STEP_US = 10_000.0  # a decode step of 10 ms, the measure of what recording may cost
SHARE = 0.01
ENGINE = (Stage.QUEUE, Stage.ENCODE, Stage.PREFILL, Stage.DECODE, Stage.TALKER, Stage.VOCODER)
FINISHED = Finished(
    request_id="r", text_reason="stop", speech_reason="stop", prompt_tokens=146,
    cached_tokens=96, completion_tokens=12, codec_frames=24, samples=11_520, av_offset_ms=0.0,
    residency=(),
    stages=tuple(EngineStage(stage=s, began=1.0, ended=2.0, busy_s=0.5) for s in ENGINE),
)  # fmt: skip
FOUND = (
    *(MilestoneReached(milestone=m, seconds=0.2) for m in Milestone),
    LineCrossed(milestone=Milestone.FIRST_AUDIO_PACKET, line_s=0.25),
    *(
        ResidencySampled(modality=m, hit_mass=9.0, lookup_mass=10.0, warm=True)
        for m in (Modality.AUDIO, Modality.VIDEO)
    ),
    RequestFinished(outcome=Outcome.OK, faulted=False),
)
ASKED = Asked(model="redline", max_tokens=64, speech=True, stream=True, media=MediaRung.FULL)


class Held:
    """Takes traces and sends none: the sender's share is measured apart."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []

    def send(self, traces: Sequence[Trace]) -> bool:
        self.traces = list(traces)
        return True

    def close(self) -> None:
        """Nothing is open."""


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def one_request(requests: Requests) -> str:
    """All that the gateway does for the memory of one request, and for its trace; its id."""
    trace = requests.open({})
    trace.stage(Stage.RECEIVE, 0.0, 0.1)
    trace.asked(ASKED, "session", operator=False)
    trace.stage(Stage.DECODER_QUEUE, 0.1, 0.1)
    trace.stage(Stage.DECODE_MEDIA, 0.1, 0.2)
    trace.decoded(MediaRung.FULL)
    stamp = Stamp("b", "tiny-omni-1", "session", trace.request_id, 1, 1, Level())
    trace.boarded(stamp, KvRung.NATIVE)
    trace.departed()
    trace.onward()
    for body in FOUND:
        requests.exemplar(stamp)
        if isinstance(body, RequestFinished):
            trace.finished(FINISHED)
        requests.note(stamp, body)
    trace.told(200)
    trace.end(Outcome.OK)
    return trace.request_id


def repeated(act: Callable[[], object]) -> Callable[[], None]:
    """`act`, once for each request of a round."""

    def acts() -> None:
        for _ in range(REQUESTS):
            act()

    return acts


def figures(quick: bool) -> list[Figure]:
    """Microseconds a request, and what the usual way costs the same thread."""
    held = Held()
    queue = TraceQueue(held, capacity_spans=10**9)
    on, off = Requests(Tracing(queue)), Requests(Tracing())
    usual, renderer = _usual_way(), Renderer("bench")
    context = on.tracing.begin({})
    assert context is not None
    record = on.find(one_request(on))
    trace = Trace(context.own, None, record, None)
    spans = trace.spans
    ways = {
        "off": repeated(lambda: one_request(off)),
        "on": repeated(lambda: one_request(on)),
        "usual": repeated(usual),
        "sender": repeated(lambda: encode_spans(renderer.spans(trace))),
    }
    with _logging():
        taken = interleave(ways, 3 if quick else 40)
    queue.close(5.0)
    on_loop = _each(taken["on"])
    against = ratio(taken["on"], taken["usual"])
    return [
        Figure("request remembered, tracing off, event loop", _each(taken["off"]), "us", None, ""),
        Figure("request remembered and its trace handed over, event loop", on_loop, "us",
               None, f"the SDK's own spans: {_each(taken['usual']):.0f} us"),
        Figure("the same, share of a 10 ms decode step", on_loop / STEP_US, "", SHARE,
               "once a request"),
        Figure("the same, against the SDK's spans on the loop", against.value, "x", 1.0, "",
               Direction.AT_MOST, against.low, against.high),
        Figure(f"{spans} spans made and encoded, sender's thread", _each(taken["sender"]), "us",
               None, "for kept traces only"),
        Figure("a remembered request", float(len(msgspec.msgpack.encode(record))), "bytes", 4_096.0,
               f"{SERVED + TURNED_AWAY:,} are remembered"),
    ]  # fmt: skip


def _each(seconds: Seconds) -> float:
    """Microseconds a request: the median round."""
    return float(np.median(seconds)) / REQUESTS * 1e6


@contextmanager
def _logging() -> Iterator[None]:
    """As a gateway's process does it, to nowhere."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with Path(os.devnull).open("w") as nowhere:
        logs.configure(nowhere)
        try:
            yield
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)


def _usual_way() -> Callable[[], None]:
    """The same spans by the SDK, begun and ended where the request is served."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    tracer = provider.get_tracer("bench")

    def act() -> None:
        chat = tracer.start_span("chat redline", attributes={"gen_ai.operation.name": "chat"})
        under = set_span_in_context(chat)
        for milestone in Milestone:
            chat.add_event(milestone, {"redline.seconds": 0.2})
        for stage in Stage:
            tracer.start_span(stage, context=under).end()
        for n in range(18):
            chat.set_attribute(f"redline.attribute{n}", n)
        chat.end()

    return act


def main() -> None:
    args = options(__doc__ or "")
    show(figures(args.quick), as_json=args.json)


if __name__ == "__main__":
    main()
