"""The one port between the gateway and whatever serves a resident, and its message types.

A local engine process speaks these over a Unix socket (msgpack, arrays as extra frames); an
adapter to a remote server turns them into that server's HTTP. Times are `time.monotonic()` of
the host, which processes of one machine share.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitors.cache_table import CacheCell
from monitors.contract import (
    DrillOrder,
    DrillReport,
    Epoch,
    FlushReceipt,
    KvRung,
    Name,
    Shed,
    Wire,
)
from monitors.detectors.model_clock import ClockError
from monitors.detectors.speaking_time import VoiceModel
from monitors.labels import Modality, Stage

Array = NDArray[Any]


# ---------------------------------------------------------------- the prompt
class TextPart(Wire, frozen=True, tag="text"):
    text: str


class AudioPart(Wire, frozen=True, tag="audio"):
    """One slice of audio. Array `index`: float32 mono `(samples,)` at 16 kHz."""

    index: int
    start_ms: int
    digest: str  # chained over the slices of one item, after the fidelity transform
    item: int | None = None  # which media item of its request; None: told by the times alone


class VideoPart(Wire, frozen=True, tag="video"):
    """One slice of video. Array `index`: uint8 RGB `(frames, height, width, 3)`.

    `pts_ms[i]` is the true time of frame i; `grid_ms` the spacing the sampler aimed at.
    """

    index: int
    start_ms: int
    pts_ms: tuple[int, ...]
    grid_ms: float
    digest: str
    key_frame: bool  # holds the first key frame of its item: prefilling it is a milestone
    signature: tuple[int, ...] = ()  # block means, to check what the engine received
    item: int | None = None  # as of `AudioPart`


class ImagePart(Wire, frozen=True, tag="image"):
    """Array `index`: uint8 RGB `(height, width, 3)`."""

    index: int
    digest: str


Part = TextPart | AudioPart | VideoPart | ImagePart


class Turn(Wire, frozen=True):
    role: Literal["system", "user", "assistant"]
    parts: tuple[Part, ...]


class Generate(Wire, frozen=True, tag="generate"):
    """One request. Slices of a clip stand in time order, audio after video of the same stretch."""

    request_id: str
    session: str
    turns: tuple[Turn, ...]
    max_tokens: int
    speech: bool  # False bypasses the Talker (S3.4)
    voice: str
    salt: str  # tenant salt of the cache keys
    cache_write: bool = True  # a probe reads the cache and leaves no trace
    probe_epoch: Epoch | None = None  # a flushed epoch, under whose keys it must miss as well
    traceparent: str | None = None  # W3C: the parent of any span that the engine makes itself
    tracestate: str | None = None

    def trace_headers(self) -> dict[str, str]:
        """The same as HTTP headers, for an engine behind a server of its own."""
        given = {"traceparent": self.traceparent, "tracestate": self.tracestate}
        return {name: value for name, value in given.items() if value is not None}


# ---------------------------------------------------------------- commands
class Cancel(Wire, frozen=True, tag="cancel"):
    request_id: str


class SetKv(Wire, frozen=True, tag="set_kv"):
    """Quantisation fallback (S4.1): INT8 turns live pages to int8, NATIVE writes native again."""

    kv: KvRung


class SetShed(Wire, frozen=True, tag="set_shed"):
    """Shedding (S2.4): with ON, text-lane work is dropped while the engine is too busy."""

    shed: Shed


class Flush(Wire, frozen=True, tag="flush"):
    min_pool_epoch: Epoch


class CountStale(Wire, frozen=True, tag="count_stale"):
    """How much of any epoch before `pool_epoch` the engine still holds."""

    pool_epoch: Epoch


class Observe(Wire, frozen=True, tag="observe"):
    pass


class Drill(Wire, frozen=True, tag="drill"):
    order: DrillOrder


class Close(Wire, frozen=True, tag="close"):
    pass


Command = Generate | Cancel | SetKv | SetShed | Flush | CountStale | Observe | Drill | Close


# ---------------------------------------------------------------- events of a request
class VideoPrefilled(Wire, frozen=True, tag="video_prefilled"):
    """The first key frame's tokens are in the Thinker (S4.2's third milestone)."""

    request_id: str
    at: float
    mean_abs_error: float | None = None  # received against sent signature; None: not sent
    max_abs_error: float | None = None


class TextDelta(Wire, frozen=True, tag="text_delta"):
    request_id: str
    text: str
    tokens: int


class AudioDelta(Wire, frozen=True, tag="audio_delta"):
    """`pcm`: int16 little-endian mono at 24 kHz, from `frames` codec frames."""

    request_id: str
    pcm: bytes
    frames: int


class Residency(Wire, frozen=True):
    """Attention mass of one request, by modality: found on the device, and looked up."""

    modality: Modality
    hit_mass: float
    lookup_mass: float


class EngineStage(Wire, frozen=True):
    """When one stage of a request began and ended, on the host's monotonic clock. `busy_s`: how
    much of that was work on this request (None: it only waited); stages overlap, and wait for
    other requests."""

    stage: Stage
    began: float
    ended: float
    busy_s: float | None = None


class Finished(Wire, frozen=True, tag="request_finished"):
    """`stages`: as far as the engine can tell."""

    request_id: str
    text_reason: Literal["stop", "length"]
    speech_reason: Literal["stop", "length"] | None  # None: no speech was asked for
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    codec_frames: int
    samples: int
    av_offset_ms: float | None  # audio minus video on the model's clock; None: not both present
    residency: tuple[Residency, ...]
    stages: tuple[EngineStage, ...] = ()
    stale_tokens: int | None = None  # found under `probe_epoch`'s keys; None: not looked for
    clock_error: ClockError | None = None  # on the model's clock; None: no clip, or not told


FailedKind = Literal["bad_request", "shed", "overloaded", "engine", "lost", "cancelled"]


class Failed(Wire, frozen=True, tag="request_failed"):
    """`bad_request`: the client can mend it (prompt too long, say); `shed`: dropped by order, as
    the machine is too busy (S2.4); `overloaded`: no room, though nobody ordered it."""

    request_id: str
    kind: FailedKind
    message: str
    stages: tuple[EngineStage, ...] = ()


RequestEvent = VideoPrefilled | TextDelta | AudioDelta | Finished | Failed


# ---------------------------------------------------------------- answers and state
class Capabilities(Wire, frozen=True):
    """What this engine and version can do, and what it cannot observe (then: unknown)."""

    flush: bool
    probe: bool
    quantise_kv: bool
    drills: bool
    observes_residency: bool
    observes_video_prefill: bool


class Ready(Wire, frozen=True, tag="ready"):
    version: str
    weights_digest: str
    pool_epoch: Epoch
    layers: int
    page_bytes: int
    pool_pages: int
    samples_per_frame: int  # of speech, at 24 kHz: what each codec frame must give
    capabilities: Capabilities
    voices: dict[str, VoiceModel] = msgspec.field(default_factory=dict[str, VoiceModel])  # if known
    uncached_tokens: int = 0  # a prompt no longer than this may leave nothing in the cache


class ShadowCount(Wire, frozen=True):
    """Answers under reuse that were run again on full KV. `nats`: the sum of their mean
    divergences; `agreed`: of their `tokens`, how many were the likeliest in both runs."""

    checks: int = 0
    nats: float = 0.0
    tokens: int = 0
    agreed: int = 0
    trips: int = 0


class Snapshot(Wire, frozen=True, tag="snapshot"):
    """What only the engine knows (table 1 and the scheduler), sent about once a second."""

    pool_epoch: Epoch
    kv: KvRung
    cells: tuple[CacheCell, ...]
    prefix_hit_tokens: int
    prefix_lookup_tokens: int
    prefix_evictions: int
    encoder_hits: int
    encoder_lookups: int
    reserved_bytes: int
    device_bytes: int | None  # by the device's own allocator; None: it has none
    table_entries: int  # of running requests
    block_fill: float | None
    running: int
    waiting: int
    busy_s: float
    steps: int
    reuse: str  # "on", or "off: " and why
    live_sequences: int
    shadow: ShadowCount = ShadowCount()
    live_native_bytes: int | None = None  # what is live, were no page quantised by order
    faults: tuple[str, ...] = ()  # broken pool invariants, in words; empty is good


class StaleCount(Wire, frozen=True, tag="stale"):
    pool_epoch: Epoch
    pages: int
    host_pages: int
    encoder_outputs: int
    talker_states: int


class Flushed(Wire, frozen=True, tag="flushed"):
    receipt: FlushReceipt


class KvSet(Wire, frozen=True, tag="kv_set"):
    kv: KvRung
    pages: int


class Drilled(Wire, frozen=True, tag="drilled"):
    report: DrillReport


class Refused(Wire, frozen=True, tag="refused"):
    error: str


Reply = Flushed | StaleCount | KvSet | Drilled | Snapshot | Refused


class CommandFrame(Wire, frozen=True):
    """Gateway to engine. `call` numbers commands that want a reply; 0 wants none."""

    call: int
    command: Command


class EventFrame(Wire, frozen=True):
    """Engine to gateway: a request's event, a reply to `call`, or news of its own (`call` 0)."""

    call: int
    event: RequestEvent | Reply | Ready


class ResidentError(RuntimeError):
    """The resident refused or failed a command; the message is for the operator."""


class Resident(Protocol):
    """A loaded model version with its pool, wherever it runs."""

    name: Name

    async def load(self) -> Ready: ...
    def generate(
        self, request: Generate, arrays: Sequence[Array]
    ) -> AsyncIterator[RequestEvent]: ...
    async def observe(self) -> Snapshot: ...
    async def set_kv(self, kv: KvRung) -> int: ...
    async def set_shed(self, shed: Shed) -> None: ...
    async def flush(self, min_pool_epoch: int) -> FlushReceipt: ...
    async def count_stale(self, pool_epoch: int) -> StaleCount: ...
    async def drill(self, order: DrillOrder) -> DrillReport: ...
    async def close(self) -> None: ...


command_encoder = msgspec.msgpack.Encoder()
command_decoder = msgspec.msgpack.Decoder(CommandFrame)
event_encoder = msgspec.msgpack.Encoder()
event_decoder = msgspec.msgpack.Decoder(EventFrame)


class ArrayHeader(Wire, frozen=True):
    dtype: str
    shape: tuple[int, ...]


def pack(command: CommandFrame, arrays: Sequence[Array]) -> list[bytes | memoryview]:
    """Frames of one command: the message, then for each array its header and its bytes."""
    frames: list[bytes | memoryview] = [command_encoder.encode(command)]
    for array in arrays:
        solid = np.ascontiguousarray(array)
        header = ArrayHeader(dtype=solid.dtype.str, shape=tuple(solid.shape))
        frames += [msgspec.msgpack.encode(header), solid.data.cast("B")]
    return frames


def unpack(frames: Sequence[bytes]) -> tuple[CommandFrame, list[Array]]:
    """Inverse of `pack`. Raises `msgspec.DecodeError` on anything else."""
    command = command_decoder.decode(frames[0])
    arrays: list[Array] = []
    for header_frame, data in zip(frames[1::2], frames[2::2], strict=True):
        header = msgspec.msgpack.decode(header_frame, type=ArrayHeader)
        arrays.append(np.frombuffer(data, dtype=header.dtype).reshape(header.shape))
    return command, arrays
