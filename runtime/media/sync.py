"""What a clip's sound and picture say of each other: measured here, judged by the detectors."""

import numpy as np
from numpy.typing import NDArray

from monitors.detectors import lip_sync
from monitors.detectors.finding import Abstained, Verdict
from monitors.detectors.lip_sync import STEP_MS, LipSignals
from runtime.media.fidelity import MODEL_HZ
from runtime.media.glimpses import Glimpses

_FLOOR = 1e-9  # of power: -90 dB


def judge(seen: Glimpses, sound: NDArray[np.float32]) -> Verdict:
    """The voice against the mouth. `sound`: mono at 16 kHz from time 0 on, empty where a clip has
    none."""
    signals = signals_of(seen, sound)
    if signals is None:
        return Abstained("sound and picture are not both there")
    return lip_sync.judge(signals)


def signals_of(seen: Glimpses, sound: NDArray[np.float32]) -> LipSignals | None:
    """Both on one grid of `STEP_MS`, as long as both last. None where either is missing."""
    times = seen.times_ms
    if len(times) < 2 or not len(sound):
        return None
    frame_ms = float(times[-1] - times[0]) / (len(times) - 1)
    end_ms = min(float(times[-1]) + frame_ms, len(sound) * 1000.0 / MODEL_HZ)
    moments = np.arange(0.0, end_ms, STEP_MS)
    on_screen = np.searchsorted(times, moments + 0.5, side="right") - 1
    return LipSignals(
        level_db=_levels(sound, moments),
        luma=seen.grids[np.maximum(on_screen, 0)],
        fps=1000.0 / frame_ms,
    )


def _levels(sound: NDArray[np.float32], moments_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Loudness over one step around each moment, dB re full scale."""
    edges = np.append(moments_ms - STEP_MS / 2, moments_ms[-1:] + STEP_MS / 2)
    at = np.clip(edges * MODEL_HZ / 1000.0, 0, len(sound)).astype(np.intp)
    energy = np.concatenate([[0.0], np.cumsum(np.square(sound, dtype=np.float64))])[at]
    return 10.0 * np.log10(np.diff(energy) / np.maximum(1, np.diff(at)) + _FLOOR)
