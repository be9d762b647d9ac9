"""Clean video that is hard for a fault detector: by kind and seed, without a file on disk."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.uint8]
Yuv = tuple[Plane, Plane, Plane]  # limited range, chroma at half the sides

FRAME_MS = 40
CUT_EVERY = 6  # frames
UNEVEN_STEPS_MS = (20, 33, 120, 40, 66, 100)


class Content(StrEnum):
    """What the footage shows. Each has fooled, or could fool, some rule."""

    NOISE = "noise"  # sensor noise over a moving scene: no two frames alike
    CUTS = "cuts"  # a new scene every six frames
    DARK = "dark"  # near black, with grain
    SLIDES = "slides"  # still for half a second or more, then all new; may be mid grey or green
    SCREEN = "screen"  # text that scrolls, sharp edges
    FADES = "fades"  # through black
    MOTION = "motion"  # a textured scene that pans, with things that move through it
    UNEVEN = "uneven"  # the same at a variable frame rate
    FLASHES = "flashes"  # single white or black frames


@dataclass(frozen=True, eq=False)
class Footage:
    """`frames`: uint8 I420 `(n, height * 3 // 2, width)`, shown at `times_ms`."""

    content: Content
    frames: NDArray[np.uint8]
    times_ms: tuple[int, ...]

    @property
    def width(self) -> int:
        return self.frames.shape[2]

    @property
    def height(self) -> int:
        return self.frames.shape[1] * 2 // 3


def footage(
    content: Content, seed: int, *, width: int = 320, height: int = 180, count: int = 50
) -> Footage:
    """The footage of this kind and seed. Sides must be even."""
    random = np.random.default_rng([seed, *content.encode()])
    drawn = _DRAW[content](random, width, height, count)
    frames = np.stack([_packed(frame) for _, frame in zip(range(count), drawn, strict=False)])
    steps = UNEVEN_STEPS_MS if content is Content.UNEVEN else (FRAME_MS,)
    times = accumulate((steps[i % len(steps)] for i in range(count - 1)), initial=0)
    return Footage(content, frames, tuple(times))


def _packed(frame: Yuv) -> NDArray[np.uint8]:
    return np.concatenate([plane.reshape(-1) for plane in frame]).reshape(-1, frame[0].shape[1])


# ---------------------------------------------------------------- what the scenes are made of
def _texture(random: np.random.Generator, height: int, width: int) -> NDArray[np.float32]:
    """Smooth at large, fine at small scale, as photographs are; mean 0, deviation 1."""
    total = np.zeros((height, width), np.float32)
    for octave in range(1, 8):
        rows, columns = 2**octave + 2, 2**octave * 2 + 2
        coarse = random.standard_normal((rows, columns)).astype(np.float32)
        total += _stretched(coarse, height, width) / 1.5**octave
    return (total - total.mean()) / total.std()


def _stretched(coarse: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
    y = np.linspace(0, coarse.shape[0] - 1.001, height, dtype=np.float32)
    x = np.linspace(0, coarse.shape[1] - 1.001, width, dtype=np.float32)
    top, left = y.astype(int), x.astype(int)
    down, right = (y - top)[:, None], x - left
    rows = coarse[top] * (1 - down) + coarse[top + 1] * down
    return rows[:, left] * (1 - right) + rows[:, left + 1] * right


@dataclass
class _Scene:
    """A textured ground larger than the picture, so that it can pan, and what moves over it."""

    y: NDArray[np.float32]
    u: NDArray[np.float32]
    v: NDArray[np.float32]
    pan: tuple[float, float]
    things: list[tuple[float, float, float, float, int, int, int, int]]


def _scene(random: np.random.Generator, width: int, height: int) -> _Scene:
    luma = random.uniform(70, 160) + random.uniform(15, 40) * _texture(
        random, height * 2, width * 2
    )
    u, v = (
        128 + random.uniform(-20, 20) + random.uniform(2, 14) * _texture(random, height, width)
        for _ in range(2)
    )
    things = [
        (
            random.uniform(0, width), random.uniform(0, height),
            random.uniform(-5, 5), random.uniform(-3, 3),
            int(random.integers(12, 50)), *(int(c) for c in random.integers(40, 215, 3)),
        )
        for _ in range(int(random.integers(1, 4)))
    ]  # fmt: skip
    pan = float(random.uniform(-3, 3)), float(random.uniform(-1.5, 1.5))
    return _Scene(luma, u, v, pan, things)


def _shot(scene: _Scene, at: int, width: int, height: int) -> Yuv:
    left = int(scene.pan[0] * at) % width // 2 * 2
    top = int(scene.pan[1] * at) % height // 2 * 2
    y = scene.y[top : top + height, left : left + width].copy()
    half = slice(top // 2, top // 2 + height // 2), slice(left // 2, left // 2 + width // 2)
    u, v = scene.u[half].copy(), scene.v[half].copy()
    for x0, y0, dx, dy, side, luma, blue, red in scene.things:
        column, row = int(x0 + dx * at) % width, int(y0 + dy * at) % height
        y[row : row + side, column : column + side] = luma
        part = slice(row // 2, (row + side) // 2), slice(column // 2, (column + side) // 2)
        u[part], v[part] = blue, red
    return _limited(y), _limited(u), _limited(v)


def _limited(plane: NDArray[np.floating]) -> Plane:
    return np.clip(plane, 16, 235).astype(np.uint8)


def _text(random: np.random.Generator, width: int, height: int) -> Plane:
    """Lines of dark glyph-like strokes on paper."""
    page = np.full((height, width), 235, np.uint8)
    for top in range(6, height - 10, 13):
        letters = np.repeat(random.random((2, width // 2)) < 0.4, 4, axis=0)
        letters[:, random.random(width // 2) < 0.2] = False
        end = int(random.integers(width // 3, width - 10)) // 2
        page[top : top + 8, 6 : 6 + 2 * (end - 3)][np.repeat(letters[:, 3:end], 2, 1)] = 30
    return page


def _flat(plane: Plane, value: int) -> Plane:
    return np.full((plane.shape[0] // 2, plane.shape[1] // 2), value, np.uint8)


# ---------------------------------------------------------------- one way to draw per content
def _motion(random: np.random.Generator, width: int, height: int, _: int) -> Iterator[Yuv]:
    scene, at = _scene(random, width, height), 0
    while True:
        yield _shot(scene, at, width, height)
        at += 1


def _noise(random: np.random.Generator, width: int, height: int, count: int) -> Iterator[Yuv]:
    strength = random.uniform(8, 40)
    for y, u, v in _motion(random, width, height, count):
        grain = random.standard_normal(y.shape, np.float32) * strength
        yield _limited(y + grain), u, v


def _cuts(random: np.random.Generator, width: int, height: int, _: int) -> Iterator[Yuv]:
    while True:
        scene = _scene(random, width, height)
        for at in range(CUT_EVERY):
            yield _shot(scene, at, width, height)


def _dark(random: np.random.Generator, width: int, height: int, count: int) -> Iterator[Yuv]:
    strength = random.uniform(0.5, 4)
    for y, u, v in _motion(random, width, height, count):
        grain = random.standard_normal(y.shape, np.float32) * strength
        dim = 16 + (y - 16.0) * 0.08 + grain
        yield _limited(dim), _limited(128 + (u - 128.0) * 0.1), _limited(128 + (v - 128.0) * 0.1)


def _slides(random: np.random.Generator, width: int, height: int, _: int) -> Iterator[Yuv]:
    grounds = (
        (235, 128, 128), (126, 128, 128), (128, 128, 128), (145, 54, 34), (16, 128, 128),
        (81, 90, 240),
    )  # fmt: skip
    while True:
        luma, blue, red = grounds[int(random.integers(len(grounds)))]
        page = _text(random, width, height)
        page[page == 235] = luma
        if luma < 100:
            page[page == 30] = 200
        u, v = _flat(page, blue), _flat(page, red)
        u[page[::2, ::2] != luma], v[page[::2, ::2] != luma] = 128, 128
        for _ in range(int(random.integers(12, 30))):
            yield page, u, v


def _screen(random: np.random.Generator, width: int, height: int, _: int) -> Iterator[Yuv]:
    page, at = _text(random, width, height * 4), 0.0
    speed = random.uniform(0.5, 6)
    bar = slice(0, 14)
    while True:
        seen = page[int(at) % (3 * height) :][:height].copy()
        seen[bar] = 90
        yield seen, _flat(seen, 128), _flat(seen, 128)
        at += speed


def _fades(random: np.random.Generator, width: int, height: int, count: int) -> Iterator[Yuv]:
    half = int(random.integers(6, 16))
    while True:
        scene = _scene(random, width, height)
        for at in range(2 * half):
            light = 1 - abs(at - half) / half
            y, u, v = _shot(scene, at, width, height)
            yield (
                _limited(16 + (y - 16.0) * light),
                _limited(128 + (u - 128.0) * light),
                _limited(128 + (v - 128.0) * light),
            )


def _flashes(random: np.random.Generator, width: int, height: int, count: int) -> Iterator[Yuv]:
    for y, u, v in _motion(random, width, height, count):
        if random.random() < 0.1:
            yield np.full_like(y, random.choice((16, 235))), _flat(y, 128), _flat(y, 128)
        else:
            yield y, u, v


_DRAW: dict[Content, Callable[[np.random.Generator, int, int, int], Iterator[Yuv]]] = {
    Content.NOISE: _noise,
    Content.CUTS: _cuts,
    Content.DARK: _dark,
    Content.SLIDES: _slides,
    Content.SCREEN: _screen,
    Content.FADES: _fades,
    Content.MOTION: _motion,
    Content.UNEVEN: _motion,
    Content.FLASHES: _flashes,
}
