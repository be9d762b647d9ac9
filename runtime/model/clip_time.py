"""How far the tokens of one clip came to stand from their own times (S2.2)."""

import numpy as np
from numpy.typing import NDArray

from monitors.detectors.model_clock import ClockError
from monitors.labels import Modality
from runtime.model.timeline import to_ms


class ClipTime:
    """`base`: the position of the clip's time 0. Measures positions as they were given out,
    whatever computed them.

    `zero`: where time 0 of the clip's item stands, if another part of that item came before: an
    item that was torn into several clips must not be measured by the clock of each.
    """

    def __init__(self, base: int, units_per_s: float, zero: int | None = None) -> None:
        self.base = base
        self._zero = base if zero is None else zero
        self.worst: ClockError | None = None
        self._units_per_s = units_per_s
        self._starts: dict[Modality, list[float]] = {}  # errors where slices start

    def stood(
        self, modality: Modality, times_ms: NDArray[np.float64], positions: NDArray[np.int64]
    ) -> None:
        """One slice: true times and time positions of its grids or tokens, both `(n,)`."""
        errors = (
            np.array([to_ms(at - self._zero, self._units_per_s) for at in positions]) - times_ms
        )
        self._starts.setdefault(modality, []).append(float(errors[0]))
        worst = int(np.abs(errors).argmax())
        if self.worst is None or abs(errors[worst]) > abs(self.worst.error_ms):
            self.worst = ClockError(
                unit_ms=to_ms(1, self._units_per_s),
                error_ms=float(errors[worst]),
                at_ms=float(times_ms[worst]),
                modality=modality,
            )

    @property
    def av_offset_ms(self) -> float | None:
        """Audio minus video, over where slices start; None for a clip of one stream."""
        sound, picture = self._starts.get(Modality.AUDIO), self._starts.get(Modality.VIDEO)
        if sound is None or picture is None:
            return None
        return float(np.mean(sound) - np.mean(picture))
