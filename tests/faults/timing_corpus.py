"""Clips with a wrong clock by the hundred, and as many that are clean: what recall is measured on.

Every item is a real file; all that varies is drawn from a seed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tests.faults import timing
from tests.faults.timing import Source

Draw = np.random.Generator


@dataclass(frozen=True, eq=False)
class Kind:
    """One way to go wrong. `desync`: sound and picture end up further apart than BT.1359 accepts,
    and the time stamps or lengths hold enough to know it for certain. Lost packets move nothing:
    of a picture the stamps look like a still screen's, of a pause like silence left out."""

    name: str
    make: Callable[[Source, Draw], bytes]
    desync: bool = True
    seconds: float = 8.0


def clips(kind: Kind, count: int) -> Iterator[bytes]:
    """So many of this kind: both containers, both languages, and frame rates in turn."""
    for i in range(count):
        source = Source(
            seconds=kind.seconds,
            container=("mp4", "webm")[i % 2],
            voice=("en", "zh")[i // 2 % 2],
            fps=(25.0, 30.0)[i // 4 % 2],
        )
        yield kind.make(source, np.random.default_rng(i))


# ---------------------------------------------------------------- faults
def _late(source: Source, draw: Draw) -> bytes:
    # Priming may hide a frame of AAC: nearer to the limit than that, its true offset is not known.
    return timing.shifted(source.clip(), source.container, draw.uniform(210.0, 800.0))


def _early(source: Source, draw: Draw) -> bytes:
    return timing.shifted(source.clip(), source.container, -draw.uniform(95.0, 600.0))


def _drift(source: Source, draw: Draw) -> bytes:
    apart = draw.uniform(200.0, 500.0) if draw.uniform() < 0.5 else -draw.uniform(105.0, 400.0)
    share = apart / (source.seconds * 1000.0)
    return timing.drifting(source.clip(), source.container, share)


def _slow_drift(source: Source, draw: Draw) -> bytes:
    share = draw.uniform(0.009, 0.015) if draw.uniform() < 0.5 else -draw.uniform(0.005, 0.015)
    return timing.drifting(source.clip(), source.container, share)


def _picture_drift(source: Source, draw: Draw) -> bytes:
    share = draw.uniform(0.020, 0.035) * draw.choice([-1.0, 1.0])
    return timing.drifting(source.clip(), source.container, share, "video")


def _jump(kind: str) -> Callable[[Source, Draw], bytes]:
    def make(source: Source, draw: Draw) -> bytes:
        at, by = draw.uniform(1500.0, 6000.0), draw.uniform(200.0, 700.0)
        return timing.jumping(source.clip(), source.container, kind, at, by)

    return make


def _squeeze(source: Source, draw: Draw) -> bytes:
    at, by = draw.uniform(1500.0, 4500.0), draw.uniform(110.0, 400.0)
    return timing.squeezed(source.clip(), source.container, at, by)


def _stutter(source: Source, draw: Draw) -> bytes:
    every = draw.uniform(600.0, 1200.0)
    by = draw.uniform(230.0, 500.0) / (source.seconds * 1000.0 // every - 1)
    return timing.stuttering(source.clip(), source.container, every, by)


def _lost_sound(source: Source, draw: Draw) -> bytes:
    at, lasting = draw.uniform(500.0, 6000.0), draw.uniform(130.0, 700.0)
    return timing.without(source.clip(), source.container, "audio", at, lasting)


def _stall(source: Source, draw: Draw) -> bytes:
    at, lasting = draw.uniform(500.0, 6000.0), draw.uniform(230.0, 900.0)
    return timing.stalled(source.clip(), source.container, at, lasting)


def _sample_rate(source: Source, draw: Draw) -> bytes:
    pairs = ((44.1, 48.0), (48.0, 44.1), (16.0, 24.0), (24.0, 16.0), (8.0, 16.0))
    true, said = pairs[int(draw.integers(len(pairs)))]
    return timing.mislabelled_sound(source, true, said).clip()


def _frame_rate(source: Source, draw: Draw) -> bytes:
    said = {25.0: 30.0, 30.0: 25.0}[source.fps] if draw.uniform() < 0.7 else source.fps * 0.8
    said = 24.0 if source.fps == 30.0 and said != 25.0 else max(said, 25.0)
    said = 30.0 if said == source.fps else said
    return timing.at_rate(source.clip(), source.container, source.fps, said)


def _short_mislabel(source: Source, draw: Draw) -> bytes:
    true, said = ((44.1, 48.0), (48.0, 44.1))[int(draw.integers(2))]
    return timing.mislabelled_sound(source, true, said).clip()


def _cut(source: Source, draw: Draw) -> bytes:
    return timing.cut_short(source.clip(), source.container, draw.uniform(2500.0, 7000.0))


FAULTS = (
    Kind("sound late", _late),
    Kind("sound early", _early),
    Kind("sound drifts", _drift),
    Kind("sound drifts slowly, 30 s", _slow_drift, seconds=30.0),
    Kind("picture drifts, 24 s", _picture_drift, seconds=24.0),
    Kind("sound jumps", _jump("audio")),
    Kind("picture jumps", _jump("video")),
    Kind("sound packed too close", _squeeze),
    Kind("small slips that add up", _stutter),
    Kind("lost sound packets", _lost_sound, desync=False),
    Kind("stalled picture", _stall, desync=False),
    Kind("wrong sample rate", _sample_rate),
    Kind("wrong frame rate", _frame_rate),
    Kind("wrong sample rate, 4 s", _short_mislabel, desync=False, seconds=4.0),
    Kind("sound cut short", _cut, desync=False),
)


# ---------------------------------------------------------------- clean, and hard to tell
def _steady(source: Source, draw: Draw) -> bytes:
    fps = float(draw.choice([10.0, 12.5, 14.7, 15.0, 24.0, 24000 / 1001, 27.3, 30000 / 1001, 50.0]))
    return replace(source, fps=fps).clip()


def _varying(source: Source, draw: Draw) -> bytes:
    rates = (timing.uneven_times, timing.recorded_screen, timing.slides, timing.jittery)
    times = rates[int(draw.integers(len(rates)))](source.seconds, int(draw.integers(40)))
    return replace(source, times_ms=times).clip()


def _near(source: Source, draw: Draw) -> bytes:
    by = draw.uniform(20.0, 60.0) * draw.choice([-1.0, 1.0])
    return timing.shifted(source.clip(), source.container, by)


def _uneven(source: Source, draw: Draw) -> bytes:
    ends = source.seconds + draw.uniform(-0.39, 0.39)
    return replace(source, sound_seconds=round(ends, 2)).clip()


def _reordered(source: Source, draw: Draw) -> bytes:
    clip = timing.reordered(source.seconds, int(draw.integers(1, 4)))
    return timing.shifted(clip, "mp4", draw.uniform(-60.0, 60.0))


def _paused(source: Source, draw: Draw) -> bytes:
    at, lasting = draw.uniform(1000.0, 6000.0), draw.uniform(100.0, 3000.0)
    return timing.paused(source.clip(), source.container, at, lasting)


def _own_clock(source: Source, draw: Draw) -> bytes:
    return timing.drifting(source.clip(), source.container, draw.uniform(-0.002, 0.002))


def _lost_frames(source: Source, draw: Draw) -> bytes:
    """A camera that skips a frame or two now and then, with true time stamps."""
    gone = set(draw.integers(5, 190, 8).tolist())

    def skip(kind: str, index: int, at: float) -> float | None:
        return None if kind == "video" and index in gone else at

    return timing.retimed(source.clip(), source.container, skip)


def _late_camera(source: Source, draw: Draw) -> bytes:
    return timing.late_camera(source, draw.uniform(60.0, 500.0)).clip()


def _idle(source: Source, draw: Draw) -> bytes:
    seed = int(draw.integers(40))
    return replace(source, times_ms=timing.idle_screen(source.seconds, seed)).clip()


def _left_out(source: Source, draw: Draw) -> bytes:
    at, lasting = draw.uniform(500.0, 5000.0), draw.uniform(600.0, 2000.0)
    return timing.with_silence_left_out(source, at, lasting)


CLEAN = (
    Kind("steady, any frame rate", _steady, desync=False),
    Kind("varying frame rate", _varying, desync=False),
    Kind("20 to 60 ms apart", _near, desync=False),
    Kind("uneven ends", _uneven, desync=False),
    Kind("B frames and edit lists", _reordered, desync=False),
    Kind("both pause", _paused, desync=False),
    Kind("the sound's own clock", _own_clock, desync=False),
    Kind("skipped frames", _lost_frames, desync=False),
    Kind("a late first frame", _late_camera, desync=False),
    Kind("an idle screen", _idle, desync=False),
    Kind("silence left out", _left_out, desync=False),
)


def _ragged(source: Source, draw: Draw) -> bytes:
    by = draw.uniform(0.4, 1.5) * draw.choice([-1.0, 1.0])
    return replace(source, sound_seconds=round(source.seconds + by, 2)).clip()


RAGGED = Kind("ends 0.4 to 1.5 s apart", _ragged, desync=False)
"""Clean too, and at some lengths the very picture of a wrong rate: told apart by nothing here."""
