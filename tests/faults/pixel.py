"""Damage to decoded frames, as broken decoders, drivers and our own mistakes do it."""

from collections.abc import Callable
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

I420 = NDArray[np.uint8]  # (height * 3 // 2, width), one frame


class PixelFault(StrEnum):
    """What happens to the pixels."""

    GREEN = "green"  # all of it: planes of zeros
    HALF_GREEN = "half_green"  # from some row down
    GREY = "grey"  # from some row down, as a decoder fills what it lost
    FROZEN = "frozen"  # the picture stands still though the coded one moves
    STRIDE = "stride"  # rows are read some bytes too long: the picture leans
    PLANES_SWAPPED = "planes_swapped"  # blue for red
    RANGE_DOUBLED = "range_doubled"  # squeezed into the limited range once more


STILL_FAULTS = frozenset(PixelFault) - {PixelFault.FROZEN}
_EARLIEST, _LATEST = 0.2, 0.5  # of the clip: where damage begins


def damaged(
    frames: NDArray[np.uint8], fault: PixelFault, seed: int
) -> tuple[NDArray[np.uint8], int]:
    """The frames `(n, height * 3 // 2, width)` with this fault from some frame on, to the end,
    and which frame that is."""
    random = np.random.default_rng([seed, *fault.encode()])
    first = int(len(frames) * random.uniform(_EARLIEST, _LATEST))
    broken = frames.copy()
    if fault is PixelFault.FROZEN:
        broken[first:] = frames[first]
        return broken, first
    act = _DAMAGE[fault](random)
    for i in range(first, len(frames)):
        broken[i] = act(frames[i])
    return broken, first


def damaged_frame(frame: I420, fault: PixelFault, seed: int) -> I420:
    """One frame with this fault; a frozen one is no damage to a single frame."""
    return _DAMAGE[fault](np.random.default_rng([seed, *fault.encode()]))(frame)


Act = Callable[[I420], I420]


def _planes(frame: I420) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    """Copies of the three planes."""
    height, width = frame.shape[0] * 2 // 3, frame.shape[1]
    luma, size = height * width, height * width // 4
    flat = frame.reshape(-1).copy()
    half = height // 2, width // 2
    return (
        flat[:luma].reshape(height, width),
        flat[luma : luma + size].reshape(half),
        flat[luma + size :].reshape(half),
    )


def _packed(like: I420, *planes: NDArray[np.uint8]) -> I420:
    return np.concatenate([plane.reshape(-1) for plane in planes]).reshape(like.shape)


def _filled(share: float, values: tuple[int, int, int]) -> Act:
    """Everything below `share` of the height in one colour."""

    def act(frame: I420) -> I420:
        planes = _planes(frame)
        for plane, value in zip(planes, values, strict=True):
            plane[int(plane.shape[0] * share) :] = value
        return _packed(frame, *planes)

    return act


def _leaning(step: int) -> Act:
    """Every row starts `step` samples later than it should, half of that in chroma."""

    def act(frame: I420) -> I420:
        return _packed(
            frame, *(_lean(p, step * p.shape[1] // frame.shape[1]) for p in _planes(frame))
        )

    return act


def _lean(plane: NDArray[np.uint8], step: int) -> NDArray[np.uint8]:
    height, width = plane.shape
    at = np.arange(height)[:, None] * (width + step) + np.arange(width)
    return plane.reshape(-1)[at % plane.size]


def _swapped(frame: I420) -> I420:
    y, u, v = _planes(frame)
    return _packed(frame, y, v, u)


def _squeezed(frame: I420) -> I420:
    y, u, v = (plane.astype(np.float32) for plane in _planes(frame))
    scaled = y * 219 / 255 + 16, (u - 128) * 224 / 255 + 128, (v - 128) * 224 / 255 + 128
    return _packed(frame, *(np.rint(plane).astype(np.uint8) for plane in scaled))


_DAMAGE: dict[PixelFault, Callable[[np.random.Generator], Act]] = {
    PixelFault.GREEN: lambda random: _filled(0.0, (0, 0, 0)),
    PixelFault.HALF_GREEN: lambda random: _filled(random.uniform(0.3, 0.7), (0, 0, 0)),
    PixelFault.GREY: lambda random: _filled(random.uniform(0.2, 0.75), (128, 128, 128)),
    PixelFault.STRIDE: lambda random: _leaning(int(random.integers(4, 33)) * 2),
    PixelFault.PLANES_SWAPPED: lambda random: _swapped,
    PixelFault.RANGE_DOUBLED: lambda random: _squeezed,
}
