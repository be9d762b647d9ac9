"""`redline send`: a clip and a question to the gateway, the answer as it streams."""

import base64
import binascii
import json
import mimetypes
import wave
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec

from redline.client import ClientError, reason
from redline.settings import Stack
from runtime.media.client_digest import digest_of
from runtime.openai_answer import SPEECH_HZ

_ID_HEADER = "X-Redline-Request"


# ---------------------------------------------------------------- what is read of an event
class _Audio(msgspec.Struct):
    data: str = ""


class _Delta(msgspec.Struct):
    content: str | None = None
    audio: _Audio | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _Error(msgspec.Struct):
    message: str


class _Redline(msgspec.Struct):
    request_id: str
    version: str = ""
    level: str = ""
    first_output_s: dict[str, float | None] = {}


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    error: _Error | None = None
    redline: _Redline | None = None


@dataclass
class Answer:
    """What came back. Times are seconds at the gateway; `None`: that output never came."""

    text: str = ""
    pcm: bytearray = field(default_factory=bytearray)
    request_id: str = ""
    version: str = ""
    level: str = ""
    times: dict[str, float | None] = field(default_factory=dict[str, float | None])
    resident: str | None = None  # that it was pinned to

    def write_wav(self, path: Path) -> None:
        with wave.open(str(path), "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(SPEECH_HZ)
            out.writeframes(bytes(self.pcm))


def summary(answer: Answer, out: Path) -> str:
    """What came and how soon, a line each. `out`: where the speech was written, if any came."""
    lines = {
        name: "none" if seconds is None else f"{seconds * 1000:.0f} ms"
        for name, seconds in answer.times.items()
    }
    if answer.pcm:
        lines = {"speech": f"{out} ({len(answer.pcm) / 2 / SPEECH_HZ:.2f} s)", **lines}
    lines |= {
        "answered by": f"{answer.version}, level {answer.level}",
        "request": answer.request_id,
    }
    if answer.resident is not None:
        lines["traffic"] = f"an operator's own, pinned to {answer.resident}: no verdict counts it"
    return "\n".join(f"{name:18s} {value}" for name, value in lines.items())


def part_of(clip: Path, data: bytes) -> dict[str, Any]:
    """The content part that refers to an uploaded file, and says what its bytes are. Raises
    `ClientError` for other kinds."""
    kind = (mimetypes.guess_type(clip.name)[0] or "").partition("/")[0]
    name, digest = f"attachment:{clip.name}", digest_of(data)
    match kind:
        case "video":
            return {"type": "video_url", "video_url": {"url": name, "digest": digest}}
        case "image":
            return {"type": "image_url", "image_url": {"url": name, "digest": digest}}
        case "audio":
            form = clip.suffix.lstrip(".").lower()
            sound = {"data": name, "format": form, "digest": digest}
            return {"type": "input_audio", "input_audio": sound}
        case _:
            raise ClientError(f"{clip.name}: not a video, audio or image file by its name")


def send(
    stack: Stack,
    clips: list[Path],
    ask: str,
    *,
    speech: bool,
    on_text: Callable[[str], None],
    session: str | None = None,
    low_latency: bool = False,
    max_tokens: int | None = None,
    timeout_s: float = 120.0,
    resident: str | None = None,
) -> Answer:
    """Upload the clips with the question and follow the stream to its end. `resident`: who must
    answer, as an operator's own traffic."""
    uploads = [(clip, clip.read_bytes()) for clip in clips]
    parts = [part_of(clip, data) for clip, data in uploads]
    request: dict[str, Any] = {
        "model": "redline",
        "messages": [{"role": "user", "content": [*parts, {"type": "text", "text": ask}]}],
        "modalities": ["text", "audio"] if speech else ["text"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if speech:
        request["audio"] = {"voice": "ethan", "format": "pcm16"}
    if max_tokens is not None:
        request["max_tokens"] = max_tokens
    headers: dict[str, str] = {}
    if session:
        headers["X-Redline-Session"] = session
    if low_latency:
        headers["X-Redline-Fidelity"] = "low_latency"
    if resident is not None:
        headers |= {"X-Redline-Resident": resident, "Authorization": f"Bearer {stack.token}"}
    files = [("file", (clip.name, data)) for clip, data in uploads]
    answer = Answer(resident=resident)
    url = f"{stack.runtime_url}/v1/chat/completions"
    upload: dict[str, Any] = {"files": files, "data": {"request": json.dumps(request)}}
    if not files:
        upload = {"json": request}
    try:
        with httpx.stream(
            "POST", url, headers=headers, timeout=timeout_s, trust_env=False, **upload
        ) as stream:
            if stream.status_code >= 400:
                stream.read()
                raise ClientError(_failure(reason(stream), stream.headers.get(_ID_HEADER)))
            for event in _events(stream):
                _take(event, answer, on_text)
    except (httpx.HTTPError, httpx.InvalidURL) as err:
        raise ClientError(f"{url}: {err or type(err).__name__}; is the stack up?") from err
    except (msgspec.DecodeError, binascii.Error) as err:
        raise ClientError(f"{url} does not stream as Redline does: {err}") from err
    return answer


def _events(stream: httpx.Response) -> Iterator[_Event]:
    for line in stream.iter_lines():
        if line == "data: [DONE]":
            return
        if line.startswith("data: "):
            yield msgspec.json.decode(line[6:], type=_Event)
    raise ClientError("the stream broke off before its end; what came is not the whole answer")


def _failure(why: str, request_id: str | None) -> str:
    """Why it failed, and where to learn more."""
    return why if request_id is None else f"{why} (see: redline explain {request_id})"


def _take(event: _Event, answer: Answer, on_text: Callable[[str], None]) -> None:
    if event.error is not None:
        known = None if event.redline is None else event.redline.request_id
        raise ClientError(_failure(event.error.message, known))
    for choice in event.choices:
        if text := choice.delta.content:
            answer.text += text
            on_text(text)
        if choice.delta.audio is not None:
            answer.pcm += base64.b64decode(choice.delta.audio.data)
    if event.redline is not None:
        answer.request_id = event.redline.request_id
        answer.version = event.redline.version
        answer.level = event.redline.level
        answer.times = event.redline.first_output_s
