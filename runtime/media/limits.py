"""What a client may send, and the error that tells it what to mend."""

from enum import StrEnum
from typing import Protocol

MAX_FRAME_RATE = 240  # a second, over the longest clip: more only keeps the decoder busy


class MediaProblem(StrEnum):
    """Why media was refused: the `code` of the answer."""

    NOT_MEDIA = "not_media"
    NO_STREAM = "no_stream"
    NO_FRAMES = "no_frames"
    UNSUPPORTED = "unsupported_media"
    TOO_LONG = "media_too_long"
    TOO_MANY_PIXELS = "too_many_pixels"


class MediaError(ValueError):
    """Media that cannot be used. `message` is for the client; `param` names its field."""

    def __init__(self, message: str, param: str, code: MediaProblem) -> None:
        super().__init__(f"{param}: {message}")
        self.message = message
        self.param = param
        self.code = code

    @property
    def too_large(self) -> bool:
        """True where a smaller item would be taken (HTTP 413), false where it is unusable."""
        return self.code in (MediaProblem.TOO_LONG, MediaProblem.TOO_MANY_PIXELS)


class MediaLimits(Protocol):
    """The limits that decoding obeys; `runtime.settings.MediaLimits` has them."""

    @property
    def clip_seconds(self) -> float: ...
    @property
    def pixels(self) -> int: ...


class Guard:
    """The limits of one item, and `param`, the client's name for it in the request."""

    def __init__(self, limits: MediaLimits, param: str) -> None:
        self._limits = limits
        self._param = param

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

    def frames(self, count: int) -> None:
        """Raises `MediaError` when a clip has more frames than the longest one could need."""
        most = int(self._limits.clip_seconds * MAX_FRAME_RATE)
        if count > most:
            raise self.refusal(MediaProblem.TOO_LONG, f"has more than {most} video frames: cut it")

    def pixels(self, width: int, height: int) -> None:
        """Raises `MediaError` when a picture is larger than is taken."""
        if width * height > self._limits.pixels:
            raise self.refusal(
                MediaProblem.TOO_MANY_PIXELS,
                f"has {width}x{height} pixels, more than {self._limits.pixels} "
                "(limits.pixels): scale it down",
            )
