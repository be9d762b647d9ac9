"""Clean pictures that are hard on what samples pixels: fine patterns, and colours beyond RGB."""

from collections.abc import Iterator
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


def wild(width: int, height: int, each: int = 1) -> Iterator[tuple[str, VideoFrame]]:
    """Each pattern, or every so many, between grey and a colour that RGB cannot show, named."""
    every = product(masks(width, height).items(), BEYOND_RGB)
    for (name, mask), colour in islice(every, None, None, each):
        planes = [np.where(mask, c, g) for c, g in zip(colour, (180, 128, 128), strict=True)]
        y, u, v = (plane.astype(np.uint8) for plane in planes)
        coded = np.concatenate([y.ravel(), u[::2, ::2].ravel(), v[::2, ::2].ravel()])
        shaped = coded.reshape(height * 3 // 2, width)
        yield f"{colour} {name}", VideoFrame.from_ndarray(shaped, format="yuv420p")
