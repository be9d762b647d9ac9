"""Decoded media kept of requests in flight, for another resident to start from: within bounds."""


class KeptInputs:
    """Who keeps how much. `max_bytes`: of all requests together."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: dict[str, int] = {}
        self._total = 0

    @property
    def total(self) -> int:
        """Bytes kept now."""
        return self._total

    def keep(self, request_id: str, size: int) -> bool:
        """Whether a request's `size` bytes may be kept; once kept, until it is released."""
        if request_id not in self._kept:
            if self._total + size > self._max_bytes:
                return False
            self._kept[request_id] = size
            self._total += size
        return True

    def release(self, request_id: str) -> None:
        """A request's inputs are gone, if they were kept."""
        self._total -= self._kept.pop(request_id, 0)
