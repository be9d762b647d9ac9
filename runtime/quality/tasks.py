"""Seeded questions with a right answer: about a clip, a picture, or nothing but text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from runtime.quality import scenes
from runtime.quality.scenes import Scene, Size
from runtime.quality.words import COLOURS, DIGITS
from runtime.residents.port import Array, AudioPart, ImagePart, Part, TextPart, VideoPart

SLICE_S = 2  # of video; sound is cut at one second (S2.1)
AUDIO_SLICE_S = 1


class Kind(StrEnum):
    """What is asked. The last three are reported without a bar."""

    DIGITS = "digits"
    COLOURS = "colours"
    PAIRS = "pairs"  # needs sound and pictures on one clock
    IMAGE = "image"
    TEXT = "text"
    SHAPES = "shapes"
    DIGIT_AT = "digit_at"
    COLOUR_AT = "colour_at"


WORDINGS: dict[Kind, tuple[str, ...]] = {
    Kind.DIGITS: ("Which digits do you hear?", "What do you hear?", "Read me the digits."),
    Kind.COLOURS: ("Which colours do you see?", "What do you see?", "Name the colours."),
    Kind.PAIRS: (
        "Which colour and digit come together?",
        "What do you see and hear?",
        "Describe what you see and hear.",
    ),
    Kind.IMAGE: ("Which colour is the shape?", "What is in the picture?"),
    Kind.TEXT: ("Which digit follows {}?", "Say {}.", "Repeat {}."),
    Kind.SHAPES: ("Which shapes do you see?",),
    Kind.DIGIT_AT: ("Which digit comes with {}?",),
    Kind.COLOUR_AT: ("Which colour comes with {}?",),
}
SEES = {Kind.COLOURS, Kind.PAIRS, Kind.SHAPES, Kind.DIGIT_AT, Kind.COLOUR_AT}
HEARS = {Kind.DIGITS, Kind.PAIRS, Kind.DIGIT_AT, Kind.COLOUR_AT}
CLIP_KINDS = SEES | HEARS


@dataclass(frozen=True)
class Question:
    kind: Kind
    text: str
    answer: str


@dataclass(frozen=True, eq=False)
class Media:
    """What a question is about: `pictures` (2 per second, h, w, 3), `sound` at 16 kHz, or one
    `image` (h, w, 3)."""

    pictures: NDArray[np.uint8] | None = None
    sound: NDArray[np.float32] | None = None
    image: NDArray[np.uint8] | None = None


def ask(kind: Kind, scene: Scene | None, rng: np.random.Generator, wording: int = 0) -> Question:
    """A question of `kind`; `scene` is what the media shows, None for text alone.

    `wording` picks the phrase; the retrievals need a word that stands once in the scene and raise
    `ValueError` where there is none.
    """
    phrase = WORDINGS[kind][wording]
    if kind is Kind.TEXT:
        return _text_question(phrase, wording, rng)
    if scene is None:
        raise ValueError(f"a question of kind {kind} needs a scene")
    digits, colours = scene.digit_words, scene.colour_words
    match kind:
        case Kind.DIGITS:
            return Question(kind, phrase, " ".join(digits))
        case Kind.COLOURS:
            return Question(kind, phrase, " ".join(colours))
        case Kind.SHAPES:
            return Question(kind, phrase, " ".join(scene.shape_words))
        case Kind.PAIRS:
            pairs = zip(colours, digits, strict=True)
            return Question(kind, phrase, " ".join(word for pair in pairs for word in pair))
        case Kind.DIGIT_AT:
            asked, answer = _lookup(colours, digits, rng)
            return Question(kind, phrase.format(asked), answer)
        case Kind.COLOUR_AT:
            asked, answer = _lookup(digits, colours, rng)
            return Question(kind, phrase.format(asked), answer)
        case Kind.IMAGE:
            return Question(kind, phrase, colours[0])


def _lookup(keys: list[str], values: list[str], rng: np.random.Generator) -> tuple[str, str]:
    once = [place for place, key in enumerate(keys) if keys.count(key) == 1]
    if not once:
        raise ValueError("no word of the scene stands once")
    place = once[rng.integers(len(once))]
    return keys[place], values[place]


def _text_question(phrase: str, wording: int, rng: np.random.Generator) -> Question:
    if wording == 0:
        digit = int(rng.integers(10))
        return Question(Kind.TEXT, phrase.format(DIGITS[digit]), DIGITS[(digit + 1) % 10])
    lexicon = (*DIGITS, *COLOURS)
    words = " ".join(lexicon[i] for i in rng.integers(0, len(lexicon), rng.integers(1, 9)))
    return Question(Kind.TEXT, phrase.format(words), words)


def make_media(
    kind: Kind, scene: Scene, size: Size, rng: np.random.Generator, *, alone: bool = False
) -> Media:
    """The media that `kind` asks about: a clip, a picture or nothing.

    `alone`: a clip without the sense that the question does not need.
    """
    if kind is Kind.TEXT:
        return Media()
    if kind is Kind.IMAGE:
        return Media(image=scenes.picture(scene.colours[0], scene.shapes[0], size, rng))
    seen = not alone or kind in SEES
    heard = not alone or kind in HEARS
    return Media(
        pictures=scenes.pictures(scene, size, rng) if seen else None,
        sound=scenes.soundtrack(scene, rng) if heard else None,
    )


def parts_of(media: Media, name: str) -> tuple[list[Part], list[Array]]:
    """The slices of `media` as they reach an engine (S2.1); `name` makes their digests unique."""
    arrays: list[Array] = []
    parts: list[Part] = []

    def add(array: Array) -> int:
        arrays.append(array)
        return len(arrays) - 1

    if media.image is not None:
        return [ImagePart(index=add(media.image), digest=f"{name}/image")], arrays
    for second in range(0, _seconds(media), SLICE_S):
        frames = _frames(media, second)
        if len(frames):
            first = scenes.FPS * second
            video = VideoPart(
                index=add(frames),
                start_ms=1000 * second,
                pts_ms=tuple((first + i) * 1000 // scenes.FPS for i in range(len(frames))),
                grid_ms=1000.0,
                digest=f"{name}/video/{second}",
                key_frame=second == 0,
            )
            parts.append(video)
        for at in range(second, second + SLICE_S, AUDIO_SLICE_S):
            samples = _samples(media, at)
            if len(samples):
                audio = AudioPart(
                    index=add(samples), start_ms=1000 * at, digest=f"{name}/audio/{at}"
                )
                parts.append(audio)
    return parts, arrays


def _seconds(media: Media) -> int:
    """Begun seconds: sound may end within one."""
    heard = 0 if media.sound is None else len(media.sound) / scenes.AUDIO_HZ
    seen = 0 if media.pictures is None else len(media.pictures) / scenes.FPS
    return math.ceil(max(heard, seen))


def _frames(media: Media, second: int) -> NDArray[np.uint8]:
    if media.pictures is None:
        return np.zeros((0, 1, 1, 3), np.uint8)
    return media.pictures[scenes.FPS * second : scenes.FPS * (second + SLICE_S)]


def _samples(media: Media, second: int) -> NDArray[np.float32]:
    if media.sound is None:
        return np.zeros(0, np.float32)
    return media.sound[scenes.AUDIO_HZ * second : scenes.AUDIO_HZ * (second + AUDIO_SLICE_S)]


def question_part(question: Question) -> Sequence[Part]:
    return [TextPart(text=question.text)]
