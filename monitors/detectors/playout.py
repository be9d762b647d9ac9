"""The playout clock: silence that a listener who plays packets as they arrive would hear."""


class PlayoutClock:
    """Plays one speech stream from its first packet on, `prebuffer_s` behind it."""

    def __init__(self, sample_rate: int, prebuffer_s: float = 0.0) -> None:
        self._rate = sample_rate
        self._prebuffer_s = prebuffer_s
        self._empty_at: float | None = None
        self.underrun_s = 0.0
        self.speech_s = 0.0

    def feed(self, at: float, samples: int) -> float:
        """Takes a packet that arrived `at` (seconds, any clock); returns the silence before it."""
        if self._empty_at is None:
            self._empty_at = at + self._prebuffer_s
        silence = max(0.0, at - self._empty_at)
        seconds = samples / self._rate
        self._empty_at += silence + seconds
        self.underrun_s += silence
        self.speech_s += seconds
        return silence
