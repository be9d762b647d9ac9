"""Bodies read within their limit, and multipart forms taken apart in memory."""

import tempfile
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from runtime import uploads
from runtime.media.client_digest import digest_of, parse
from runtime.openai_errors import ApiError
from runtime.settings import MediaLimits

LIMITS = MediaLimits(body_bytes=8_000_000)
CLIP = bytes(range(256)) * 12_000  # three megabytes


def received(request: httpx.Request, piece: int = 65_536) -> Request:
    """The request as the server hands it over: piece by piece."""
    body = request.read()
    pieces: Iterator[bytes] = iter([body[at : at + piece] for at in range(0, len(body), piece)])

    async def receive() -> Any:
        data = next(pieces, b"")
        return {"type": "http.request", "body": data, "more_body": bool(data)}

    headers = [(name.lower(), value) for name, value in request.headers.raw]
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


def upload(clip: bytes = CLIP) -> Request:
    form = httpx.Request(
        "POST", "http://x/", files={"file": ("c.mp4", clip)}, data={"request": "{}"}
    )
    return received(form)


async def test_the_files_of_a_form_come_as_they_were_sent() -> None:
    got = await uploads.read(upload(), LIMITS, lambda: 7.0)
    assert (got.body, got.files, got.at) == (b"{}", {"c.mp4": CLIP}, 7.0)


async def test_a_clients_media_never_touches_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def rollover(_: object) -> None:
        raise AssertionError("written to a file")

    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "rollover", rollover)
    assert (await uploads.read(upload(), LIMITS, lambda: 0.0)).files == {"c.mp4": CLIP}


async def test_a_body_beyond_its_limit_is_not_read_to_its_end() -> None:
    undeclared = received(httpx.Request("POST", "http://x/", content=[b"x"] * 9))
    with pytest.raises(ApiError, match="larger than 5 bytes"):
        await uploads.read_body(undeclared, 5)
    assert await uploads.read_body(received(httpx.Request("POST", "http://x/", content=b"1")), 5)


def with_header(header: str, value: str) -> Request:
    part = ("c.mp4", CLIP, "video/mp4", {header: value})
    return received(
        httpx.Request("POST", "http://x/", files={"file": part}, data={"request": "{}"})
    )


@pytest.mark.parametrize("header", ["Content-Digest", "Repr-Digest"])
async def test_a_files_own_headers_may_say_what_its_bytes_are(header: str) -> None:
    got = await uploads.read(with_header(header, digest_of(CLIP)), LIMITS, lambda: 0.0)
    assert got.digests == {"c.mp4": parse(digest_of(CLIP))}


async def test_a_digest_header_that_is_none_is_refused_by_its_name() -> None:
    with pytest.raises(ApiError, match=r"content-digest of 'c\.mp4'.*looks like") as caught:
        await uploads.read(with_header("Content-Digest", "crc32"), LIMITS, lambda: 0.0)
    assert (caught.value.status, caught.value.param) == (400, "content-digest")
