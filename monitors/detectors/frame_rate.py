"""The steps between frames: is the rate of a stream constant?"""

import numpy as np
from numpy.typing import NDArray

RATE_SLACK_MS = 1.5  # containers may round time stamps to milliseconds
_RATE_SLACK = 0.1  # of the usual step


def is_constant(steps_ms: NDArray[np.float64], share: float) -> bool:
    """Whether at least this share of the steps is like the usual one. There must be some."""
    usual = np.median(steps_ms)
    alike = np.abs(steps_ms - usual) <= max(RATE_SLACK_MS, _RATE_SLACK * float(usual))
    return bool(alike.mean() >= share)
