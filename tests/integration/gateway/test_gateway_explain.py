"""`GET /requests/{id}`: what the gateway remembers of a request, for operators."""

import asyncio
import re
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

import httpx
import msgspec
import pytest
from typer.testing import CliRunner

from monitors.contract import FaultFound, LineCrossed, MediaRung
from monitors.labels import Keep, Outcome, Stage
from monitors.requests import RequestRecord
from redline.cli import app
from runtime import turns
from runtime.openai_answer import Answer
from runtime.residents.local import LocalResident
from runtime.residents.port import Generate
from runtime.settings import TraceSettings
from tests.support.gateway import (
    ALONE,
    A,
    B,
    Gateway,
    events_of,
    running_gateway,
    settings_for,
    until,
)
from tests.support.otlp import receiving

pytestmark = pytest.mark.asyncio(loop_scope="package")

A_STREAM: dict[str, Any] = {
    "model": "redline", "stream": True, "max_tokens": 200,
    "messages": [{"role": "user", "content": "hello"}],
}  # fmt: skip
SPEECH = {"modalities": ["text", "audio"], "stream": True}


async def record(gateway: Gateway, request_id: str) -> RequestRecord:
    answer = await gateway.client.get(f"/requests/{request_id}")
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=RequestRecord)


async def asked(gateway: Gateway, words: str = "hello", **more: Any) -> RequestRecord:
    """What is remembered of a new request."""
    answer = await gateway.chat(words, **more)
    return await record(gateway, answer.headers["X-Redline-Request"])


async def test_an_answer_is_remembered_with_its_stages_and_its_end(shared: Gateway) -> None:
    told = await asked(shared, **SPEECH, headers={"X-Redline-Session": "s-7"})
    (leg,) = told.legs
    assert (told.session, leg.resident, leg.version, leg.route_epoch) == (
        "s-7", B, "v1", shared.plane.router.route.route_epoch,
    )  # fmt: skip
    assert [s.stage for s in told.stages] == [
        Stage.RECEIVE, Stage.DECODER_QUEUE, Stage.DECODE_MEDIA,
    ]  # fmt: skip
    assert {Stage.QUEUE, Stage.PREFILL, Stage.DECODE, Stage.TALKER} <= {s.stage for s in leg.stages}
    assert told.outcome is Outcome.OK
    assert told.told is not None
    assert (told.told.status, told.told.code) == (200, None)
    assert told.usage is not None
    assert told.usage.completion_tokens == 4
    assert told.ended_s is not None
    for stage in (*told.stages, *leg.stages):
        assert 0.0 <= stage.began_s <= stage.ended_s <= told.ended_s
    assert told.trace is None  # this gateway traces nothing


async def test_the_fidelity_that_was_used_is_the_lower_of_wish_and_ladder(gateway: Gateway) -> None:
    await gateway.level(B, media=1)
    told = await asked(gateway)
    assert told.asked is not None
    assert (told.asked.media, told.media) == (MediaRung.FULL, MediaRung.P360_8K)
    assert told.legs[0].level.media is MediaRung.P360_8K
    wished = await asked(gateway, headers={"X-Redline-Fidelity": "low_latency"})
    assert wished.media is MediaRung.P160_8K


async def test_a_line_crossed_and_a_fault_are_remembered_with_evidence(gateway: Gateway) -> None:
    await gateway.drill(B, "slow", amount=0.3)
    await gateway.drill(B, "truncate")
    told = await asked(gateway, **SPEECH, max_tokens=2)
    kinds = {type(noted.body) for noted in told.noted()}
    assert {LineCrossed, FaultFound} <= kinds
    assert "speech" in {fault.detector for fault in told.faults()}, "playout may stall as well"
    assert all(noted.at_s >= 0.0 for noted in told.noted())
    assert {Keep.LINE, Keep.FAULT} <= set(told.wrong)
    answer = await gateway.client.get("/requests", params={"why": "fault", "limit": 1})
    assert msgspec.json.decode(answer.content, type=list[RequestRecord]) == [told]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [(b"{", 400, "invalid_json"), (b'{"model": "gpt-5", "messages": []}', 400, "invalid_value")],
)
async def test_a_request_that_was_turned_away_has_an_id_and_a_record(
    shared: Gateway, body: bytes, status: int, code: str
) -> None:
    answer = await shared.client.post("/v1/chat/completions", content=body)
    request_id = answer.json()["redline"]["request_id"]
    assert answer.headers["X-Redline-Request"] == answer.headers["X-Request-Id"] == request_id
    told = await record(shared, request_id)
    assert told.told is not None
    assert (told.told.status, told.told.code, told.legs) == (status, code, ())
    assert told.outcome is Outcome.REFUSED


async def test_a_client_that_leaves_while_its_media_is_decoded_is_not_called_refused(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, gate = threading.Event(), threading.Event()

    def slow(*_: object) -> NoReturn:
        began.set()
        gate.wait(10.0)
        raise ValueError("nobody hears of it")

    monkeypatch.setattr(turns, "build", slow)
    before = counted(gateway)
    asking = asyncio.create_task(gateway.chat("hello"))
    await until(began.is_set)
    (flight,) = gateway.app.state.flights.on(B)
    asking.cancel()
    await until(flight.landed.done)
    gate.set()
    told = await record(gateway, flight.ask.request_id)
    assert told.outcome is Outcome.CANCELLED
    assert told.told is not None
    assert told.told.status is None
    assert counted(gateway) - before == {Outcome.CANCELLED: 1}
    assert gateway.bodies("finished") == []


async def test_an_error_of_the_gateways_own_is_a_failure_that_speaks_against_no_version(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> NoReturn:
        raise ValueError("nobody foresaw it")

    monkeypatch.setattr(turns, "build", breaks)
    before, ring = counted(gateway), gateway.plane.book.tables().faults
    told = await asked(gateway)
    assert (told.outcome, told.wrong) == (Outcome.FAILED, (Keep.OUTCOME,))
    assert told.told is not None
    assert (told.told.status, told.told.code) == (500, "internal_error")
    assert counted(gateway) - before == {Outcome.FAILED: 1}
    assert gateway.plane.book.tables().faults == ring
    assert gateway.bodies("finished") == []


@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_behind_the_engines_answer_is_the_gateways_too(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    def breaks(*_: object, **__: object) -> NoReturn:
        raise ValueError("nobody foresaw it")

    monkeypatch.setattr(Answer, "chunk" if stream else "whole", breaks)
    before = counted(gateway)
    if stream:
        async with gateway.client.stream("POST", "/v1/chat/completions", json=A_STREAM) as answer:
            request_id = answer.headers["X-Redline-Request"]
            with pytest.raises(httpx.RemoteProtocolError):
                await answer.aread()
    else:
        request_id = (await gateway.chat("hello")).headers["X-Redline-Request"]
    told = await record(gateway, request_id)
    assert told.outcome is Outcome.FAILED
    assert told.told is not None
    assert told.told.code == "internal_error"
    assert Outcome.FAILED not in counted(gateway) - before  # the version did what it should


def counted(gateway: Gateway) -> Counter[str]:
    """Requests on B so far, by outcome."""
    body, _ = gateway.plane.render_metrics(None)
    found = re.findall(r'redline_requests_total{outcome="(\w+)",version="v1"} (\S+)', body.decode())
    return Counter({outcome: int(float(value)) for outcome, value in found})


async def test_what_the_client_was_told_late_in_a_stream_is_remembered(shared: Gateway) -> None:
    answer = await shared.chat("hello @die", stream=True, max_tokens=8)
    await until(lambda: shared.plane.is_ready(B))
    last = events_of(answer.text)[-1]
    assert last["error"]["code"] == "resident_lost"
    told = await record(shared, last["redline"]["request_id"])
    assert told.told is not None
    assert (told.told.status, told.told.code) == (200, "resident_lost")
    assert told.outcome is Outcome.LOST


async def test_one_that_is_under_way_is_told_as_it_is(shared: Gateway) -> None:
    async with shared.client.stream(
        "POST",
        "/v1/chat/completions",
        json=A_STREAM,
    ) as answer:
        now = await record(shared, answer.headers["X-Redline-Request"])
        assert (now.outcome, now.ended_s, now.legs[0].left_s) == (None, None, None)
    await until(lambda: not shared.plane.in_flight(B))
    then = await record(shared, now.request_id)
    assert then.outcome is Outcome.CANCELLED


async def test_a_cut_over_is_told_as_two_legs(gateway: Gateway) -> None:
    await gateway.route(100)
    asking = asyncio.create_task(gateway.chat("hello", max_tokens=60))
    await until(lambda: gateway.bodies("milestone", A), 5)
    await gateway.route(0)
    await gateway.led("POST", f"/residents/{A}/drain", mode="abort", timeout_s=5)
    told = await record(gateway, (await asking).headers["X-Redline-Request"])
    first, second = told.legs
    assert (first.resident, second.resident) == (A, B)
    assert first.left_s is not None
    assert first.left_s <= second.boarded_s
    assert [type(n.body).__name__ for n in first.noted][-1] == "RequestFinished"
    assert told.outcome is Outcome.OK


async def test_a_resident_is_given_the_span_of_its_own_leg_in_the_callers_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Generate] = []
    really = LocalResident.generate

    def listening(self: LocalResident, request: Generate, arrays: Any) -> Any:
        given.append(request)
        return really(self, request, arrays)

    monkeypatch.setattr(LocalResident, "generate", listening)
    caller = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01", "tracestate": "vendor=1"}
    with receiving() as receiver:
        trace = TraceSettings(endpoint=receiver.url)
        async with running_gateway(settings_for(tmp_path, trace=trace, **ALONE)) as gateway:
            await asked(gateway, headers=caller)
    (request,) = given
    spans = {span.name: span for span in receiver.spans()}
    chat, leg = spans["chat redline"], spans["generate b"]
    assert request.trace_headers() == {
        "traceparent": f"00-{'ab' * 16}-{leg.span_id.hex()}-01",
        "tracestate": "vendor=1",
    }
    assert leg.parent_span_id == chat.span_id
    assert (chat.parent_span_id.hex(), chat.trace_state) == ("cd" * 8, "vendor=1")


async def test_an_unknown_id_is_a_sentence(shared: Gateway) -> None:
    answer = await shared.client.get("/requests/nope")
    assert answer.status_code == 404
    assert "no request 'nope' is known here; it remembers" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("why=bogus", "why: 'bogus' is not one of line, fault, outcome"),
        ("why=sampled", "why: 'sampled' is not one of line, fault, outcome"),
        ("limit=0", "limit: '0' is no number from 1 to 200"),
        ("limit=99999999999", "limit: '99999999999' is no number from 1 to 200"),
        ("limit=many", "limit: 'many' is no number from 1 to 200"),
    ],
)
async def test_a_list_that_cannot_be_is_refused_in_a_sentence(
    shared: Gateway, query: str, sentence: str
) -> None:
    answer = await shared.client.get(f"/requests?{query}")
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, sentence)


async def test_only_operators_are_told(tmp_path: Path) -> None:
    async with running_gateway(settings_for(tmp_path, control_token="t", **ALONE)) as gateway:
        answer = await gateway.chat("hello")
        path = f"/requests/{answer.headers['X-Redline-Request']}"
        assert (await gateway.client.get(path)).status_code == 401
        for query in ("", "?why=bogus", "?limit=0"):
            assert (await gateway.client.get(f"/requests{query}")).status_code == 401
        allowed = await gateway.client.get(path, headers={"Authorization": "Bearer t"})
        assert allowed.status_code == 200


async def test_metrics_show_exemplars_of_kept_traces_alone_and_what_was_dropped(
    tmp_path: Path,
) -> None:
    with receiving() as receiver:
        trace = TraceSettings(endpoint=receiver.url, sample_ratio=0.0)
        async with running_gateway(settings_for(tmp_path, trace=trace, **ALONE)) as gateway:
            openmetrics = {"Accept": "application/openmetrics-text"}
            quick = await asked(gateway)
            before = (await gateway.client.get("/metrics", headers=openmetrics)).text
            await gateway.drill(B, "slow", amount=0.3)
            slow = await asked(gateway)
            after = (await gateway.client.get("/metrics", headers=openmetrics)).text
    assert quick.trace is not None
    assert slow.trace is not None
    if not quick.trace.keep:  # a machine that is held up crosses a line by itself
        assert "trace_id=" not in before
    assert f'trace_id="{slow.trace.trace_id}"' in after
    assert "redline_trace_spans_dropped_total 0.0" in after
    assert slow.trace.trace_id in {span.trace_id.hex() for span in receiver.spans()}
    assert quick.trace.keep or quick.trace.trace_id not in {
        span.trace_id.hex() for span in receiver.spans()
    }


async def test_the_command_explains_a_real_request(shared: Gateway) -> None:
    told = await asked(shared, **SPEECH)

    url = str(shared.client.base_url)
    where = {"REDLINE_RUNTIME_URL": url, "REDLINE_CONTROL_URL": url, "REDLINE_TOKEN": "t"}
    words = ["explain", f"chatcmpl-{told.request_id}"]
    done = await asyncio.to_thread(CliRunner().invoke, app, words, env=where)
    assert done.exit_code == 0, done.output
    assert "first_audio_packet: " in done.output
    assert "client was told    200" in done.output
