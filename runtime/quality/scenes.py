"""Clips with a known content: one telephone digit and one coloured shape every second."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from runtime.quality.tones import tone
from runtime.quality.words import COLOURS, DIGITS, SHAPES

AUDIO_HZ = 16_000
FPS = 2
RGB: dict[str, tuple[int, int, int]] = {
    "red": (225, 40, 40),
    "green": (40, 190, 60),
    "blue": (50, 80, 230),
    "yellow": (230, 220, 50),
    "white": (240, 240, 240),
    "purple": (160, 40, 200),
}
_COLOUR_JITTER = 14
_OVERSAMPLE = 2  # shapes are drawn larger and scaled down: smooth edges

Size = tuple[int, int]  # height, width


@dataclass(frozen=True)
class Scene:
    """What happens in each second of a clip: indices into `DIGITS`, `COLOURS` and `SHAPES`."""

    digits: tuple[int, ...]
    colours: tuple[int, ...]
    shapes: tuple[int, ...]

    @property
    def seconds(self) -> int:
        return len(self.digits)

    @property
    def digit_words(self) -> list[str]:
        return [DIGITS[i] for i in self.digits]

    @property
    def colour_words(self) -> list[str]:
        return [COLOURS[i] for i in self.colours]

    @property
    def shape_words(self) -> list[str]:
        return [SHAPES[i] for i in self.shapes]


def draw_scene(seconds: int, rng: np.random.Generator) -> Scene:
    """Every digit, colour and shape at random, each second on its own."""
    drawn = [rng.integers(0, len(of), seconds).tolist() for of in (DIGITS, COLOURS, SHAPES)]
    return Scene(*(tuple(one) for one in drawn))


def soundtrack(scene: Scene, rng: np.random.Generator) -> NDArray[np.float32]:
    """(seconds * 16,000,) samples: a key pressed each second, at varied times, levels and noise."""
    track = np.zeros(scene.seconds * AUDIO_HZ, np.float32)
    level = rng.uniform(0.1, 0.6)
    for second, digit in enumerate(scene.digits):
        pressed = tone(str(digit), rng.uniform(0.35, 0.9), AUDIO_HZ)
        late = int(rng.uniform(0.02, 0.98 - len(pressed) / AUDIO_HZ) * AUDIO_HZ)
        start = second * AUDIO_HZ + late
        track[start : start + len(pressed)] += level * rng.uniform(0.6, 1.3) * pressed
    noise = level * rng.uniform(0.01, 0.25)
    hiss = noise * rng.standard_normal(len(track), dtype=np.float32)
    return (track + hiss).astype(np.float32)


def pictures(scene: Scene, size: Size, rng: np.random.Generator) -> NDArray[np.uint8]:
    """(2 * seconds, height, width, 3) RGB: a shape that moves, a new one each second."""
    height, width = size
    frames = np.empty((FPS * scene.seconds, height, width, 3), np.uint8)
    ground = rng.integers(5, 60, 3)
    for second, (colour, shape) in enumerate(zip(scene.colours, scene.shapes, strict=True)):
        radius = rng.uniform(0.14, 0.26) * min(size)
        x, y = rng.uniform(radius, width - radius), rng.uniform(radius, height - radius)
        step = rng.uniform(-0.08, 0.08, 2) * min(size)
        paint = np.clip(
            np.array(RGB[COLOURS[colour]]) + rng.integers(-_COLOUR_JITTER, _COLOUR_JITTER, 3),
            0,
            255,
        )
        for frame in range(FPS):
            centre = x + frame * step[0], y + frame * step[1]
            picture = _draw(size, centre, radius, SHAPES[shape], paint.tolist(), ground.tolist())
            frames[FPS * second + frame] = picture
    grain = rng.integers(-6, 7, (1, height, width, 1), dtype=np.int16)
    return np.clip(frames + grain, 0, 255).astype(np.uint8)


def picture(colour: int, shape: int, size: Size, rng: np.random.Generator) -> NDArray[np.uint8]:
    """(height, width, 3) RGB of one shape."""
    return pictures(Scene((0,), (colour,), (shape,)), size, rng)[0]


def _draw(
    size: Size,
    centre: tuple[float, float],
    radius: float,
    shape: str,
    paint: list[int],
    ground: list[int],
) -> NDArray[np.uint8]:
    height, width = (_OVERSAMPLE * side for side in size)
    x, y, r = (_OVERSAMPLE * value for value in (*centre, radius))
    image = Image.new("RGB", (width, height), tuple(ground))  # type: ignore[arg-type]
    pen, fill = ImageDraw.Draw(image), tuple(paint)
    match shape:
        case "circle":
            pen.ellipse((x - r, y - r, x + r, y + r), fill=fill)
        case "square":
            pen.rectangle((x - r, y - r, x + r, y + r), fill=fill)
        case "triangle":
            pen.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], fill=fill)
        case _:
            pen.rectangle((x - r, y - r / 3, x + r, y + r / 3), fill=fill)
            pen.rectangle((x - r / 3, y - r, x + r / 3, y + r), fill=fill)
    return np.asarray(image.reduce(_OVERSAMPLE))
