"""The planes of a decoded frame as numpy views: nothing is copied, nothing is converted."""

from typing import Any, NamedTuple

import numpy as np
from av import VideoFrame
from av.video.plane import VideoPlane
from numpy.typing import NDArray

Samples = NDArray[np.uint8 | np.uint16]

_EIGHT = "yuv420p", "yuvj420p", "yuva420p", "yuv422p", "yuvj422p", "yuv444p", "yuvj444p"
_DEPTHS = dict.fromkeys(_EIGHT, 8) | {
    f"yuv{layout}p{depth}le": depth for layout in (420, 422, 444) for depth in (10, 12)
}


class Planes(NamedTuple):
    """Luma `(height, width)` and both chroma planes, which may be smaller, with `depth` bits a
    sample. Views of the decoder's memory: look while the frame lives, never write."""

    y: Samples
    u: Samples
    v: Samples
    depth: int


def planes(frame: VideoFrame) -> Planes | None:
    """None for a pixel format that is not planar YUV in a layout known here."""
    depth = _DEPTHS.get(frame.format.name)
    if depth is None:
        return None
    y, u, v = (_view(plane, depth) for plane in frame.planes[:3])
    return Planes(y, u, v, depth)


def luma(frame: VideoFrame) -> tuple[Samples, int] | None:
    """The luma plane `(height, width)` and its bits a sample; None as `planes` has it."""
    depth = _DEPTHS.get(frame.format.name)
    if depth is None:
        return None
    return _view(frame.planes[0], depth), depth


def _view(plane: VideoPlane, depth: int) -> Samples:
    memory: Any = plane  # a buffer, though its stub does not say so
    samples = np.frombuffer(memory, np.uint8 if depth == 8 else np.uint16)
    return samples.reshape(plane.height, -1)[:, : plane.width]
