"""What the streams of a clip have in common: their place on the axis, their limits, errors."""

from fractions import Fraction

from av.audio.stream import AudioStream
from av.video.stream import VideoStream

from runtime.media.clock import to_ms
from runtime.media.limits import Guard


class Track:
    """What every stream has: its place on the axis, its limits, its errors."""

    def __init__(self, stream: VideoStream | AudioStream, origin_ms: float, guard: Guard) -> None:
        self.index = stream.index
        self.codec = stream.codec_context.codec.canonical_name
        self.start_ms: float | None = None  # of the first decoded frame
        self._time_base = stream.time_base or Fraction(1, 1000)
        self._origin_ms = origin_ms
        self._guard = guard

    def _at(self, pts: int) -> float:
        """Where on the axis a time stamp is. Raises `MediaError` beyond the longest clip, or when
        decoding has taken too long."""
        self._guard.in_time()
        ms = to_ms(pts, self._time_base) - self._origin_ms
        self._guard.length(ms / 1000.0)
        return ms
