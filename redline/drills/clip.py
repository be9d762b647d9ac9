"""A second of video with sound, tall enough that a lower rung makes it smaller."""

# pyright: basic
# PyAV leaves the types of its packets open.

from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from runtime.quality.scenes import AUDIO_HZ, FPS, Scene, draw_scene, pictures, soundtrack

_SIZE = 480, 640  # height, width: more than `ladder.degraded_height`
_SHOWN_FPS = 10
_AUDIO_FRAME = 1_000  # samples


def write_clip(path: Path) -> None:
    """An MP4 file of H.264 and AAC: one coloured shape, one telephone digit."""
    rng = np.random.default_rng(7)
    scene = draw_scene(1, rng)
    with av.open(str(path), "w") as file:
        video = file.add_stream("libx264", rate=_SHOWN_FPS)
        video.height, video.width = _SIZE
        video.pix_fmt = "yuv420p"
        video.options = {"preset": "ultrafast", "bf": "0"}
        audio = file.add_stream("aac", AUDIO_HZ, layout="mono")
        for frame in _pictures(scene, rng):
            file.mux(video.encode(frame))
        file.mux(video.encode(None))
        for frame in _sound(scene, rng):
            file.mux(audio.encode(frame))
        file.mux(audio.encode(None))


def _pictures(scene: Scene, rng: np.random.Generator) -> list[av.VideoFrame]:
    drawn = pictures(scene, _SIZE, rng)
    shown = (drawn[at * FPS // _SHOWN_FPS] for at in range(_SHOWN_FPS * scene.seconds))
    return [_timed(av.VideoFrame.from_ndarray(one), at) for at, one in enumerate(shown)]


def _timed(frame: av.VideoFrame, at: int) -> av.VideoFrame:
    frame.pts, frame.time_base = at, Fraction(1, _SHOWN_FPS)
    return frame


def _sound(scene: Scene, rng: np.random.Generator) -> list[av.AudioFrame]:
    pcm = soundtrack(scene, rng)
    return [_heard(pcm[at : at + _AUDIO_FRAME], at) for at in range(0, len(pcm), _AUDIO_FRAME)]


def _heard(pcm: np.ndarray, at: int) -> av.AudioFrame:
    frame = av.AudioFrame.from_ndarray(pcm[None], "flt", "mono")
    frame.sample_rate, frame.pts, frame.time_base = AUDIO_HZ, at, Fraction(1, AUDIO_HZ)
    return frame
