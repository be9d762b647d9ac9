"""First use of a model is slow: one synthetic request goes through every part of it before
`Ready`, on an engine of its own, so that nothing of it stays in the cache or in the counters."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from runtime.engine.build import EngineSettings
from runtime.engine.engine import Engine
from runtime.model.checkpoint import Checkpoint
from runtime.residents.port import (
    AudioPart,
    Failed,
    Finished,
    Generate,
    TextPart,
    Turn,
    VideoPart,
)

_TOKENS = 4
_SIDE = 64
_POOL_BYTES = 256_000_000  # far more than it writes; a real pool would not fit in memory twice


class WarmUpFailed(RuntimeError):
    """The checkpoint cannot serve the simplest request; the message says why."""


def warm_up(checkpoint: Checkpoint, settings: EngineSettings, clock: Callable[[], float]) -> None:
    """Raises `WarmUpFailed`."""
    small = replace(settings, observe_every=1, pool_bytes=min(settings.pool_bytes, _POOL_BYTES))
    engine = Engine(checkpoint, small, clock=clock, die=_never)
    engine.submit(_request(checkpoint), [_frames(), _samples(checkpoint)])
    while True:
        for event in engine.step():
            if isinstance(event, Failed):
                raise WarmUpFailed(f"{checkpoint.folder}: {event.message}")
            if isinstance(event, Finished):
                return


def _request(checkpoint: Checkpoint) -> Generate:
    parts = (
        VideoPart(index=0, start_ms=0, pts_ms=(0, 500), grid_ms=500.0, digest="", key_frame=True),
        AudioPart(index=1, start_ms=0, digest=""),
        TextPart(text="?"),
    )
    return Generate(
        request_id="warm-up",
        session="",
        turns=(Turn(role="user", parts=parts),),
        max_tokens=_TOKENS,
        speech=True,
        voice=next(iter(checkpoint.config.talker_config.speaker_id)),
        salt="",
        cache_write=False,
    )


def _frames() -> np.ndarray:
    return np.zeros((2, _SIDE, _SIDE, 3), np.uint8)


def _samples(checkpoint: Checkpoint) -> np.ndarray:
    return np.zeros(checkpoint.figures.sample_rate, np.float32)


def _never() -> None:
    raise AssertionError("no drill runs in a warm-up")
