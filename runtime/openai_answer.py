"""An answer in OpenAI's form: stream events, and the whole as one object."""

import base64
import io
import json
import wave
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from monitors.labels import Milestone
from runtime.openai_api import MODEL
from runtime.openai_errors import ApiError
from runtime.residents.port import AudioDelta, Finished, TextDelta

SPEECH_HZ = 24_000
DONE = b"data: [DONE]\n\n"
_AUDIO_KEPT_S = 0  # nothing is kept: the audio of an answer cannot be referred to later


def sse(event: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


def failed(error: ApiError, request_id: str) -> bytes:
    """The end of a stream that had begun before it failed."""
    return sse(error.body(request_id)) + DONE


def usage(finished: Finished) -> dict[str, Any]:
    """Token counts. Speech counts in codec frames, beside the text tokens."""
    return {
        "prompt_tokens": finished.prompt_tokens,
        "completion_tokens": finished.completion_tokens,
        "total_tokens": finished.prompt_tokens + finished.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": finished.cached_tokens},
        "completion_tokens_details": {"audio_tokens": finished.codec_frames},
    }


@dataclass
class Answer:
    """One answer as it grows. `created`: calendar seconds, for people."""

    request_id: str
    created: int
    speech: bool
    text: str = ""
    pcm: bytearray = field(default_factory=bytearray)
    _opened: bool = False

    def chunk(self, event: TextDelta | AudioDelta) -> bytes:
        """The stream event of one delta; the first one names the role."""
        match event:
            case TextDelta():
                delta: dict[str, Any] = {"content": event.text}
            case AudioDelta():
                data = base64.b64encode(event.pcm).decode()
                delta = {"audio": {"id": self._audio_id, "data": data}}
        return sse(self._event(self._with_role(delta), None))

    def last_chunks(self, finished: Finished, extra: dict[str, Any], *, with_usage: bool) -> bytes:
        """The events after the last delta: why it ended, the usage where asked for, the end."""
        events = sse(self._event(self._with_role({}), finished.text_reason))
        if with_usage:
            last = self._event({}, None) | {"choices": [], "usage": usage(finished)} | extra
            events += sse(last)
        return events + DONE

    def restart(self) -> None:
        """Forget what was added."""
        self.text = ""
        self.pcm.clear()

    def add(self, event: TextDelta | AudioDelta) -> None:
        """Keep a delta for `whole`."""
        match event:
            case TextDelta():
                self.text += event.text
            case AudioDelta():
                self.pcm += event.pcm

    def whole(self, finished: Finished, form: str | None, extra: dict[str, Any]) -> dict[str, Any]:
        """The answer of a request that is not streamed, from what was added."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text, "refusal": None}
        if self.speech:
            sound = bytes(self.pcm) if form == "pcm16" else wav(bytes(self.pcm))
            message["audio"] = {
                "id": self._audio_id,
                "data": base64.b64encode(sound).decode(),
                "transcript": self.text,
                "expires_at": self.created + _AUDIO_KEPT_S,
            }
        choice = {"index": 0, "message": message, "finish_reason": finished.text_reason}
        return self._envelope("chat.completion") | {
            "choices": [choice],
            "usage": usage(finished),
            **extra,
        }

    @property
    def _audio_id(self) -> str:
        return f"audio_{self.request_id}"

    def _with_role(self, delta: dict[str, Any]) -> dict[str, Any]:
        opened, self._opened = self._opened, True
        return delta if opened else {"role": "assistant", "content": "", **delta}

    def _event(self, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return self._envelope("chat.completion.chunk") | {"choices": [choice]}

    def _envelope(self, kind: str) -> dict[str, Any]:
        names = {"id": f"chatcmpl-{self.request_id}", "object": kind}
        return {**names, "created": self.created, "model": MODEL}


def details(
    request_id: str,
    version: str,
    level: str,
    level_now: str,
    first_output: dict[Milestone, float | None],
) -> dict[str, Any]:
    """What only this server tells: who answered, at which level, at which it would answer by now,
    and how soon (seconds)."""
    return {
        "redline": {
            "request_id": request_id,
            "version": version,
            "level": level,
            "level_now": level_now,
            "first_output_s": {m.value: first_output.get(m) for m in Milestone},
        }
    }


def wav(pcm: bytes) -> bytes:
    """16-bit mono at 24 kHz as a WAV file."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SPEECH_HZ)
        file.writeframes(pcm)
    return out.getvalue()
