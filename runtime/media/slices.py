"""Slices: stretches of media on the millisecond axis, with the digest that names them (S2.1)."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from monitors.detectors import operations
from monitors.redlines import SchedulerLines
from runtime.media.clock import Sample, slice_index
from runtime.media.fidelity import MODEL_HZ

MIN_SAMPLES = 1_280  # 80 ms, about one audio token: a shorter tail is dropped

Picture = NDArray[np.uint8]
Sound = NDArray[np.float32]
Signature = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class VideoSlice:
    """Two seconds of video: `frames` uint8 RGB `(n, height, width, 3)`.

    Frame i stands for `start_ms + i * grid_ms`; `pts_ms[i]` is its true time. A frame that was
    held on screen longer than the grid's tolerance counts as shown at its grid point.
    """

    start_ms: int
    frames: NDArray[np.uint8]
    pts_ms: tuple[int, ...]
    grid_ms: float
    digest: str
    key_frame: bool  # holds the first key frame of its item
    signature: Signature  # empty where it could not be made


@dataclass(frozen=True, eq=False)
class AudioSlice:
    """One second of sound: `pcm` float32 mono `(samples,)` at 16 kHz; the last may be shorter."""

    start_ms: int
    pcm: NDArray[np.float32]
    digest: str


@dataclass(frozen=True, eq=False)
class ImageSlice:
    """A still picture: `pixels` uint8 RGB `(height, width, 3)`."""

    pixels: NDArray[np.uint8]
    digest: str


Slice = VideoSlice | AudioSlice | ImageSlice


def cut(
    samples: Iterable[Sample[Picture]],
    sound: Sound,
    grid_ms: float,
    lines: SchedulerLines,
    sign: Callable[[NDArray[np.uint8]], Signature] = operations.signature,
) -> Iterator[Slice]:
    """Cuts one item's frames and sound into slices in time order, each video slice before the
    sound of the same stretch, and chains their digests.

    `samples` in time order, all of one size; `sound` starts at time 0. Either may be empty.
    `sign` makes the signature of a video slice's frames.
    """
    video_ms = lines.video_slice_s * 1000.0
    videos = {
        index: tuple(group)
        for index, group in groupby(samples, lambda one: slice_index(one.grid_ms, video_ms))
    }
    sounds = {
        index: tuple(group)
        for index, group in groupby(
            _pieces(sound, lines), lambda one: slice_index(one[0], video_ms)
        )
    }
    digest, first = "", min(videos, default=None)
    for index in sorted(videos.keys() | sounds.keys()):
        if index in videos:
            picture = _video_slice(videos[index], grid_ms, digest, index == first, sign)
            digest = picture.digest
            yield picture
        for start_ms, pcm in sounds.get(index, ()):
            digest = chain(digest, f"audio@{start_ms}", pcm)
            yield AudioSlice(start_ms, pcm, digest)


def image_slice(picture: Picture) -> ImageSlice:
    """A still picture as the only slice of its item."""
    return ImageSlice(picture, chain("", "image", picture))


def _video_slice(
    samples: Sequence[Sample[Picture]],
    grid_ms: float,
    parent: str,
    key_frame: bool,
    sign: Callable[[NDArray[np.uint8]], Signature],
) -> VideoSlice:
    frames = np.stack([sample.frame for sample in samples])
    pts_ms = tuple(round(sample.shown_ms) for sample in samples)
    start_ms = round(samples[0].grid_ms)
    return VideoSlice(
        start_ms=start_ms,
        frames=frames,
        pts_ms=pts_ms,
        grid_ms=grid_ms,
        digest=chain(parent, f"video@{start_ms}/{grid_ms:g}{pts_ms}", frames),
        key_frame=key_frame,
        signature=sign(frames),
    )


def _pieces(sound: Sound, lines: SchedulerLines) -> Iterator[tuple[int, Sound]]:
    """Start (ms) and samples of each audio slice; a sound shorter than a token is padded."""
    step = round(lines.audio_slice_s * MODEL_HZ)
    for start in range(0, len(sound), step):
        pcm = sound[start : start + step]
        if start and len(pcm) < MIN_SAMPLES:
            return
        padding = max(0, MIN_SAMPLES - len(pcm))
        yield start * 1000 // MODEL_HZ, np.pad(pcm, (0, padding))


def chain(parent: str, place: str, content: NDArray[np.generic]) -> str:
    """The digest of a slice: of all slices of its item before it, its place and its content.

    `parent` is the digest of the slice before, "" for the first; `place` says what the array is
    and when. Equal digests mean equal media up to and including this slice.
    """
    solid = np.ascontiguousarray(content)
    header = f"{parent}|{place}|{solid.dtype.str}|{solid.shape}|"
    digest = hashlib.blake2b(header.encode(), digest_size=16)
    digest.update(solid.data.cast("B"))
    return digest.hexdigest()
