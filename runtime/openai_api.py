"""What a chat completion request may say: OpenAI's form, with video and uploaded files."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from runtime.media.client_digest import ClientDigest, DigestError
from runtime.media.client_digest import parse as parse_digest
from runtime.openai_errors import bad_request, from_validation
from runtime.settings import MediaLimits

MODEL = "redline"  # the one served name; the router picks the version behind it

Short = Annotated[str, Field(min_length=1, max_length=128)]


def _digest(given: object) -> ClientDigest | None:
    if given is None or isinstance(given, ClientDigest):
        return given
    if not isinstance(given, str):
        raise PydanticCustomError("digest", "a digest is a string like sha-256=:BASE64:")
    try:
        return parse_digest(given)
    except DigestError as err:
        raise PydanticCustomError("digest", "{why}", {"why": str(err)}) from err


Digest = Annotated[ClientDigest | None, BeforeValidator(_digest)]
"""What the client says the item's bytes are (RFC 9530); None: nothing."""


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TextContent(_Body):
    type: Literal["text"]
    text: str


class Url(_Body):
    """A `data:` URL, or `attachment:NAME` for a file of the same multipart upload."""

    url: str
    detail: Literal["auto", "low", "high"] = "auto"  # taken for compatibility: the rung decides
    digest: Digest = None


class ImageContent(_Body):
    type: Literal["image_url"]
    image_url: Url


class VideoContent(_Body):
    type: Literal["video_url"]
    video_url: Url


class InputAudio(_Body):
    """`data`: base64, or `attachment:NAME`. `format` is taken as a hint: the bytes decide."""

    data: str
    format: Short = "wav"
    digest: Digest = None


class AudioContent(_Body):
    type: Literal["input_audio"]
    input_audio: InputAudio


MediaContent = ImageContent | VideoContent | AudioContent
Content = Annotated[TextContent | MediaContent, Field(discriminator="type")]


class Message(_Body):
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[list[Content], Field(min_length=1)]
    name: Short | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _text_is_one_part(cls, content: object) -> object:
        return [{"type": "text", "text": content}] if isinstance(content, str) else content


class StreamOptions(_Body):
    include_usage: bool = False


class Speech(_Body):
    """The voice of the answer, and the form its audio takes."""

    voice: Short = "ethan"
    format: Literal["pcm16", "wav"] | None = None  # None: pcm16 in a stream, else wav


class ChatRequest(_Body):
    """`POST /v1/chat/completions`. Decoding is greedy: the sampling fields change nothing."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1)]
    modalities: Annotated[list[Literal["text", "audio"]], Field(min_length=1)] = ["text"]
    audio: Speech | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    user: Short | None = None
    n: Literal[1] = 1
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    seed: int | None = None
    metadata: dict[str, str] | None = None
    store: Literal[False] | None = None

    @property
    def speech(self) -> bool:
        """Whether the Talker is wanted at all (S3.4)."""
        return "audio" in self.modalities

    @property
    def voice(self) -> str:
        return (self.audio or Speech()).voice

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def tokens(self, default: int) -> int:
        """The most tokens the answer may have."""
        return self.max_completion_tokens or self.max_tokens or default


def parse(body: bytes | bytearray, limits: MediaLimits) -> ChatRequest:
    """The request in `body`. Raises `ApiError` that names the field, or the limit it breaks."""
    try:
        asked = ChatRequest.model_validate_json(body)
    except ValidationError as err:
        raise from_validation(err) from err
    _require_served(asked)
    _require_within(asked, limits)
    return asked


def _require_served(asked: ChatRequest) -> None:
    if asked.model != MODEL:
        message = f"there is no model {asked.model!r}; the one served here is {MODEL!r}"
        error = bad_request(message, param="model", code="model_not_found")
        error.status = 404
        raise error
    if "text" not in asked.modalities:
        raise bad_request('modalities: must contain "text"', param="modalities")
    if asked.audio is not None and not asked.speech:
        raise bad_request('audio: needs "audio" among the modalities', param="audio")
    if asked.stream and asked.audio is not None and asked.audio.format == "wav":
        raise bad_request('audio.format: a stream carries "pcm16" only', param="audio.format")


def _require_within(asked: ChatRequest, limits: MediaLimits) -> None:
    parts = [part for message in asked.messages for part in message.content]
    chars = sum(len(part.text) for part in parts if isinstance(part, TextContent))
    items = sum(not isinstance(part, TextContent) for part in parts)
    for what, count, limit, setting, param in (
        ("characters of text", chars, limits.prompt_chars, "prompt_chars", "messages"),
        ("media items", items, limits.items, "items", "messages"),
        ("tokens", asked.tokens(1), limits.max_tokens, "max_tokens", "max_tokens"),
    ):
        if count > limit:
            raise bad_request(
                f"{count} {what} asked for, at most {limit} are taken (limits.{setting})",
                param=param,
                code="limit_exceeded",
            )
