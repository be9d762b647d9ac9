"""Requests as the gateway sends them to an engine, with media made of noise."""

from typing import Any

import numpy as np

from monitors.detectors.operations import signature
from runtime.residents.port import Array, AudioPart, Generate, Part, TextPart, Turn, VideoPart

SIDE = 96
HZ = 16_000


def clip(seconds: int, seed: int, *, video: bool = True) -> tuple[list[Part], list[Array]]:
    """Sound and, in 2 s slices of 2 frames a second, pictures."""
    rng = np.random.default_rng(seed)
    parts: list[Part] = []
    arrays: list[Array] = []
    for second in range(seconds):
        if video and second % 2 == 0:
            frames = rng.integers(0, 255, (4, SIDE, SIDE, 3)).astype(np.uint8)
            times = tuple(1000 * second + 500 * frame for frame in range(4))
            parts.append(
                VideoPart(
                    index=len(arrays),
                    start_ms=1000 * second,
                    pts_ms=times,
                    grid_ms=500.0,
                    digest=f"video {seed} {second}",
                    key_frame=second == 0,
                    signature=signature(frames),
                )
            )
            arrays.append(frames)
        sound = (0.1 * rng.standard_normal(HZ)).astype(np.float32)
        digest = f"audio {seed} {second}"
        parts.append(AudioPart(index=len(arrays), start_ms=1000 * second, digest=digest))
        arrays.append(sound)
    return parts, arrays


def ask(
    name: str,
    text: str = "What do you see and hear?",
    *,
    media: int = 0,
    seed: int = 0,
    **more: Any,
) -> tuple[Generate, list[Array]]:
    """A request about a clip of `media` seconds, or about nothing but `text`."""
    parts, arrays = clip(media, seed, video=more.pop("video", True))
    asked = {
        "max_tokens": 8,
        "speech": False,
        "voice": "ethan",
        "salt": "tenant",
        "session": "session",
    }
    turn = Turn(role="user", parts=(*parts, TextPart(text=text)))
    return Generate(request_id=name, turns=(turn,), **(asked | more)), arrays
