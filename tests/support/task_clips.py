"""Video files whose content is known: what the shipped checkpoints can be asked about."""

import sys
from pathlib import Path

import numpy as np
import soxr

from runtime.quality.scenes import AUDIO_HZ, FPS, Scene, draw_scene, pictures, soundtrack
from tests.support.media import CLIP_HZ, video_file

FIRST_SECONDS, FIRST_SEED = 4, 19  # of the clip that `make clip` writes
SHOWN_FPS = 10  # of the file; a shape moves twice a second


def task_clip(
    seconds: int, seed: int, *, width: int = 320, height: int = 240, container: str = "mp4"
) -> tuple[Scene, bytes]:
    """A scene and the file that shows it."""
    rng = np.random.default_rng(seed)
    scene = draw_scene(seconds, rng)
    shown = pictures(scene, (height, width), rng)
    heard = soxr.resample(soundtrack(scene, rng), AUDIO_HZ, CLIP_HZ)
    count = seconds * SHOWN_FPS
    data = video_file(
        (shown[i * FPS // SHOWN_FPS] for i in range(count)),
        [i * 1000 // SHOWN_FPS for i in range(count)],
        heard,
        size=(width, height),
        fps=SHOWN_FPS,
        container=container,
    )
    return scene, data


def pairs_of(scene: Scene) -> str:
    """What there is to see and hear, as the checkpoints say it."""
    pairs = zip(scene.colour_words, scene.digit_words, strict=True)
    return " ".join(word for pair in pairs for word in pair)


if __name__ == "__main__":
    made, content = task_clip(FIRST_SECONDS, FIRST_SEED)
    Path(sys.argv[1]).write_bytes(content)
    print(f"redline: wrote {sys.argv[1]}; it shows and sounds: {pairs_of(made)}")
