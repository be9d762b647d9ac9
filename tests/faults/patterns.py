"""Clean pictures that are hard on what samples pixels: fine patterns, and colours beyond RGB."""

from collections.abc import Iterator, Sequence
from itertools import combinations, islice, product

import numpy as np
from av import VideoFrame
from numpy.typing import NDArray

COLOURS = {
    "black": (0, 0, 0), "white": (255, 255, 255), "grey": (180, 180, 180), "red": (255, 0, 0),
    "green": (0, 255, 0), "blue": (0, 0, 255), "yellow": (255, 255, 0), "magenta": (255, 0, 255),
}  # fmt: skip
BEYOND_RGB = ((235, 60, 200), (16, 240, 240), (235, 16, 16), (128, 0, 255))  # Y, U, V
PERIODS = (3, 4, 5, 8, 16, 20, 40, 45)


def masks(width: int, height: int) -> dict[str, NDArray[np.bool_]]:
    """Where the first of two colours is: lines of a pixel, checkers, dots, stripes."""
    y, x = np.mgrid[:height, :width]
    found = {
        "columns": x % 2 == 0,
        "rows": y % 2 == 0,
        "checkers": (x + y) % 2 == 0,
        "pairs of columns": x % 4 < 2,
        "pairs of rows": y % 4 < 2,
        "dots": (x % 4 == 0) & (y % 4 == 0),
        "noise": np.random.default_rng(1).random((height, width)) < 0.5,
        "a line": x == width // 8,
    }
    for period in PERIODS:
        found[f"stripes of {period}"] = x % period < period // 2
        found[f"lines of {period}"] = y % period < max(1, period // 10)
    return found


def drawn(
    width: int, height: int, layout: str = "yuv420p", each: int = 1
) -> Iterator[tuple[str, VideoFrame]]:
    """Each pattern in each pair of colours, or every so many of them; drawn in RGB, and named."""
    every = product(masks(width, height).items(), combinations(COLOURS, 2))
    for (name, mask), (one, other) in islice(every, None, None, each):
        yield f"{one} and {other} {name} in {layout}", painted(mask, one, other, layout)


def painted(mask: NDArray[np.bool_], one: str, other: str, layout: str = "yuv420p") -> VideoFrame:
    """A mask in two of the colours."""
    picture = np.where(mask[..., None], COLOURS[one], COLOURS[other]).astype(np.uint8)
    return VideoFrame.from_ndarray(picture, format="rgb24").reformat(format=layout)


def wild(
    width: int, height: int, layout: str = "yuv420p", each: int = 1
) -> Iterator[tuple[str, VideoFrame]]:
    """Each pattern, or every so many, between grey and a colour that RGB cannot show, named."""
    every = product(masks(width, height).items(), BEYOND_RGB)
    for (name, mask), colour in islice(every, None, None, each):
        drawn_in = [np.where(mask, c, g) for c, g in zip(colour, (180, 128, 128), strict=True)]
        yield f"{colour} {name} in {layout}", coded(drawn_in, layout)


def extreme(
    width: int, height: int, layout: str = "yuv420p", each: int = 1
) -> Iterator[tuple[str, VideoFrame]]:
    """Each pattern, or every so many, from 0 to the most in luma, and in chroma too but the other
    way round: what clipping takes of one it adds to the other."""
    for name, mask in islice(masks(width, height).items(), None, None, each):
        luma, chroma = np.where(mask, 255, 0), np.where(mask, 0, 255)
        yield f"all or nothing, {name} in {layout}", coded([luma, chroma, chroma], layout)
        yield f"all and all, {name} in {layout}", coded([luma, luma, luma], layout)


def coded(eight_bits: Sequence[NDArray[np.int_]], layout: str) -> VideoFrame:
    """A frame of this layout of three planes `(height, width)` in eight bits: nothing mixed, the
    chroma is that of the first sample of each place."""
    height, width = eight_bits[0].shape
    frame = VideoFrame(width, height, layout)
    depth = 10 if layout.endswith("10le") else 8
    for plane, samples in zip(frame.planes, eight_bits, strict=True):
        down, across = -(-height // plane.height), -(-width // plane.width)
        size = 1 if depth == 8 else 2
        filled = np.zeros((plane.height, plane.line_size // size), np.uint8 if size == 1 else "<u2")
        filled[:, : plane.width] = samples[::down, ::across] << (depth - 8)
        plane.update(filled.tobytes())
    return frame
