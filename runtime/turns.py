"""From a request's content to the turns an engine takes: text, and media cut into slices."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import unquote_to_bytes

from monitors.detectors import refusal
from monitors.detectors.finding import Finding, examine, joined
from monitors.labels import Detector, Modality
from monitors.redlines import SchedulerLines
from runtime.media.client_digest import ClientDigest
from runtime.media.decode import decode
from runtime.media.fidelity import Fidelity
from runtime.media.limits import Guard, MediaError
from runtime.media.slices import AudioSlice, ImageSlice, Slice, VideoSlice
from runtime.openai_api import (
    AudioContent,
    ChatRequest,
    ImageContent,
    MediaContent,
    Message,
    TextContent,
    VideoContent,
)
from runtime.openai_errors import ApiError, bad_request
from runtime.residents.port import Array, AudioPart, ImagePart, Part, TextPart, Turn, VideoPart
from runtime.settings import MediaLimits

_DATA_URL = re.compile(r"data:[\w.+-]*/?[\w.+-]*(?:;[\w.+-]+=[^;,]*)*(;base64)?,", re.ASCII)
_ATTACHMENT = "attachment:"
_NOT_AS_SENT = "Its bytes are not those that its digest names: send it again"
_BASE64_PIECE = 256 * 1024  # letters; all at once, a large file would hold up every request

Files = Mapping[str, bytes]  # uploads by name, fetched media by URL


@dataclass
class Prompt:
    """The turns of one request, the arrays they point at, and what detectors say of its media."""

    turns: tuple[Turn, ...] = ()
    arrays: list[Array] = field(default_factory=list[Array])
    findings: list[Finding] = field(default_factory=list[Finding])
    items: int = 0  # of media, so far


@dataclass(frozen=True)
class Decoding:
    """How media is to be decoded for one request. `digests`: what the headers of uploads say of
    their bytes, by file name."""

    limits: MediaLimits
    fidelity: Fidelity
    fps: float
    slices: SchedulerLines
    digests: Mapping[str, ClientDigest] = field(default_factory=dict[str, ClientDigest])


def build(asked: ChatRequest, files: Files, how: Decoding, prompt: Prompt) -> None:
    """Decodes all media of a request into `prompt`, an empty one. Blocks: call it in a thread.

    Raises `ApiError`; then `prompt` has what was found of the media until then.
    """
    turns: list[Turn] = []
    for index, message in enumerate(asked.messages):
        parts = _parts(message, f"messages.{index}.content", files, how, prompt)
        role = "system" if message.role == "developer" else message.role
        turns.append(Turn(role=role, parts=tuple(parts)))
    prompt.turns = tuple(turns)


def addresses(asked: ChatRequest) -> dict[str, str]:
    """Media that the request only names: each `http` URL, and a field that names it."""
    return {
        url: f"{param}.{kind}_url"
        for index, message in enumerate(asked.messages)
        for kind, url, param in _urls(message, f"messages.{index}.content")
        if url.lower().startswith(("http://", "https://"))
    }


def _urls(message: Message, param: str) -> Iterator[tuple[str, str, str]]:
    for index, content in enumerate(message.content):
        match content:
            case ImageContent():
                yield "image", content.image_url.url, f"{param}.{index}"
            case VideoContent():
                yield "video", content.video_url.url, f"{param}.{index}"
            case _:
                pass


def texts(message: Message) -> list[str]:
    """The text parts of one turn."""
    return [part.text for part in message.content if isinstance(part, TextContent)]


def has_video(asked: ChatRequest) -> bool:
    """Whether the third milestone (S4.2) is due."""
    return any(isinstance(p, VideoContent) for m in asked.messages for p in m.content)


def _parts(message: Message, param: str, files: Files, how: Decoding, prompt: Prompt) -> list[Part]:
    parts: list[Part] = []
    for index, content in enumerate(message.content):
        if isinstance(content, TextContent):
            parts.append(TextPart(text=content.text))
        else:
            parts += _media(content, f"{param}.{index}", files, how, prompt)
    return parts


def _media(
    content: MediaContent, param: str, files: Files, how: Decoding, prompt: Prompt
) -> list[Part]:
    match content:
        case VideoContent():
            kind, param, said = "video", f"{param}.video_url", content.video_url.digest
            reference = content.video_url.url
            data = _fetch(reference, param, files)
        case ImageContent():
            kind, param, said = "image", f"{param}.image_url", content.image_url.digest
            reference = content.image_url.url
            data = _fetch(reference, param, files)
        case AudioContent():
            kind, param, said = "audio", f"{param}.input_audio", content.input_audio.digest
            reference = content.input_audio.data
            data = _audio_bytes(reference, param, files)
    checked = list(_checked(data, Modality(kind), said, how.digests.get(_name(reference))))
    try:
        clip = decode(
            data,
            kind=kind,
            limits=how.limits,
            fidelity=how.fidelity,
            param=param,
            fps=how.fps,
            lines=how.slices,
        )
        parts = [_part(piece, prompt) for piece in clip.slices]
        Guard(how.limits, param).unpacked(sum(array.nbytes for array in prompt.arrays))
    except MediaError as err:
        damaged = any(finding.faults for finding in checked)
        message = f"{err}. {_NOT_AS_SENT}" if damaged else str(err)
        prompt.findings += joined(*err.findings, *checked, *_refused(err, Modality(kind)))
        status = 413 if err.too_large else 400
        raise ApiError(status, message, code=err.code, param=err.param) from err
    prompt.items += 1
    prompt.findings += joined(*clip.report.findings, *checked)
    return parts


def _checked(data: bytes, modality: Modality, *said: ClientDigest | None) -> Iterator[Finding]:
    """Whether an item's bytes are those that its client means, where it tells."""
    for digest in said:
        if digest is not None and digest.said:
            yield examine(Detector.BITSTREAM, partial(digest.faults, data, modality))


def _refused(err: MediaError, modality: Modality) -> Iterator[Finding]:
    """What is only too much of it is no fault of it."""
    if not err.too_large:
        judge = partial(refusal.faults, modality, err.code, damaged=err.damaged)
        yield examine(Detector.BITSTREAM, judge)


def _name(reference: str) -> str:
    """Of the upload that a content part points at."""
    return reference.removeprefix(_ATTACHMENT) if reference.startswith(_ATTACHMENT) else ""


def _part(piece: Slice, prompt: Prompt) -> Part:
    arrays, index = prompt.arrays, len(prompt.arrays)
    match piece:
        case VideoSlice():
            arrays.append(piece.frames)
            return VideoPart(
                index=index,
                start_ms=piece.start_ms,
                pts_ms=piece.pts_ms,
                grid_ms=piece.grid_ms,
                digest=piece.digest,
                key_frame=piece.key_frame,
                signature=piece.signature,
                item=prompt.items,
            )
        case AudioSlice():
            arrays.append(piece.pcm)
            return AudioPart(
                index=index, start_ms=piece.start_ms, digest=piece.digest, item=prompt.items
            )
        case ImageSlice():
            arrays.append(piece.pixels)
            return ImagePart(index=index, digest=piece.digest)


def _fetch(url: str, param: str, files: Files) -> bytes:
    if url.startswith(_ATTACHMENT):
        return _attached(url, param, files)
    if url in files:
        return files[url]
    head = _DATA_URL.match(url)
    if head is None:
        shown = url[:40] + ("…" if len(url) > 40 else "")
        raise bad_request(
            f"{param}: {shown!r} is not taken: send a data: URL, or upload the file and name it "
            "attachment:NAME (http addresses are fetched only with the server's setting "
            "remote_media)",
            param=param,
            code="unsupported_url",
        )
    if head[1]:
        return _base64(url, param, head.end())
    return unquote_to_bytes(url[head.end() :])


def _audio_bytes(data: str, param: str, files: Files) -> bytes:
    if data.startswith(_ATTACHMENT):
        return _attached(data, param, files)
    return _fetch(data, param, files) if data.startswith("data:") else _base64(data, param, 0)


def _attached(reference: str, param: str, files: Files) -> bytes:
    name = reference.removeprefix(_ATTACHMENT)
    if name not in files:
        there = ", ".join(sorted(files)) or "none: send multipart/form-data with the file in it"
        raise bad_request(
            f"{param}: no uploaded file is called {name!r}; there are: {there}",
            param=param,
            code="attachment_not_found",
        )
    return files[name]


def _base64(text: str, param: str, start: int) -> bytes:
    """What stands from `start` on, piece by piece: a single call would keep the interpreter."""
    end = len(text)
    padding = text.count("=", max(start, end - 2))
    try:
        data = b"".join(
            base64.b64decode(text[at : at + _BASE64_PIECE], validate=True)
            for at in range(start, end, _BASE64_PIECE)
        )
        if len(data) != (end - start) // 4 * 3 - padding:
            raise ValueError("padding inside")
    except (binascii.Error, ValueError) as err:
        raise bad_request(
            f"{param}: is not base64 ({err})", param=param, code="invalid_base64"
        ) from err
    return data
