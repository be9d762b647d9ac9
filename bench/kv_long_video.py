"""A long video through an engine whose pool could never hold it natively (S5.1)."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bench.board import Figure
from bench.models import shipped
from runtime.engine.build import EngineSettings
from runtime.engine.engine import Engine
from runtime.kv.formats import Format
from runtime.kv.reuse import off
from runtime.quality.scenes import draw_scene, pictures, soundtrack
from runtime.quality.tasks import Media, parts_of
from runtime.residents.port import Array, Failed, Finished, Generate, TextPart, Turn

MINUTES, QUICK_MINUTES = 10, 2
SIZE = (160, 160)  # the smallest rung: 29 tokens a second with the sound
ANSWER = 16  # tokens
SETTINGS = EngineSettings("bench", "", pool_bytes=0)
MB = 1e6

# Pool bytes for a minute of video: far below native, and below what the policy would fill alone.
PER_MINUTE = {Format.SUBSPACE: 180_000, Format.INT8: 600_000, Format.INT4: 400_000}
LEAST = 1_200_000  # a slice of a prompt is native before it is packed, however short the video
NATIVE_PER_MINUTE = 6_000_000


@dataclass(frozen=True)
class Watched:
    """What one run took; bytes are of pages."""

    seconds: float
    tokens: int
    device: int  # the most in use at a time
    device_bound: int
    host: int  # the most in use at a time
    host_bound: int
    kept: tuple[int, int]  # on the device and the host, of the whole prompt

    @property
    def fullest(self) -> float:
        """The most that either tier was filled, of its bound."""
        return max(self.device / self.device_bound, self.host / self.host_bound)


def figures(*, quick: bool) -> list[Figure]:
    minutes = QUICK_MINUTES if quick else MINUTES
    request = long_request(minutes)
    native = watch(
        partial(
            _engine, replace(SETTINGS, pool_bytes=NATIVE_PER_MINUTE * minutes, reuse=off("native"))
        ),
        request,
    )
    return [
        figure
        for form in PER_MINUTE
        for figure in _of(form, minutes, native, watch(partial(_packed, form, minutes), request))
    ]


def _of(form: Format, minutes: int, native: Watched, found: Watched) -> Iterator[Figure]:
    where = f"{minutes} min of video, {found.tokens} tokens, {form.name.lower()}"
    device, host = (n / MB / minutes for n in found.kept)
    was = native.kept[0] / MB / minutes
    yield Figure(
        f"fullest tier at any step, {where}", found.fullest, "of its bound", 1.0,
        f"bounds: device {found.device_bound / MB:.2f} MB, host {found.host_bound / MB:.2f} MB;"
        f" native pages would take {native.kept[0] / MB:.1f} MB",
    )  # fmt: skip
    yield Figure(
        f"device memory that grows, {where}", device, "MB/min", None,
        f"native: {was:.2f} MB/min; in host memory beside it: {host:.2f} MB/min",
    )  # fmt: skip
    yield Figure(
        f"time, {where}", found.seconds / minutes, "s/min", None,
        f"native: {native.seconds / minutes:.2f} s/min",
    )  # fmt: skip


def long_request(minutes: float, *, seed: int = 5) -> tuple[Generate, list[Array]]:
    """A question about a synthetic clip of a new digit and shape each second."""
    rng = np.random.default_rng(seed)
    scene = draw_scene(round(60 * minutes), rng)
    media = Media(pictures(scene, SIZE, rng), soundtrack(scene, rng), None)
    parts, arrays = parts_of(media, f"long/{minutes}")
    asked = Generate(
        request_id="long",
        session="",
        turns=(Turn(role="user", parts=(*parts, TextPart(text="Which digits do you hear?"))),),
        max_tokens=ANSWER,
        speech=False,
        voice="ethan",
        salt="",
    )
    return asked, list(arrays)


def _packed(form: Format, minutes: int) -> Engine:
    pool = max(LEAST, PER_MINUTE[form] * minutes)
    return _engine(replace(SETTINGS, pool_bytes=pool, host_bytes=2 * pool, storage=form))


def _engine(settings: EngineSettings) -> Engine:
    def die() -> None:
        raise AssertionError("nothing here drills")

    return Engine(shipped(), settings, clock=time.perf_counter, die=die)


def watch(build: Callable[[], Engine], request: tuple[Generate, list[Array]]) -> Watched:
    """One request from its prompt to its end, looked at behind every step."""
    engine = build()
    began = time.perf_counter()
    engine.submit(*request)
    cache = engine._cache
    arena, host = cache.pool.arena, cache.pool.host
    most_host, kept, finished = 0, (0, 0), None
    while finished is None:
        for event in engine.step():
            assert not isinstance(event, Failed), event.message
            finished = event if isinstance(event, Finished) else None
        most_host = max(most_host, host.books.used_bytes)
        if finished is None:
            kept = (cache.pool.live_bytes(), host.books.used_bytes)
    return Watched(
        seconds=time.perf_counter() - began,
        tokens=finished.prompt_tokens,
        device=arena.books.peak_bytes,
        device_bound=arena.nbytes,
        host=most_host,
        host_bound=host.limit,
        kept=kept,
    )
