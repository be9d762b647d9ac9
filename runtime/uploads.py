"""Reads a request's body within the limits: JSON, or a multipart upload with files beside it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from runtime.media.client_digest import ClientDigest, DigestError, parse
from runtime.openai_errors import ApiError, bad_request
from runtime.settings import MediaLimits

REQUEST_FIELD = "request"
DIGEST_HEADERS = ("content-digest", "repr-digest")  # RFC 9530; of a part's bytes they say the same
PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Upload:
    """The request's JSON, the files that came with it and what their headers say their bytes are,
    and when its last byte did."""

    body: bytes | bytearray
    files: dict[str, bytes]
    at: float
    digests: dict[str, ClientDigest] = field(default_factory=dict[str, ClientDigest])


async def read(request: Request, limits: MediaLimits, clock: Callable[[], float]) -> Upload:
    """The whole upload. Raises `ApiError` beyond `limits.body_bytes`, or for a broken form."""
    body = await read_body(request, limits.body_bytes)
    at = clock()
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        return await _split(request, body, limits, at)
    return Upload(body, {}, at)


async def read_body(request: Request, limit: int) -> bytearray:
    """The body, at most `limit` bytes of it. Raises `ApiError` (413) beyond that."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise _too_large(limit)
    return body


async def _split(request: Request, body: bytearray, limits: MediaLimits, at: float) -> Upload:
    parser = MultiPartParser(
        request.headers,
        _pieces(body),
        max_files=limits.items,
        max_fields=1,
        max_part_size=limits.body_bytes,
    )
    parser.spool_max_size = limits.body_bytes  # clients' media never touches the disk
    try:
        form = await parser.parse()
    except (MultiPartException, UnicodeDecodeError) as err:
        raise bad_request(f"the multipart form is broken: {err}", code="invalid_form") from err
    try:
        asked = form.get(REQUEST_FIELD)
        if asked is None:
            message = f"the multipart form needs a {REQUEST_FIELD!r} field with the JSON request"
            raise bad_request(message, param=REQUEST_FIELD, code="invalid_form")
        text = await asked.read() if isinstance(asked, UploadFile) else asked.encode()
        items = form.multi_items()
        return Upload(text, await _files(items), at, _digests(items))
    finally:
        await form.close()


async def _files(items: list[tuple[str, UploadFile | str]]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for key, item in items:
        if key == REQUEST_FIELD or not isinstance(item, UploadFile):
            continue
        name = item.filename or ""
        if not name or name in files:
            message = f"each uploaded file needs a name of its own, not {name!r}"
            raise bad_request(message, param=key, code="invalid_form")
        files[name] = await item.read()
    return files


def _digests(items: list[tuple[str, UploadFile | str]]) -> dict[str, ClientDigest]:
    """By file name. Raises `ApiError` for one that is none."""
    digests: dict[str, ClientDigest] = {}
    for _, item in items:
        if not isinstance(item, UploadFile):
            continue
        for header in DIGEST_HEADERS:
            if (said := item.headers.get(header)) is None:
                continue
            try:
                digest = parse(said)
            except DigestError as err:
                message = f"{header} of {item.filename!r}: {err}"
                raise bad_request(message, param=header, code="invalid_digest") from err
            name = item.filename or ""
            earlier = digests[name].said if name in digests else ()
            digests[name] = ClientDigest((*earlier, *digest.said))
    return digests


async def _pieces(body: bytearray) -> AsyncGenerator[bytes, None]:
    """Piece by piece, so that other requests have their turn in between."""
    for start in range(0, len(body), PIECE_BYTES):
        yield bytes(body[start : start + PIECE_BYTES])
        await asyncio.sleep(0)


def _too_large(limit: int) -> ApiError:
    message = f"the body is larger than {limit} bytes (limits.body_bytes): send less"
    return ApiError(413, message, code="body_too_large")
