"""Damage to decoded frames and to the pictures made of them: by kind, how much is found."""

from collections import Counter
from collections.abc import Iterator

import av
import numpy as np
from numpy.typing import NDArray

from bench.board import Figure
from bench.proportions import recall
from monitors.contract import FaultFound, MediaRung
from monitors.detectors.operations import (
    PICTURE_MEAN,
    PICTURE_WORST,
    colour_of,
    differences,
    made,
)
from monitors.labels import Detector, Grade
from monitors.redlines import LadderLines
from runtime.media.fidelity import fidelity_of
from runtime.media.inspection import Inspection
from runtime.media.planes import planes
from tests.faults.bitstream import VISIBLE_DB, psnr
from tests.faults.encodings import Coded, Coding, encoded
from tests.faults.pictures import Content, Footage, footage
from tests.faults.pixel import STILL_FAULTS, PixelFault, damaged, damaged_frame

IN_PIXELS = (
    PixelFault.GREEN, PixelFault.HALF_GREEN, PixelFault.GREY, PixelFault.STRIDE, PixelFault.FROZEN,
)  # fmt: skip
SEEDS, QUICK_SEEDS = 16, 1
LOOK_EVERY_MS = 500
_TARGETS = {"pixels": 0.896, "operations": 0.90}  # a trial of such rules reached as much
_COLOUR = colour_of(2, full_range=False)


def figures(*, quick: bool) -> list[Figure]:
    """Recall by kind of damage, for what can be seen."""
    seeds = range(QUICK_SEEDS if quick else SEEDS)
    return [*_pixels(seeds), *_operations(seeds)]


def _pixels(seeds: range) -> Iterator[Figure]:
    hits: Counter[PixelFault] = Counter()
    of: Counter[PixelFault] = Counter()
    clean = wronged = 0
    for seed in seeds:
        for content in Content:
            shown = footage(content, seed)
            coded = encoded(shown, Coding.VP9)
            clean += 1
            wronged += bool(_hard(shown, shown.frames, coded))
            for fault in IN_PIXELS:
                broken, first = damaged(shown.frames, fault, seed)
                if _visible(shown.frames[first:], broken[first:]):
                    of[fault] += 1
                    hits[fault] += bool(_hard(shown, broken, coded))
    yield from _by_kind("pixels", hits, of, (wronged, clean))


def _by_kind(
    name: str, hits: Counter[PixelFault], of: Counter[PixelFault], clean: tuple[int, int]
) -> Iterator[Figure]:
    """`clean`: how many clean ones were wronged, of how many."""
    wronged, whole = clean
    for fault in of:
        yield recall(f"{name}: {fault}, found", hits[fault], of[fault], None, "")
    found = hits.total()
    yield recall(f"{name}: all kinds, found", found, of.total(), _TARGETS[name], "")
    beside = f"{wronged} of {whole} clean ones wronged"
    yield recall(f"{name}: precision", found, found + wronged, None, beside)


def _hard(shown: Footage, frames: NDArray[np.uint8], coded: Coded) -> list[FaultFound]:
    """Hard faults in frames as decoded, each in the packet that it came in."""
    inspection = Inspection(coded.coding.codec, None)
    in_order = sorted(coded.pieces, key=lambda piece: piece.pts)
    for ms, piece in zip(shown.times_ms, in_order, strict=True):
        inspection.packet(av.Packet(piece.data), float(ms))
    due = 0.0
    for ms, i420 in zip(shown.times_ms, frames, strict=True):
        frame = av.VideoFrame.from_ndarray(i420, format="yuv420p")
        inspection.frame(frame, float(ms))
        if ms >= due:
            inspection.picture(frame, float(ms), frame.to_ndarray(format="rgb24"), 0)
            due += LOOK_EVERY_MS
    report = inspection.report(float(shown.times_ms[-1]), None, 0.0)
    return [
        fault
        for finding in inspection.findings(report)
        for fault in finding.faults
        if finding.detector is Detector.PIXELS and fault.grade is Grade.HARD
    ]


def _visible(clean: NDArray[np.uint8], broken: NDArray[np.uint8]) -> bool:
    """Whether a frame falls under the limit, its chroma included."""
    return any(psnr(a, b) < VISIBLE_DB for a, b in zip(clean, broken, strict=True))


def _operations(seeds: range) -> Iterator[Figure]:
    hits: Counter[PixelFault] = Counter()
    of: Counter[PixelFault] = Counter()
    clean = wronged = 0
    for seed in seeds:
        for content in Content:
            shown = footage(content, seed, width=640, height=360, count=4).frames[3]
            for rung in (MediaRung.FULL, MediaRung.P160_8K):
                whole, off = _made(shown, shown, rung)
                clean, wronged = clean + 1, wronged + off
                for fault in sorted(STILL_FAULTS):
                    broken, off = _made(shown, damaged_frame(shown, fault, seed), rung)
                    if psnr(whole, broken) < VISIBLE_DB:
                        of[fault] += 1
                        hits[fault] += off
    yield from _by_kind("operations", hits, of, (wronged, clean))


def _made(
    shown: NDArray[np.uint8], used: NDArray[np.uint8], rung: MediaRung
) -> tuple[NDArray[np.uint8], bool]:
    """The picture that is made of `used` where it should be of `shown`, and whether that is
    found."""
    frame, source = (av.VideoFrame.from_ndarray(each, format="yuv420p") for each in (shown, used))
    fidelity = fidelity_of(rung, LadderLines())
    size = fidelity.size(frame.width, frame.height)
    picture = fidelity.picture(source, size)
    seen = planes(frame)
    assert seen is not None
    (apart,) = differences([made(*seen, picture, 0)], _COLOUR)
    return picture, apart.mean > PICTURE_MEAN or apart.worst > PICTURE_WORST
