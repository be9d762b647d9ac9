"""Talkers by the hundred: in step, out of step and dubbed; and voices that have no mouth to see."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tests.faults import talking_head
from tests.faults.talking_head import Scene
from tests.support.media import Pcm

LENGTHS = (4.0, 6.0, 8.0, 12.0)
_OTHERS = 10_000  # seeds of voices that belong to no scene
_VOICES = 24  # of them, in each language
_FACELESS = 4  # one scene in so many has a double without a mouth


@dataclass(frozen=True)
class Talk:
    """One clip: a scene, and how late its voice is; `dubbed`: the seed of another one's voice."""

    scene: Scene
    offset_ms: float = 0.0
    dubbed: int | None = None

    def film(self) -> bytes:
        """The picture, as a file: H.264, and VP9 of one scene in four."""
        return talking_head.filmed(self.scene, "webm" if self.scene.seed % 16 > 11 else "mp4")

    def sound(self) -> Pcm:
        """Mono at `CLIP_HZ`."""
        scene = self.scene
        if self.dubbed is None:
            own = talking_head.voice(scene.seed, scene.seconds, scene.voice)
            return talking_head.late(own, self.offset_ms)
        return talking_head.voice(self.dubbed, scene.seconds, scene.voice)


def scenes(count: int) -> list[Scene]:
    """Talkers of every kind, as many of each length."""
    drawn: list[Scene] = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        drawn.append(
            Scene(
                seed=seed,
                seconds=LENGTHS[seed % len(LENGTHS)],
                voice=("en", "zh")[seed // len(LENGTHS) % 2],
                mouth=rng.uniform(0.7, 1.3),
                sway=rng.uniform(0.0, 1.6),
                noise=rng.uniform(1.0, 6.0),
                objects=int(rng.integers(0, 5)),
                captions=bool(rng.integers(2)),
            )
        )
    return drawn


def apart(scene: Scene) -> Iterator[Talk]:
    """Beyond BT.1359 acceptance, early and late, by more than an error of the estimate."""
    rng = np.random.default_rng(scene.seed + 5)
    reach = min(1000.0, 240.0 * scene.seconds)
    for offset_ms in (*-rng.uniform(115.0, 0.6 * reach, 2), *rng.uniform(210.0, reach, 2)):
        yield Talk(scene, float(offset_ms))


def in_step(scene: Scene) -> Iterator[Talk]:
    """Clean: within what nobody minds."""
    for offset_ms in np.random.default_rng(scene.seed + 6).uniform(-60.0, 60.0, 2):
        yield Talk(scene, float(offset_ms))


def dubbed(scene: Scene) -> Iterator[Talk]:
    """Clean: the voice is another one's, as in a film in another language."""
    for by in (0, 1):
        yield Talk(scene, dubbed=_OTHERS + (2 * scene.seed + by) % _VOICES)


def faceless(scenes: Sequence[Scene]) -> Iterator[Talk]:
    """Clean: a voice over things that move, and no mouth among them."""
    for scene in scenes[::_FACELESS]:
        seconds = LENGTHS[scene.seed // _FACELESS % len(LENGTHS)]
        moving = replace(scene, seconds=seconds, mouth=0.0, objects=scene.objects + 2)
        yield Talk(moving)
        for by in range(3):
            yield Talk(moving, dubbed=_OTHERS + (scene.seed + by) % _VOICES)
