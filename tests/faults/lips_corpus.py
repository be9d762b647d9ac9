"""Talkers by the hundred: in step, out of step and dubbed; and voices that have no mouth to see."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tests.faults import talking_head
from tests.faults.talking_head import Scene

LENGTHS = (4.0, 6.0, 8.0, 12.0)
_OTHERS = 10_000  # seeds of voices that belong to no scene


@dataclass(frozen=True)
class Talk:
    """One clip: a scene, and how late its voice is; `dubbed`: another one's voice."""

    scene: Scene
    offset_ms: float = 0.0
    dubbed: int | None = None

    @property
    def seconds(self) -> float:
        return self.scene.seconds

    def data(self) -> bytes:
        scene = self.scene
        container = ("mp4", "webm")[scene.seed % 4 == 3]
        film = talking_head.filmed(scene, container)
        if self.dubbed is None:
            return talking_head.talking(scene, self.offset_ms, container)
        voice = talking_head.voice(_OTHERS + self.dubbed, scene.seconds, scene.voice)
        return talking_head.with_sound(film, voice, container)


def scenes(count: int) -> list[Scene]:
    """Talkers of every kind, as many of each length."""
    drawn = []
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


def apart(scenes: Sequence[Scene], seconds: float) -> Iterator[Talk]:
    """Beyond BT.1359 acceptance, early and late, by more than an error of the estimate."""
    for scene in scenes:
        if scene.seconds == seconds:
            rng = np.random.default_rng(scene.seed + 5)
            reach = min(1000.0, 240.0 * seconds)
            for offset_ms in (*-rng.uniform(115.0, 0.6 * reach, 2), *rng.uniform(210.0, reach, 2)):
                yield Talk(scene, float(offset_ms))


def clean(scenes: Sequence[Scene]) -> Iterator[tuple[str, Iterator[Talk]]]:
    """What must never be called out of step, by kind."""
    yield "in step", _in_step(scenes)
    yield "dubbed", _dubbed(scenes)
    yield "no mouth in the picture", _faceless(scenes)


def _in_step(scenes: Sequence[Scene]) -> Iterator[Talk]:
    for scene in scenes:
        rng = np.random.default_rng(scene.seed + 6)
        for offset_ms in rng.uniform(-60.0, 60.0, 2):
            yield Talk(scene, float(offset_ms))


def _dubbed(scenes: Sequence[Scene]) -> Iterator[Talk]:
    for scene in scenes:
        for other in (2 * scene.seed, 2 * scene.seed + 1):
            yield Talk(scene, dubbed=other)


def _faceless(scenes: Sequence[Scene]) -> Iterator[Talk]:
    for scene in scenes:
        shut = replace(scene, seed=_OTHERS + scene.seed, mouth=0.0, objects=scene.objects + 2)
        yield Talk(shut)
