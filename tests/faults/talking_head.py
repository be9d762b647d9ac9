"""Synthetic talking heads: a mouth that opens as the voice sounds, in a picture that moves too.

No recording of a face ships with the project. What is drawn here has what makes real ones hard:
a head that sways, eyes that blink, camera noise, things that move beside it, captions, sounds
that are made with a closed mouth, and mouths of any size.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import av
import numpy as np
import soxr
from numpy.typing import NDArray

from tests.support import media
from tests.support.media import CLIP_HZ, FAST, SPEECH_HZ, Pcm

WIDTH, HEIGHT, FPS = 192, 108, 25
_WORDS = {
    "en": "river stone morning window garden people never carry seven bottles under golden bridges "
    "because nobody asked about yellow paper before winter came and children often laugh loudly "
    "while father cooks supper near quiet mountains far away from every busy market street",
    "zh": "今天 天气 很好 我们 一起 去 公园 散步 然后 回家 吃饭 明天 早上 他 要 坐 火车 "
    "到 北京 看 朋友 可是 妈妈 说 外面 下雨 路上 人 很多 不要 忘记 带 雨伞 和 钥匙",
}

Luma = NDArray[np.float32]


@dataclass(frozen=True)
class Scene:
    """One talker. All that varies follows from `seed`; `mouth` 0.0 draws none."""

    seed: int
    seconds: float = 8.0
    voice: str = "en"
    mouth: float = 1.0  # of its usual size
    sway: float = 1.0  # how much the head moves
    noise: float = 3.0  # of the camera, grey levels
    objects: int = 2  # things that move beside the head
    captions: bool = True


# ---------------------------------------------------------------- voice
@lru_cache(maxsize=256)
def voice(seed: int, seconds: float, language: str) -> Pcm:
    """Somebody who says random words with pauses between them, mono at `CLIP_HZ`."""
    rng = np.random.default_rng(seed)
    words, spoken = _WORDS[language].split(), np.zeros(0, np.float32)
    while len(spoken) < seconds * SPEECH_HZ:
        said = " ".join(rng.choice(words, int(rng.integers(3, 8))))
        pause = np.zeros(round(rng.uniform(0.1, 0.6) * SPEECH_HZ), np.float32)
        spoken = np.concatenate([spoken, media.speech(said, language), pause])
    pcm = soxr.resample(spoken, SPEECH_HZ, CLIP_HZ).astype(np.float32)
    return pcm[: round(seconds * CLIP_HZ)]


def late(pcm: Pcm, offset_ms: float) -> Pcm:
    """The sound `offset_ms` later against the picture, or earlier, at the same length."""
    by = round(abs(offset_ms) * CLIP_HZ / 1000)
    padding = np.zeros(by, np.float32)
    if offset_ms >= 0:
        return np.concatenate([padding, pcm])[: len(pcm)]
    return np.concatenate([pcm[by:], padding])


def loudness(pcm: Pcm, count: int) -> Luma:
    """How loud each of `count` frames is, 0 to 1 over 30 dB."""
    edges = (np.arange(count + 1) - 0.5) * CLIP_HZ / FPS
    cells = np.clip(edges.astype(int), 0, len(pcm) - 1)
    energy = np.add.reduceat(pcm.astype(np.float64) ** 2, cells[:-1]) / np.maximum(
        1, np.diff(cells)
    )
    level = 10 * np.log10(energy + 1e-9)
    return np.clip((level - level.max() + 30.0) / 30.0, 0.0, 1.0).astype(np.float32)


def opening(scene: Scene) -> Luma:
    """How far the mouth is open in each frame, 0 to 1.

    It follows the voice, smoothed, but not slavishly: vowels differ in how wide they are, and
    some sounds are made with the lips shut.
    """
    count = round(scene.seconds * FPS)
    rng = np.random.default_rng(scene.seed + 1)
    loud = loudness(voice(scene.seed, scene.seconds, scene.voice), count)
    wide = _smooth(rng.uniform(0.3, 1.0, count), 4)
    shut = _smooth((rng.uniform(size=count) > 0.1).astype(np.float32), 2)
    return np.clip(_smooth(loud, 3) * wide * shut * 1.6, 0.0, 1.0)


# ---------------------------------------------------------------- picture
def pictures(scene: Scene) -> Iterator[NDArray[np.uint8]]:
    """Luma of each frame, `(HEIGHT, WIDTH)`."""
    rng = np.random.default_rng(scene.seed + 2)
    count = round(scene.seconds * FPS)
    open_, draw = opening(scene), _Head(scene, rng, count)
    ground = _ground(rng)
    things = [_Thing(rng, count) for _ in range(scene.objects)]
    light = 1.0 + 0.02 * _wander(rng, count, 40)
    for i in range(count):
        picture = ground.copy()
        for thing in things:
            thing.draw(picture, i)
        draw(picture, i, float(open_[i]))
        if scene.captions:
            _caption(picture, i, scene.seed)
        grain = rng.standard_normal(picture.shape, np.float32) * scene.noise
        yield np.clip(picture * light[i] + grain, 16, 235).astype(np.uint8)


class _Head:
    def __init__(self, scene: Scene, rng: np.random.Generator, count: int) -> None:
        self.tall = HEIGHT * rng.uniform(0.2, 0.45)  # half of its height
        self.wide = self.tall * rng.uniform(0.65, 0.8)
        reach = scene.sway * rng.uniform(1.0, 5.0)
        self.x = WIDTH * rng.uniform(0.35, 0.65) + reach * _wander(rng, count, 30)
        self.y = HEIGHT * rng.uniform(0.5, 0.58) + 0.6 * reach * _wander(rng, count, 25)
        self.skin, self.hair = rng.uniform(120, 200), rng.uniform(25, 70)
        self.lips, self.inside = self.skin - rng.uniform(20, 45), rng.uniform(20, 40)
        self.mouth = scene.mouth * rng.uniform(0.8, 1.2)
        self.blink = np.zeros(count, bool)
        for at in np.cumsum(rng.integers(40, 130, 1 + count // 40)):
            self.blink[at : at + 4] = True
        self.rows, self.columns = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)

    def __call__(self, picture: Luma, i: int, open_: float) -> None:
        x, y, tall, wide = self.x[i], self.y[i], self.tall, self.wide
        self._oval(picture, x, y - 0.12 * tall, 1.1 * wide, 1.1 * tall, self.hair)
        self._oval(picture, x, y, wide, tall, self.skin)
        for side in (-0.4, 0.4):
            height = 0.02 if self.blink[i] else 0.09
            self._oval(picture, x + side * wide, y - 0.2 * tall, 0.18 * wide, height * tall, 40.0)
        if self.mouth:
            gape = self.mouth * tall * (0.03 + 0.2 * open_)
            across = self.mouth * wide * (0.42 - 0.08 * open_)
            down = y + 0.5 * tall + 0.3 * gape
            self._oval(picture, x, down, across * 1.15, gape + 0.05 * tall, self.lips)
            self._oval(picture, x, down, across, gape, self.inside)

    def _oval(
        self, picture: Luma, x: float, y: float, wide: float, tall: float, luma: float
    ) -> None:
        """Antialiased, so that what moves by less than a pixel shows."""
        top, left = max(0, int(y - tall) - 2), max(0, int(x - wide) - 2)
        part = np.s_[top : int(y + tall) + 3, left : int(x + wide) + 3]
        across, down = (self.columns[part] - x) / wide, (self.rows[part] - y) / max(tall, 0.5)
        far = np.sqrt(across * across + down * down)
        cover = np.clip((1.0 - far) * max(tall, 0.5) + 0.5, 0.0, 1.0)
        picture[part] += cover * (luma - picture[part])


class _Thing:
    """A box that crosses the picture now and then, or flickers as a screen does."""

    def __init__(self, rng: np.random.Generator, count: int) -> None:
        self.wide, self.tall = rng.integers(8, 40), rng.integers(6, 30)
        self.x = rng.uniform(0, WIDTH) + rng.uniform(10, 60) * _wander(rng, count, 20)
        self.y = rng.uniform(0, HEIGHT) + rng.uniform(0, 20) * _wander(rng, count, 20)
        flickers = rng.uniform() < 0.4
        self.luma = rng.uniform(40, 220) + (
            40 * _wander(rng, count, 4) if flickers else np.zeros(count)
        )

    def draw(self, picture: Luma, i: int) -> None:
        top, left = int(self.y[i]), int(self.x[i])
        picture[max(0, top) : max(0, top + self.tall), max(0, left) : max(0, left + self.wide)] = (
            self.luma[i]
        )


def _caption(picture: Luma, i: int, seed: int) -> None:
    """White letters on black at the bottom; other ones every second or so."""
    letters = np.random.default_rng((seed, i // (20 + seed % 15))).uniform(size=(4, 40)) > 0.5
    text = np.kron(letters, np.ones((2, 3)))
    picture[-11:] = 25.0
    picture[-9:-1, 30 : 30 + text.shape[1]] = np.where(text, 225.0, 25.0)


def _ground(rng: np.random.Generator) -> Luma:
    coarse = rng.uniform(50, 190, (6, 10)).astype(np.float32)
    return np.kron(coarse, np.ones((18, 20), np.float32))[:HEIGHT, :WIDTH]


def _wander(rng: np.random.Generator, count: int, frames: int) -> Luma:
    """A smooth random path around 0, about 1 wide, that turns every so many frames."""
    knots = rng.standard_normal(count // frames + 3)
    path = np.interp(np.arange(count) / frames, np.arange(len(knots)), knots)
    return _smooth(path, max(1, frames // 2))


def _smooth(x: NDArray[np.floating], width: int) -> Luma:
    kernel = np.ones(width) / width
    padded = np.pad(x, (width // 2, width - 1 - width // 2), "edge")
    return np.convolve(padded, kernel, "valid").astype(np.float32)


# ---------------------------------------------------------------- files
@lru_cache(maxsize=512)
def filmed(scene: Scene, container: str = "mp4") -> bytes:
    """The picture alone, as a file."""
    codec = media.CODECS[container][0]
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream = file.add_stream(codec, rate=Fraction(FPS))
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.options = FAST[codec] | ({"crf": "23"} if codec == "libx264" else {})
        stream.codec_context.gop_size = FPS
        for i, luma in enumerate(pictures(scene)):
            frame = av.VideoFrame.from_ndarray(_yuv(luma), format="yuv420p")
            frame.pts, frame.time_base = i, Fraction(1, FPS)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return out.getvalue()


def with_sound(film: bytes, pcm: Pcm, container: str = "mp4") -> bytes:
    """The film's packets, and this sound beside them."""
    out = io.BytesIO()
    with av.open(io.BytesIO(film), "r") as source, av.open(out, "w", format=container) as target:
        picture = target.add_stream_from_template(source.streams.video[0])
        sound = target.add_stream(media.CODECS[container][1], CLIP_HZ, layout="mono")
        for packet in source.demux():
            if packet.dts is not None:
                packet.stream = picture
                target.mux(packet)
        media._write(target, sound, pcm, CLIP_HZ, 0.0)  # pyright: ignore[reportPrivateUsage]
    return out.getvalue()


def talking(scene: Scene, offset_ms: float = 0.0, container: str = "mp4") -> bytes:
    """A talker whose voice comes `offset_ms` late, or early, with time stamps that know nothing
    of it."""
    pcm = late(voice(scene.seed, scene.seconds, scene.voice), offset_ms)
    return with_sound(filmed(scene, container), pcm, container)


def _yuv(luma: NDArray[np.uint8]) -> NDArray[np.uint8]:
    grey = np.full((HEIGHT // 2, WIDTH), 128, np.uint8)
    return np.concatenate([luma, grey])
