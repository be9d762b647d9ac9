"""What a client may send, and the error that tells it what to mend."""

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from monitors.detectors.finding import Finding

MAX_FRAME_RATE = 240  # a second, over the longest clip: more only keeps the decoder busy


class MediaProblem(StrEnum):
    """Why media was refused: the `code` of the answer."""

    NOT_MEDIA = "not_media"
    NO_STREAM = "no_stream"
    NO_FRAMES = "no_frames"
    UNSUPPORTED = "unsupported_media"
    TOO_LONG = "media_too_long"
    TOO_MANY_PIXELS = "too_many_pixels"
    TOO_MANY_BYTES = "too_many_bytes"
    TOO_SLOW = "media_too_slow"


_DAMAGED = (MediaProblem.NOT_MEDIA, MediaProblem.NO_FRAMES)
_TOO_LARGE = (
    MediaProblem.TOO_LONG,
    MediaProblem.TOO_MANY_PIXELS,
    MediaProblem.TOO_MANY_BYTES,
    MediaProblem.TOO_SLOW,
)


class MediaError(ValueError):
    """Media that cannot be used. `message` is for the client; `param` names its field, and
    `findings` are what detectors saw of it before."""

    def __init__(self, message: str, param: str, code: MediaProblem) -> None:
        super().__init__(f"{param}: {message}")
        self.message = message
        self.param = param
        self.code = code
        self.findings: tuple[Finding, ...] = ()

    @property
    def damaged(self) -> bool:
        """True where the bytes are broken or cut off, as far as can be told."""
        return self.code in _DAMAGED

    @property
    def too_large(self) -> bool:
        """True where a smaller item would be taken (HTTP 413), false where it is unusable."""
        return self.code in _TOO_LARGE


class MediaLimits(Protocol):
    """The limits that decoding obeys; `runtime.settings.MediaLimits` has them."""

    @property
    def clip_seconds(self) -> float: ...
    @property
    def pixels(self) -> int: ...
    @property
    def decode_seconds(self) -> float: ...
    @property
    def decoded_bytes(self) -> int: ...


class Guard:
    """The limits of one item, and `param`, the client's name for it in the request.

    `clock`: monotonic seconds; the time it may take to decode runs from here on.
    """

    def __init__(
        self, limits: MediaLimits, param: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = limits
        self._param = param
        self._clock = clock
        self._until = clock() + limits.decode_seconds

    def refusal(self, code: MediaProblem, message: str) -> MediaError:
        """The error to raise for this item."""
        return MediaError(message, self._param, code)

    def length(self, seconds: float) -> None:
        """Raises `MediaError` when the clip is longer than is taken."""
        if seconds > self._limits.clip_seconds:
            raise self.refusal(
                MediaProblem.TOO_LONG,
                f"is longer than {self._limits.clip_seconds:g} s (limits.clip_seconds): cut it",
            )

    def in_time(self) -> None:
        """Raises `MediaError` when decoding takes too long: others wait for the decoder."""
        if self._clock() > self._until:
            raise self.refusal(
                MediaProblem.TOO_SLOW,
                f"takes more than {self._limits.decode_seconds:g} s to decode "
                "(limits.decode_seconds): send shorter or smaller media",
            )

    def frames(self, count: int) -> None:
        """Raises `MediaError` when a clip has more frames than the longest one could need."""
        most = int(self._limits.clip_seconds * MAX_FRAME_RATE)
        if count > most:
            raise self.refusal(MediaProblem.TOO_LONG, f"has more than {most} video frames: cut it")

    def unpacked(self, total: int) -> None:
        """Raises `MediaError` when media takes more memory than it may; `total`: bytes so far."""
        if total > self._limits.decoded_bytes:
            raise self.refusal(
                MediaProblem.TOO_MANY_BYTES,
                f"unpacks to more than {self._limits.decoded_bytes} bytes "
                "(limits.decoded_bytes): send shorter or smaller media",
            )

    def pixels(self, width: int, height: int) -> None:
        """Raises `MediaError` when a picture is larger than is taken."""
        if width * height > self._limits.pixels:
            raise self.refusal(
                MediaProblem.TOO_MANY_PIXELS,
                f"has {width}x{height} pixels, more than {self._limits.pixels} "
                "(limits.pixels): scale it down",
            )
