"""What a data plane is told at start: addresses, residents, limits. Unknown keys stop it."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from monitors.labels import Storage
from monitors.redlines import RedLines

Positive = Annotated[int, Field(gt=0)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MediaLimits(_Settings):
    """What a client may send; beyond it the answer is a 413 or 400 that names the limit."""

    body_bytes: Positive = 64 * 1024 * 1024
    clip_seconds: Annotated[float, Field(gt=0.0)] = 120.0
    pixels: Positive = 3840 * 2160
    items: Positive = 16
    decode_seconds: Annotated[float, Field(gt=0.0)] = 30.0  # of a decoder, for one item
    decoded_bytes: Positive = 1024**3  # of one request's media, as pixels and samples
    held_bytes: Positive = 4 * 1024**3  # the same of all requests in flight
    replay_bytes: Positive = 2 * 1024**3  # of that, what is kept while a resident answers
    prompt_chars: Positive = 100_000
    max_tokens: Positive = 256


class ResidentSpec(_Settings):
    """One resident: a checkpoint folder and the pool it gets on its device.

    `device`: where it runs; "auto" is the machine's CUDA device where it has one, else the CPU.
    `storage`: the form that complete KV blocks are packed into; "subspace" needs the bases that
    `redline bases` puts beside the checkpoint.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    checkpoint: Path
    pool_mb: Annotated[float, Field(gt=0.0)] = 24.0
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:[0-9]+)?)$")] = "auto"
    storage: Storage = Storage.NATIVE


class TraceSettings(_Settings):
    """Off by default; with an endpoint, traces of requests go there as OTLP over HTTP.

    `sample_ratio`: the share of ordinary requests whose trace is kept; those that crossed a line,
    were found faulty or ended badly always are. `capture_content`: traces also carry the text of
    prompts and answers, of which nothing is kept anywhere else.
    """

    endpoint: Annotated[str, Field(pattern="^https?://[^/]")] | None = None
    sample_ratio: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    capture_content: bool = False

    @model_validator(mode="after")
    def _content_goes_somewhere(self) -> "TraceSettings":
        if self.capture_content and self.endpoint is None:
            raise ValueError("capture_content: needs an endpoint, content goes into traces alone")
        return self


class RuntimeSettings(_Settings):
    """Everything `runtime.gateway.serve` needs."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    state_dir: Path
    log_dir: Path | None = None  # of the engines, each in NAME.log; None: in `state_dir`
    residents: tuple[ResidentSpec, ...]
    stable: str
    canary: str | None = None
    control_token: str | None = None  # None: `/control` answers to loopback only
    drills: bool = False
    remote_media: bool = False  # whether `http` URLs of media are fetched (runtime/remote.py)
    default_max_tokens: Positive = 64
    video_fps: Annotated[float, Field(gt=0.0)] = 2.0
    limits: MediaLimits = MediaLimits()
    lines: RedLines = RedLines()
    trace: TraceSettings = TraceSettings()

    @model_validator(mode="after")
    def _roles_exist(self) -> "RuntimeSettings":
        names = [r.name for r in self.residents]
        versions = [r.version for r in self.residents]
        if len(set(names)) != len(names) or len(set(versions)) != len(versions):
            raise ValueError("residents: names and versions must differ from each other")
        if self.stable not in names:
            raise ValueError(f"stable: no resident is called {self.stable!r}; there are {names}")
        if self.canary is not None and (self.canary not in names or self.canary == self.stable):
            raise ValueError(f"canary: must name another resident than {self.stable!r}")
        return self
