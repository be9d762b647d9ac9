"""Every way to ask wrongly: OpenAI's error form, the field or limit named, others untouched."""

import base64
import json
from typing import Any

import httpx
import pytest

from tests.support import media
from tests.support.gateway import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="package")

HELLO = [{"role": "user", "content": "hello"}]


def checked(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The error of an answer that must be one, in OpenAI's form; who may ask again is told so."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    again = {"retryable", "retry_after_s"} if "Retry-After" in answer.headers else set()
    assert set(error) == {"message", "type", "param", "code", *again}
    assert error["code"] == code
    assert error["message"]
    return error


async def post(gateway: Gateway, *parts: dict[str, Any], **more: Any) -> httpx.Response:
    body = {"model": "redline", "messages": [{"role": "user", "content": list(parts)}], **more}
    return await gateway.client.post("/v1/chat/completions", json=body)


def url_part(kind: str, url: str) -> dict[str, Any]:
    return {"type": f"{kind}_url", f"{kind}_url": {"url": url}}


def inline(kind: str, data: bytes) -> dict[str, Any]:
    return url_part(kind, f"data:{kind}/x;base64,{base64.b64encode(data).decode()}")


@pytest.mark.parametrize("body", [b"", b"{", b'{"model": ', b"\xff\xfe", b"null null"])
async def test_a_body_that_is_not_json(shared: Gateway, body: bytes) -> None:
    checked(await shared.client.post("/v1/chat/completions", content=body), 400, "invalid_json")


@pytest.mark.parametrize(
    ("more", "status", "code", "words"),
    [
        ({"model": "gpt-5"}, 404, "model_not_found", "'redline'"),
        ({"modalities": ["text", "smell"]}, 400, "invalid_value", "'audio'"),
        ({"tools": []}, 400, "unknown_parameter", "tools"),
        ({"max_tokens": 10_000}, 400, "limit_exceeded", "limits.max_tokens"),
        (
            {"messages": [{"role": "user", "content": "x" * 3_000}]},
            400,
            "limit_exceeded",
            "limits.prompt_chars",
        ),
        ({"messages": []}, 400, "invalid_value", "messages"),
    ],
)
async def test_a_request_that_cannot_be_served(
    shared: Gateway, more: dict[str, Any], status: int, code: str, words: str
) -> None:
    body = {"model": "redline", "messages": HELLO, **more}
    error = checked(await shared.client.post("/v1/chat/completions", json=body), status, code)
    assert words in error["message"]


async def test_a_body_over_the_limit_is_a_413_whether_it_says_its_length_or_not(
    shared: Gateway,
) -> None:
    async def pieces() -> Any:
        for _ in range(4):
            yield b"x" * 100_000

    for content in (b"x" * 400_000, pieces()):
        answer = await shared.client.post("/v1/chat/completions", content=content)
        assert "limits.body_bytes" in checked(answer, 413, "body_too_large")["message"]


@pytest.mark.parametrize(
    ("part", "status", "code", "words"),
    [
        (inline("image", b"not a picture"), 400, "not_media", "image_url"),
        (inline("video", b"not a film" * 40), 400, "not_media", "video_url"),
        (inline("video", media.truncated(media.clip(seconds=1.0), 0.2)), 400, "not_media", ""),
        (inline("image", media.png_that_claims(9_000, 9_000)), 413, "too_many_pixels", "pixels"),
        (url_part("image", "https://example.com/x.png"), 400, "unsupported_url", "remote_media"),
        (url_part("image", "attachment:x.png"), 400, "attachment_not_found", "multipart"),
        (
            {"type": "input_audio", "input_audio": {"data": "%%%", "format": "wav"}},
            400,
            "invalid_base64",
            "input_audio",
        ),
        (
            {
                "type": "input_audio",
                "input_audio": {
                    "data": base64.b64encode(media.wav(media.tone(5.0))).decode(),
                    "format": "wav",
                },
            },
            413,
            "media_too_long",
            "limits.clip_seconds",
        ),
    ],
)
async def test_media_that_cannot_be_used(
    shared: Gateway, part: dict[str, Any], status: int, code: str, words: str
) -> None:
    error = checked(await post(shared, part), status, code)
    assert words in error["message"]
    assert error["param"].startswith("messages.0.content.0")


async def test_too_many_media_items(shared: Gateway) -> None:
    parts = [inline("image", media.png(32, 32))] * 4
    assert "limits.items" in checked(await post(shared, *parts), 400, "limit_exceeded")["message"]


@pytest.mark.parametrize(
    ("files", "data", "words"),
    [
        ({"file": ("a.png", b"x")}, {}, "'request' field"),
        ({"file": ("a.png", b"x")}, {"request": "{}", "more": "1"}, "Too many fields"),
    ],
)
async def test_a_form_that_is_not_the_one_asked_for(
    shared: Gateway, files: Any, data: dict[str, str], words: str
) -> None:
    answer = await shared.client.post("/v1/chat/completions", files=files, data=data)
    assert words in checked(answer, 400, "invalid_form")["message"]


@pytest.mark.parametrize("content_type", ["multipart/form-data", "multipart/form-data; boundary=x"])
async def test_a_broken_form(shared: Gateway, content_type: str) -> None:
    answer = await shared.client.post(
        "/v1/chat/completions", content=b"--y\r\njunk", headers={"Content-Type": content_type}
    )
    checked(answer, 400, "invalid_form")


async def test_two_uploads_of_one_name_are_refused(shared: Gateway) -> None:
    files = [("file", ("a.png", media.png(32, 32))), ("file", ("a.png", media.png(48, 48)))]
    request = json.dumps({"model": "redline", "messages": HELLO})
    answer = await shared.client.post(
        "/v1/chat/completions", files=files, data={"request": request}
    )
    checked(answer, 400, "invalid_form")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
    ],
)
async def test_a_path_or_method_that_is_not_there(
    shared: Gateway, method: str, path: str, status: int, code: str
) -> None:
    checked(await shared.client.request(method, path), status, code)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"X-Redline-Fidelity": "best"}, "invalid_value"),
        ({"X-Redline-Session": "x" * 200}, "invalid_value"),
    ],
)
async def test_a_header_that_makes_no_sense(
    shared: Gateway, headers: dict[str, str], code: str
) -> None:
    checked(await shared.chat("hello", headers=headers), 400, code)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("word", "status", "code"),
    [
        ("@bad", 400, "invalid_value"),
        ("@overloaded", 503, "overloaded"),
        ("@shed", 503, "overloaded"),
        ("@fail", 500, "engine_error"),
    ],
)
async def test_what_the_engine_refuses_before_any_output_has_its_status(
    shared: Gateway, word: str, status: int, code: str, stream: bool
) -> None:
    answer = await shared.chat(word, stream=stream)
    checked(answer, status, code)
    assert ("Retry-After" in answer.headers) is (status == 503)


async def test_what_the_client_did_wrong_or_was_shed_is_never_evidence_against_a_resident(
    shared: Gateway,
) -> None:
    before = len(shared.bodies("finished"))
    await post(shared, inline("image", b"not a picture"))
    await shared.chat("@bad")
    await shared.chat("@shed")
    endings = shared.bodies("finished")[before:]
    assert [(e.body.outcome, e.body.faulted) for e in endings] == [("refused", False)] * 2


async def test_other_requests_go_on_beside_all_this(shared: Gateway) -> None:
    answer = await shared.chat("still there?")
    assert answer.json()["choices"][0]["message"]["content"] == "v1 w1 w2 w3 "
    assert shared.plane.in_flight("b") == 0
