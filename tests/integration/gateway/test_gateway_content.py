"""What users say and are told is in no log, metric, span or record, unless traces may have it."""

import base64
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest

from monitors import logs
from monitors.detectors.speech import SpeechAudit
from runtime import turns
from runtime.settings import TraceSettings
from tests.support import media
from tests.support.gateway import ALONE, B, running_gateway, settings_for
from tests.support.otlp import Receiver, attributes, receiving
from tests.support.ports import free_ports
from tests.support.stack import wait_until

SCRIPT = Path(__file__).parents[2] / "support" / "scripted_gateway.py"
CHAT = "/v1/chat/completions"
CANARY = "kanarienvogel"  # in everything that a client can say, each with an ending of its own
VIEWS = (
    "/metrics",
    "/evidence?incarnation=&after=0",
    "/tables",
    "/readyz",
    "/control",
    "/requests",
)


@dataclass(frozen=True)
class Life:
    """What a gateway left of its life."""

    receiver: Receiver
    log: str
    views: str
    files: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.splitlines()]

    @property
    def spans(self) -> str:
        return "\n".join(str(request) for request in self.receiver.requests)


def chat(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    turns = [
        {"role": "system", "content": f"{CANARY}-system"},
        {"role": "user", "content": list(parts)},
    ]
    return {"model": "redline", "messages": turns, "max_tokens": 3, **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def uploads() -> Iterator[tuple[dict[str, Any], bytes]]:
    """A form and its file: one that is answered, and one whose media is broken."""
    clip = media.clip(1.0, sound="speech")
    name = f"{CANARY}-file.mp4"
    part = {"type": "video_url", "video_url": {"url": f"attachment:{name}"}}
    spoken = {"modalities": ["text", "audio"], "metadata": {f"{CANARY}-key": f"{CANARY}-value"}}
    for data in (clip, f"{CANARY}-bytes".encode() * 50, media.truncated(clip, 0.4)):
        yield chat(part, text(f"{CANARY}-prompt @say:{CANARY}-answer"), **spoken), data


def bodies() -> Iterator[bytes]:
    """Requests as JSON, answered or refused in every way that may quote them."""
    for asked in (
        chat(text(f"{CANARY}-prompt @say:{CANARY}-answer"), stream=True),
        chat(text(f"{CANARY}-prompt @quote")),
        chat(text(f"{CANARY}-prompt @quote"), stream=True),
        chat(text("hello"), **{f"{CANARY}-parameter": 1}),
        chat(text("hello"), metadata={f"{CANARY}-key": 3}),
        chat(text("hello"), model=f"{CANARY}-model"),
        chat(text("hello"), voice=f"{CANARY}-voice"),
        chat(media_of(f"attachment:{CANARY}-missing.mp4")),
        chat(media_of(f"https://{CANARY}.example/clip.mp4")),
        chat(media_of(f"data:video/mp4;base64,{CANARY}%%%")),
        chat(media_of("data:video/mp4;base64," + base64.b64encode(CANARY.encode() * 9).decode())),
    ):
        yield json.dumps(asked).encode()
    yield f'{{"model": "{CANARY}-broken'.encode()


def media_of(url: str) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": url}}


def a_life(folder: Path, receiver: Receiver, trace: TraceSettings) -> Life:
    """A gateway process from its start to its end, asked everything."""
    port = free_ports(1)[0]
    settings = settings_for(folder, port=port, trace=trace, **ALONE)
    file, log = folder / "settings.json", folder / "gateway.log"
    file.write_text(settings.model_dump_json())
    with log.open("w") as out:
        process = subprocess.Popen([sys.executable, str(SCRIPT), str(file)], stderr=out)
    headers = {"X-Canary": f"{CANARY}-header", "Authorization": f"Bearer {CANARY}-credential"}
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30, trust_env=False
        ) as client:
            wait_until(lambda: is_ready(client), 30)
            for form, data in uploads():
                files = [("file", (f"{CANARY}-file.mp4", data))]
                client.post(CHAT, data={"request": json.dumps(form)}, files=files)
            ids = [
                client.post(CHAT, content=body).headers["X-Redline-Request"] for body in bodies()
            ]
            views = [client.get(path).text for path in VIEWS]
            views += [client.get(f"/requests/{request_id}").text for request_id in ids]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, log.read_text()
    files = "\n".join(p.read_text(errors="replace") for p in folder.rglob("*.*") if p.is_file())
    return Life(receiver, log.read_text(), "\n".join(views), files)


def is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    """A gateway that traces, as it is by default."""
    with receiving() as receiver:
        yield a_life(
            tmp_path_factory.mktemp("silent"), receiver, TraceSettings(endpoint=receiver.url)
        )


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    """One whose traces carry content."""
    with receiving() as receiver:
        trace = TraceSettings(endpoint=receiver.url, capture_content=True)
        yield a_life(tmp_path_factory.mktemp("telling"), receiver, trace)


def test_nothing_that_was_said_is_anywhere(silent: Life) -> None:
    for where in (silent.log, silent.spans, silent.views, silent.files):
        assert CANARY not in where
        assert base64.b64encode(CANARY.encode() * 9).decode() not in where
    assert len(silent.views) > 10_000
    assert len({span.trace_id for span in silent.receiver.spans()}) == len([*bodies()]) + 3


def test_every_line_is_json_and_those_about_a_request_lead_to_its_trace(silent: Life) -> None:
    about = [line for line in silent.lines if line["message"].startswith("request ended")]
    assert len(about) == len([*bodies()]) + 3
    assert any(line["message"].endswith("was told invalid_json") for line in about)
    traced = {span.trace_id.hex() for span in silent.receiver.spans()}
    for line in about:
        assert {"ts", "level", "logger", "trace_id", "span_id", "request_id"} <= line.keys()
        assert line["trace_id"] in traced
    assert any(line["logger"].startswith("uvicorn") for line in silent.lines)


def test_with_the_switch_traces_carry_the_words_and_still_no_media(telling: Life) -> None:
    (warned,) = [line for line in telling.lines if "capture_content is on" in line["message"]]
    assert warned["level"] == "warning"
    assert CANARY not in telling.log + telling.views + telling.files
    given = [attributes(span) for span in telling.receiver.spans()]
    inputs = [str(a["gen_ai.input.messages"]) for a in given if "gen_ai.input.messages" in a]
    outputs = [str(a["gen_ai.output.messages"]) for a in given if "gen_ai.output.messages" in a]
    assert any(f"{CANARY}-system" in words and f"{CANARY}-prompt" in words for words in inputs)
    assert any(f"{CANARY}-answer" in words for words in outputs)
    for ending in ("file", "bytes", "value", "header", "credential", "missing"):
        assert f"{CANARY}-{ending}" not in telling.spans


@contextmanager
def logged() -> Iterator[StringIO]:
    """What this process logs meanwhile, as a gateway of its own would."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    logging.getLogger().addHandler(handler)
    try:
        yield stream
    finally:
        logging.getLogger().removeHandler(handler)


async def test_an_error_nobody_foresaw_is_logged_without_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise ValueError(f"cannot read {CANARY}")

    monkeypatch.setattr(turns, "build", breaks)
    with logged() as stream:
        async with running_gateway(settings_for(tmp_path, **ALONE)) as gateway:
            answer = await gateway.chat("hello")
    assert answer.status_code == 500
    assert answer.json()["redline"]["request_id"] == answer.headers["X-Redline-Request"]
    assert CANARY not in stream.getvalue() + answer.text
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    (told,) = [line for line in lines if "exception" in line]
    assert told["request_id"] == answer.headers["X-Redline-Request"]
    assert "ValueError: (its words are left out" in told["exception"]
    assert "in breaks" in told["exception"]  # where it was is told


@pytest.mark.usefixtures("broken_detectors")
@pytest.mark.parametrize("cut", [False, True])
async def test_a_detector_that_fails_quotes_no_answer_whoever_ended_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    def breaks(_: SpeechAudit, reason: str | None, answer: str, made: int | None) -> None:
        assert CANARY in answer
        raise ValueError(f"cannot judge {answer}")

    monkeypatch.setattr(SpeechAudit, "close", breaks)
    asked = chat(text(f"@say:{CANARY}"), modalities=["text", "audio"], stream=True) | {
        "max_tokens": 200 if cut else 3
    }
    with logged() as stream:
        async with running_gateway(settings_for(tmp_path, **ALONE)) as gateway:
            async with gateway.client.stream("POST", CHAT, json=asked) as answer:
                request_id = answer.headers["X-Redline-Request"]
                said = ""
                async for line in answer.aiter_lines():
                    said += line
                    if cut and said.count(CANARY) > 2 and '"data"' in said:  # as an order does
                        gateway.app.state.flights.on(B)[0].cut_over()
                        cut = False
            await gateway.settled()
            told = (await gateway.client.get(f"/requests/{request_id}")).text
    assert CANARY not in stream.getvalue() + told
    assert "it failed: ValueError" in told
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    (failure,) = [line for line in lines if "detector" in line["message"]]
    assert failure["request_id"] == request_id
