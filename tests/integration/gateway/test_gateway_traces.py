"""One trace per request: from a gateway process to a real OTLP receiver, its id in the log line."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from runtime.settings import TraceSettings
from tests.support import media
from tests.support.gateway import settings_for
from tests.support.otlp import Receiver, attributes, receiving
from tests.support.ports import free_ports
from tests.support.stack import wait_until

SCRIPT = Path(__file__).parents[2] / "support" / "scripted_gateway.py"
CALLER_TRACE, CALLER_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CALLER = {"traceparent": f"00-{CALLER_TRACE}-{CALLER_SPAN}-01"}
OWN = ["receive", "decoder queue", "decode media"]
ENGINES = ["queue", "encode", "prefill", "decode", "talker", "vocoder"]


class Told:
    """What a gateway sent and logged in its life: two requests about a clip, the first its own."""

    def __init__(self, receiver: Receiver, log: list[dict[str, Any]], ids: list[str]) -> None:
        self.receiver = receiver
        self.log = log
        self.ids = ids  # of the requests, in order

    def logged(self, request_id: str) -> dict[str, Any]:
        (line,) = [line for line in self.log if line.get("request_id") == request_id]
        return line

    def parent(self, request_id: str) -> Span:
        """The request's own span."""
        (chat,) = [s for s in self.trace(request_id) if s.kind == Span.SPAN_KIND_SERVER]
        return chat

    def trace(self, request_id: str) -> list[Span]:
        """The request's spans, by their start."""
        trace_id = self.logged(request_id)["trace_id"]
        spans = [span for span in self.receiver.spans() if span.trace_id.hex() == trace_id]
        return sorted(spans, key=lambda span: span.start_time_unix_nano)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    folder = tmp_path_factory.mktemp("traced")
    with receiving() as receiver:
        log = folder / "gateway.log"
        ids = _a_life(folder, receiver, log)
        yield Told(receiver, [json.loads(line) for line in log.read_text().splitlines()], ids)


def _a_life(folder: Path, receiver: Receiver, log: Path) -> list[str]:
    port = free_ports(1)[0]
    settings = settings_for(folder, port=port, trace=TraceSettings(endpoint=receiver.url))
    file = folder / "settings.json"
    file.write_text(settings.model_dump_json())
    with log.open("w") as out:
        process = subprocess.Popen([sys.executable, str(SCRIPT), str(file)], stderr=out)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _is_ready(url), 30)
        return [_ask(url, {}), _ask(url, CALLER)]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, log.read_text()


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def _ask(url: str, headers: dict[str, str]) -> str:
    """A spoken question about a clip; the id that its answer carries."""
    request = {
        "model": "redline", "stream": True, "stream_options": {"include_usage": True},
        "modalities": ["text", "audio"], "audio": {"voice": "ethan", "format": "pcm16"},
        "max_tokens": 3,
        "messages": [{"role": "user", "content": [
            {"type": "video_url", "video_url": {"url": "attachment:clip.mp4"}},
            {"type": "text", "text": "What?"},
        ]}],
    }  # fmt: skip
    answer = httpx.post(
        f"{url}/v1/chat/completions",
        data={"request": json.dumps(request)},
        files=[("file", ("clip.mp4", media.clip(1.0, sound="speech")))],
        headers=headers,
        timeout=30,
        trust_env=False,
    )
    assert answer.status_code == 200, answer.text
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if '"redline"' in line]
    (request_id,) = {e["redline"]["request_id"] for e in events if e.get("redline")}
    return request_id


def test_each_request_is_one_trace_from_its_first_byte_to_its_last_sample(told: Told) -> None:
    assert told.receiver.services() == {"redline-runtime"}
    for request_id in told.ids:
        spans = {span.name: span for span in told.trace(request_id)}
        assert set(spans) == {"chat redline", "generate b", *OWN, *ENGINES}
        chat, leg = spans["chat redline"], spans["generate b"]
        assert {spans[name].parent_span_id for name in (*OWN, "generate b")} == {chat.span_id}
        assert {spans[name].parent_span_id for name in ENGINES} == {leg.span_id}
        for span in spans.values():
            assert chat.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= chat.end_time_unix_nano
        assert attributes(chat)["redline.request_id"] == request_id
        assert attributes(chat)["redline.version"] == "v1"
        assert attributes(chat)["redline.outcome"] == "ok"
    assert len(told.receiver.spans()) == 2 * (2 + len(OWN) + len(ENGINES))


def test_what_runs_side_by_side_is_shown_side_by_side(told: Told) -> None:
    spans = {span.name: span for span in told.trace(told.ids[0])}
    thinker, talker = spans["decode"], spans["talker"]
    assert talker.start_time_unix_nano < thinker.end_time_unix_nano
    assert thinker.start_time_unix_nano < talker.end_time_unix_nano


def test_the_first_outputs_are_events_of_the_request(told: Told) -> None:
    for request_id in told.ids:
        chat = told.parent(request_id)
        outputs = {"first_token", "first_audio_packet", "first_video_frame"}
        events = {e.name: attributes(e) for e in chat.events if e.name in outputs}
        assert set(events) == outputs
        for event in chat.events:  # a verdict on the speech comes a moment after its last byte
            late = event.time_unix_nano > chat.end_time_unix_nano
            assert chat.start_time_unix_nano <= event.time_unix_nano
            assert not late or attributes(event)["redline.detector"] in ("speech", "playout")
        seconds = [event["redline.seconds"] for event in events.values()]
        assert all(isinstance(value, float) and value >= 0.0 for value in seconds)
        first = attributes(chat)["gen_ai.response.time_to_first_chunk"]
        assert first == events["first_token"]["redline.seconds"]


def test_a_request_without_a_caller_begins_a_trace_and_one_with_it_joins_in(told: Told) -> None:
    own, joined = (told.parent(request_id) for request_id in told.ids)
    assert own.parent_span_id == b""
    assert own.trace_id.hex() != CALLER_TRACE
    assert joined.trace_id.hex() == CALLER_TRACE
    assert joined.parent_span_id.hex() == CALLER_SPAN


def test_the_log_line_of_a_request_leads_to_its_trace_and_holds_nothing_of_it(told: Told) -> None:
    for request_id in told.ids:
        line = told.logged(request_id)
        assert line["message"] == "request ended: ok"
        assert line["span_id"] == told.parent(request_id).span_id.hex()
        assert line["resident"] == "b"
        assert "What?" not in json.dumps(told.log)
