"""Generated clips show and sound what their scene says, and questions have the right answer."""

import numpy as np
import pytest

from runtime.quality.scenes import (
    AUDIO_HZ,
    FPS,
    RGB,
    Scene,
    draw_scene,
    picture,
    pictures,
    soundtrack,
)
from runtime.quality.tasks import (
    HEARS,
    SEES,
    WORDINGS,
    Kind,
    Media,
    ask,
    make_media,
    parts_of,
)
from runtime.quality.tones import key_of
from runtime.quality.words import COLOURS, DIGITS
from runtime.residents.port import AudioPart, ImagePart, VideoPart

SCENE = Scene(digits=(7, 2, 7), colours=(0, 2, 3), shapes=(0, 1, 2))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# ---------------------------------------------------------------- scenes
def test_a_seed_is_a_clip() -> None:
    assert draw_scene(5, rng(3)) == draw_scene(5, rng(3)) != draw_scene(5, rng(4))
    assert np.array_equal(soundtrack(SCENE, rng(3)), soundtrack(SCENE, rng(3)))
    assert np.array_equal(pictures(SCENE, (80, 80), rng(3)), pictures(SCENE, (80, 80), rng(3)))


@pytest.mark.parametrize("seed", range(20))
def test_each_second_sounds_its_digit(seed: int) -> None:
    track = soundtrack(SCENE, rng(seed))
    assert len(track) == 3 * AUDIO_HZ
    for second, digit in zip(track.reshape(3, AUDIO_HZ), SCENE.digits, strict=True):
        assert key_of(second, AUDIO_HZ) == str(digit)


@pytest.mark.parametrize("seed", range(20))
def test_each_second_shows_its_colour_on_a_dark_ground(seed: int) -> None:
    frames = pictures(SCENE, (120, 160), rng(seed))
    assert frames.shape == (3 * FPS, 120, 160, 3)
    assert frames.dtype == np.uint8
    for frame, colour in zip(frames, np.repeat(SCENE.colours, FPS), strict=True):
        bright = frame[frame.max(axis=2) > 120].astype(float)
        assert 0.01 < len(bright) / (120 * 160) < 0.4
        distance = {name: np.abs(bright.mean(0) - rgb).max() for name, rgb in RGB.items()}
        assert min(distance, key=distance.__getitem__) == COLOURS[colour]


def test_a_shape_moves_within_its_second() -> None:
    frames = pictures(SCENE, (120, 160), rng()).astype(int)
    assert all(np.abs(a - b).max() > 50 for a, b in zip(frames[::2], frames[1::2], strict=True))


def test_a_picture_is_one_frame() -> None:
    assert picture(1, 1, (80, 120), rng()).shape == (80, 120, 3)


# ---------------------------------------------------------------- questions
@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (Kind.DIGITS, "seven two seven"),
        (Kind.COLOURS, "red blue yellow"),
        (Kind.SHAPES, "circle square triangle"),
        (Kind.PAIRS, "red seven blue two yellow seven"),
        (Kind.IMAGE, "red"),
        (Kind.COLOUR_AT, "blue"),  # of the only digit that sounds once
    ],
)
def test_the_answer_is_what_the_scene_shows(kind: Kind, answer: str) -> None:
    for wording in range(len(WORDINGS[kind])):
        assert ask(kind, SCENE, rng(), wording).answer == answer


def test_a_lookup_asks_only_for_what_stands_once() -> None:
    asked = {ask(Kind.DIGIT_AT, SCENE, rng(seed)) for seed in range(40)}
    found = {(question.text, question.answer) for question in asked}
    phrase = WORDINGS[Kind.DIGIT_AT][0]
    pairs = zip(SCENE.colour_words, SCENE.digit_words, strict=True)
    assert found == {(phrase.format(colour), digit) for colour, digit in pairs}
    with pytest.raises(ValueError, match="no word of the scene stands once"):
        ask(Kind.COLOUR_AT, Scene((1, 1), (0, 1), (0, 0)), rng())


def test_text_is_counted_on_or_repeated() -> None:
    follows = {ask(Kind.TEXT, None, rng(seed)) for seed in range(80)}
    phrase = WORDINGS[Kind.TEXT][0]
    assert {(q.text, q.answer) for q in follows} == {
        (phrase.format(word), DIGITS[(value + 1) % 10]) for value, word in enumerate(DIGITS)
    }
    said = ask(Kind.TEXT, None, rng(), wording=1)
    assert said.text == f"Say {said.answer}."


def test_a_clip_without_a_scene_cannot_be_asked_about() -> None:
    with pytest.raises(ValueError, match="needs a scene"):
        ask(Kind.DIGITS, None, rng())


# ---------------------------------------------------------------- media
@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("alone", [False, True])
def test_media_are_what_the_question_needs(kind: Kind, alone: bool) -> None:
    media = make_media(kind, SCENE, (80, 80), rng(), alone=alone)
    clip = kind not in (Kind.TEXT, Kind.IMAGE)
    assert (media.image is not None) == (kind is Kind.IMAGE)
    assert (media.sound is not None) == (clip and (kind in HEARS or not alone))
    assert (media.pictures is not None) == (clip and (kind in SEES or not alone))


def test_slices_are_two_seconds_of_pictures_then_the_sound_of_each() -> None:
    parts, arrays = parts_of(make_media(Kind.PAIRS, SCENE, (80, 80), rng()), "x")
    assert [(type(part), part.start_ms) for part in parts if not isinstance(part, ImagePart)] == [
        (VideoPart, 0),
        (AudioPart, 0),
        (AudioPart, 1000),
        (VideoPart, 2000),
        (AudioPart, 2000),
    ]
    assert [array.shape for array in arrays] == [
        (4, 80, 80, 3),
        (AUDIO_HZ,),
        (AUDIO_HZ,),
        (2, 80, 80, 3),
        (AUDIO_HZ,),
    ]
    first, last = (part for part in parts if isinstance(part, VideoPart))
    assert (first.pts_ms, last.pts_ms) == ((0, 500, 1000, 1500), (2000, 2500))
    assert (first.key_frame, last.key_frame) == (True, False)
    assert len({part.digest for part in parts}) == len(parts)


def test_sound_that_outlasts_the_pictures_has_a_short_last_slice() -> None:
    sound = np.zeros(2 * AUDIO_HZ + 1600, np.float32)
    frames = np.zeros((4, 80, 80, 3), np.uint8)
    parts, arrays = parts_of(Media(pictures=frames, sound=sound), "x")
    assert [type(part) for part in parts] == [VideoPart, AudioPart, AudioPart, AudioPart]
    assert len(arrays[-1]) == 1600
