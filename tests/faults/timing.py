"""Clips whose clocks went wrong, and clean ones that are hard to tell from them.

An injector takes the packets of a real file and muxes them again with other time stamps, so that
one encoding serves many items. Offsets are audio minus video, in milliseconds: early is negative.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import av
import numpy as np
import soxr
from av.stream import Stream

from tests.support import media
from tests.support.media import CLIP_HZ, SPEECH_HZ, Pcm

SIZE = (96, 64)
TEXTS = {
    "en": "The quick brown fox jumps over the lazy dog, and then it sleeps until the evening.",
    "zh": "今天天气很好，我们一起去公园散步，然后回家吃饭。",
}
Retime = Callable[[str, int, float], float | None]
"""`(kind, index, pts_ms)` -> the packet's new time, ms; None: it is lost."""


# ---------------------------------------------------------------- clips to start from
@dataclass(frozen=True)
class Source:
    """A clean clip to inject into. `times_ms`: frame times where the rate varies."""

    seconds: float = 8.0
    container: str = "mp4"
    voice: str = "en"
    fps: float = 25.0
    times_ms: tuple[int, ...] | None = None
    sound_seconds: float | None = None  # None: as long as the picture
    sound_rate: float = 1.0  # how much faster the sound runs than it should

    def clip(self) -> bytes:
        return _clip(self)


@lru_cache(maxsize=512)
def _clip(source: Source) -> bytes:
    times = source.times_ms or tuple(
        round(i * 1000 / source.fps) for i in range(round(source.seconds * source.fps))
    )
    seconds = source.seconds if source.sound_seconds is None else source.sound_seconds
    pcm = spoken(seconds * source.sound_rate, source.voice)
    if source.sound_rate != 1.0:
        pcm = soxr.resample(pcm, source.sound_rate, 1.0).astype("f4")
    return media.video_file(
        media.frames(len(times), *SIZE),
        times,
        pcm,
        size=SIZE,
        fps=source.fps,
        container=source.container,
    )


@lru_cache(maxsize=64)
def spoken(seconds: float, voice: str) -> Pcm:
    """Somebody who talks for so long, mono at `CLIP_HZ`."""
    text = soxr.resample(media.speech(TEXTS[voice], voice), SPEECH_HZ, CLIP_HZ).astype("f4")
    wanted = round(seconds * CLIP_HZ)
    return np.tile(text, wanted // len(text) + 1)[:wanted]


def with_silence_left_out(source: Source, at_ms: float, for_ms: float) -> bytes:
    """Nobody speaks for a while, and the encoder sends nothing of it but a packet now and then:
    what comes after stands at its true time."""
    pcm = spoken(source.seconds, source.voice).copy()
    pcm[round(at_ms * CLIP_HZ / 1000) : round((at_ms + for_ms) * CLIP_HZ / 1000)] = 0.0
    clip = media.video_file(
        media.frames(round(source.seconds * source.fps), *SIZE),
        [round(i * 1000 / source.fps) for i in range(round(source.seconds * source.fps))],
        pcm,
        size=SIZE,
        fps=source.fps,
        container=source.container,
    )

    def leave_out(kind: str, index: int, at: float) -> float | None:
        silent = at_ms + 100.0 <= at < at_ms + for_ms - 100.0
        return None if kind == "audio" and silent and index % 20 else at

    return retimed(clip, source.container, leave_out)


def late_camera(source: Source, from_ms: float) -> Source:
    """The same with a camera that shows nothing before `from_ms`; both end together."""
    times = (round(i * 1000 / source.fps) for i in range(round(source.seconds * source.fps)))
    return replace(source, times_ms=tuple(at for at in times if at >= from_ms))


def idle_screen(seconds: float, seed: int) -> tuple[int, ...]:
    """Frame times of a shared screen: 30 a second, but for two stretches where nothing moves."""
    rng = np.random.default_rng(seed)
    first, second = rng.uniform(0.1, 0.4) * seconds * 1000, rng.uniform(0.5, 0.7) * seconds * 1000
    lasting = rng.uniform(300.0, 1500.0, 2)
    return tuple(
        at
        for at in range(0, round(seconds * 1000), 33)
        if not (first < at < first + lasting[0] or second < at < second + lasting[1])
    )


def uneven_times(seconds: float, seed: int) -> tuple[int, ...]:
    """Frame times of a camera whose rate varies: 20 to 120 ms apart."""
    steps = np.random.default_rng(seed).choice([20, 33, 40, 66, 100, 120], round(seconds * 50))
    return _times(steps, seconds)


def recorded_screen(seconds: float, seed: int) -> tuple[int, ...]:
    """Frame times of a screen recorder: bursts of 30 a second, and pauses while nothing moves."""
    rng = np.random.default_rng(seed)
    steps: list[int] = []
    while sum(steps) < seconds * 1000:
        steps += [33] * int(rng.integers(2, 8)) + [int(rng.integers(150, 1500))]
    return _times(np.array(steps), seconds)


def slides(seconds: float, seed: int) -> tuple[int, ...]:
    """Frame times of slides: one every 0.2 to 2 seconds."""
    return _times(np.random.default_rng(seed).integers(200, 2000, round(seconds * 5)), seconds)


def jittery(seconds: float, seed: int, fps: float = 30.0) -> tuple[int, ...]:
    """Frame times of a phone: about regular."""
    regular = np.arange(0.0, seconds * 1000, 1000 / fps)
    jitter = np.random.default_rng(seed).uniform(-8.0, 8.0, len(regular))
    return tuple(int(t) for t in np.rint(np.maximum(regular + jitter, 0.0)))


def _times(steps: np.ndarray, seconds: float) -> tuple[int, ...]:
    times = np.concatenate([[0], np.cumsum(steps)])
    return tuple(int(t) for t in times[times < seconds * 1000])


@lru_cache(maxsize=8)
def reordered(seconds: float = 6.0, frames: int = 3) -> bytes:
    """H.264 with B frames, so that decoding order and time order differ, and AAC."""
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as file:
        stream = file.add_stream("libx264", rate=Fraction(25))
        (stream.width, stream.height), stream.pix_fmt = SIZE, "yuv420p"
        stream.options = {"preset": "veryfast", "bf": str(frames), "b-adapt": "0"}
        sound = file.add_stream("aac", CLIP_HZ, layout="mono")
        for i, picture in enumerate(media.frames(round(seconds * 25), *SIZE)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = i, Fraction(1, 25)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
        media._write(file, sound, spoken(seconds, "en"), CLIP_HZ, 0.0)  # pyright: ignore[reportPrivateUsage]
    return out.getvalue()


# ---------------------------------------------------------------- injectors
def retimed(data: bytes, container: str, retime: Retime) -> bytes:
    """The same packets, each at the time `retime` gives it. Times must grow within a stream."""
    out = io.BytesIO()
    with av.open(io.BytesIO(data), "r") as source, av.open(out, "w", format=container) as target:
        streams = {one.index: target.add_stream_from_template(one) for one in source.streams}
        seen: dict[str, int] = {}
        for packet in source.demux():
            if packet.dts is None:
                continue
            kind = packet.stream.type
            index = seen[kind] = seen.get(kind, -1) + 1
            moved = _moved(packet, kind, index, retime, streams[packet.stream.index])
            if moved is not None:
                target.mux(moved)
    return out.getvalue()


def _moved(
    packet: av.Packet, kind: str, index: int, retime: Retime, stream: Stream
) -> av.Packet | None:
    assert packet.pts is not None
    assert packet.dts is not None
    at = float(packet.pts * packet.time_base) * 1000.0
    to = retime(kind, index, at)
    if to is None:
        return None
    shift = round((to - at) / 1000.0 / packet.time_base)
    copy = av.Packet(bytes(packet))
    copy.pts, copy.dts, copy.duration = packet.pts + shift, packet.dts + shift, packet.duration
    copy.time_base, copy.is_keyframe, copy.stream = packet.time_base, packet.is_keyframe, stream
    return copy


def shifted(data: bytes, container: str, offset_ms: float) -> bytes:
    """Sound late by `offset_ms`, or early: then the picture comes later."""
    kind, by = ("audio", offset_ms) if offset_ms >= 0 else ("video", -offset_ms)
    return retimed(data, container, lambda k, _, at: at + by if k == kind else at)


def drifting(data: bytes, container: str, share: float, kind: str = "audio") -> bytes:
    """One stream's clock off by `share`: its time stamps run away from what they count."""
    return retimed(data, container, lambda k, _, at: at * (1.0 + share) if k == kind else at)


def stalled(data: bytes, container: str, at_ms: float, for_ms: float) -> bytes:
    """The picture stands still: its packets of that time are lost."""
    return without(data, container, "video", at_ms, for_ms)


def without(data: bytes, container: str, kind: str, at_ms: float, for_ms: float) -> bytes:
    """The packets of one stream are lost between `at_ms` and `at_ms + for_ms`."""

    def lose(k: str, _: int, at: float) -> float | None:
        return None if k == kind and at_ms <= at < at_ms + for_ms else at

    return retimed(data, container, lose)


def jumping(data: bytes, container: str, kind: str, at_ms: float, by_ms: float) -> bytes:
    """From `at_ms` on, the stream's time stamps are `by_ms` later."""

    def jump(k: str, _: int, at: float) -> float:
        return at + by_ms if k == kind and at >= at_ms else at

    return retimed(data, container, jump)


def stuttering(data: bytes, container: str, every_ms: float, by_ms: float) -> bytes:
    """Every so often the sound slips by a little: each step is small, all together are not."""

    def slip(k: str, _: int, at: float) -> float:
        return at + by_ms * (at // every_ms) if k == "audio" and at > 0 else at

    return retimed(data, container, slip)


def squeezed(data: bytes, container: str, at_ms: float, by_ms: float) -> bytes:
    """From `at_ms` on the sound is `by_ms` early: some of its packets lie closer than they last."""
    steps = round(by_ms / 10.0)

    def squeeze(k: str, _: int, at: float) -> float:
        if k != "audio" or at < at_ms:
            return at
        return at - min(by_ms, 10.0 * min(steps, (at - at_ms) // 20.0 + 1))

    return retimed(data, container, squeeze)


def paused(data: bytes, container: str, at_ms: float, for_ms: float) -> bytes:
    """Both streams pause together, as where a recorder was stopped and went on. Still in step."""
    return retimed(data, container, lambda _k, _i, at: at + for_ms if at >= at_ms else at)


def cut_short(data: bytes, container: str, at_ms: float) -> bytes:
    """The sound ends at `at_ms`."""
    return without(data, container, "audio", at_ms, 1e9)


def at_rate(data: bytes, container: str, true: float, said: float) -> bytes:
    """Frames of a rate of `true` a second, muxed as `said`: the picture runs too fast or slow."""
    ratio = true / said
    return retimed(data, container, lambda k, _, at: at * ratio if k == "video" else at)


def mislabelled_sound(source: Source, true_hz: float, said_hz: float) -> Source:
    """The source with sound sampled at `true_hz` and muxed as `said_hz`."""
    whole = source.seconds if source.sound_seconds is None else source.sound_seconds
    ratio = true_hz / said_hz
    return Source(
        source.seconds, source.container, source.voice, source.fps, source.times_ms,
        whole * ratio, 1.0 / ratio,
    )  # fmt: skip
