"""Samples for measuring: a question, its media, and the media as a rung leaves them.

No training draws their clips and pictures: its seeds end at 999. Of text alone there are few
questions, and training has met most of them.
"""

import zlib
from dataclasses import dataclass

import numpy as np
from av import VideoFrame
from numpy.typing import NDArray

from runtime.media.fidelity import Fidelity
from runtime.quality.plan import PlanError
from runtime.quality.scenes import AUDIO_HZ, draw_scene
from runtime.quality.tasks import CLIP_KINDS, WORDINGS, Kind, Media, Question, ask, make_media

HELD_OUT_SEED = 20_261_129  # training's seeds are below 1000
CALIBRATION_SEED = HELD_OUT_SEED + 1
SIZE = (240, 320)  # height, width of pictures before any rung
_SCENES = 20_000  # tried for a word that stands once


@dataclass(frozen=True, eq=False)
class Sample:
    """`name` tells it from every other sample."""

    name: str
    number: int
    question: Question
    media: Media


def draw(kind: Kind, seconds: int, number: int, *, seed: int, of: int = HELD_OUT_SEED) -> Sample:
    """Sample `number` of `kind`; pictures and plain text have no length.

    The retrievals draw scenes until a word stands once. Raises `PlanError` where a clip is so
    long that none does.
    """
    length = seconds if kind in CLIP_KINDS else 1
    entropy = [of, seed, zlib.crc32(kind.encode()), length, number]
    rng = np.random.default_rng(entropy)
    varied = kind in (Kind.TEXT, Kind.IMAGE)
    wording = int(rng.integers(len(WORDINGS[kind]))) if varied else 0
    for _ in range(_SCENES):
        scene = draw_scene(length, rng)
        try:
            question = ask(kind, scene, rng, wording)
        except ValueError:
            continue
        name = "/".join(str(part) for part in entropy)
        return Sample(name, number, question, make_media(kind, scene, SIZE, rng))
    raise PlanError(f"{kind}: in clips of {seconds} s no word stands once; ask about shorter ones")


def at_fidelity(media: Media, fidelity: Fidelity) -> Media:
    """`media` after a rung's transform, as the gateway hands it to an engine."""
    pictures, sound, image = media.pictures, media.sound, media.image
    return Media(
        pictures=None if pictures is None else _scaled(pictures, fidelity),
        sound=None if sound is None else fidelity.sound(sound, AUDIO_HZ),
        image=None if image is None else _scaled(image[None], fidelity)[0],
    )


def _scaled(frames: NDArray[np.uint8], fidelity: Fidelity) -> NDArray[np.uint8]:
    """(n, height, width, 3) RGB at the size that `fidelity` leaves."""
    height, width = frames.shape[1:3]
    size = fidelity.size(width, height)
    decoded = (VideoFrame.from_ndarray(frame, format="rgb24") for frame in frames)
    return np.stack([fidelity.picture(frame, size) for frame in decoded])
