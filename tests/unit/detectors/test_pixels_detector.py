"""What decoded frames show: damage is told, hard content is not taken for it."""

from functools import lru_cache

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.contract import FaultFound
from monitors.detectors.pixels import Glanced, Look, faults, look
from monitors.labels import Detector, Fault, Grade, Origin
from runtime.media.glimpses import Glimpses
from runtime.media.planes import planes
from tests.faults.patterns import coded
from tests.faults.pictures import Content, Footage, footage
from tests.faults.pixel import PixelFault, damaged

MOVING_BYTES = 900.0


@lru_cache
def clip(content: Content, seed: int = 1) -> Footage:
    return footage(content, seed)


def judged(
    frames: np.ndarray, times_ms: tuple[int, ...], coded_bytes: float = MOVING_BYTES
) -> tuple[FaultFound, ...]:
    """The verdict on frames that are glanced at one by one and looked at twice a second."""
    glimpses, looks = Glimpses(), []
    for i420, ms in zip(frames, times_ms, strict=True):
        frame = av.VideoFrame.from_ndarray(i420, format="yuv420p")
        glimpses.feed(frame, float(ms))
        if not looks or ms >= looks[-1].at_ms + 500:
            looks.append(look(*planes(frame), float(ms)))
    times = glimpses.times_ms
    return faults(looks, Glanced(times, glimpses.grids, np.full(len(times), coded_bytes), 57_600))


def rules(found: tuple[FaultFound, ...], grade: Grade = Grade.HARD) -> set[str]:
    return {fault.rule for fault in found if fault.grade is grade}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("content", sorted(set(Content) - {Content.SLIDES}))
def test_hard_content_is_no_damage(content: Content, seed: int):
    shown = clip(content, seed)
    assert rules(judged(shown.frames, shown.times_ms)) == set()


def test_slides_that_stand_still_in_small_packets_are_no_damage():
    shown = clip(Content.SLIDES)
    assert rules(judged(shown.frames, shown.times_ms, coded_bytes=30.0)) == set()


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (PixelFault.GREEN, "green"),
        (PixelFault.HALF_GREEN, "green"),
        (PixelFault.GREY, "grey"),
        (PixelFault.STRIDE, "lean"),
        (PixelFault.FROZEN, "freeze"),
    ],
)
@pytest.mark.parametrize("content", [Content.MOTION, Content.NOISE, Content.SCREEN])
def test_each_damage_has_its_rule_and_its_place(fault: PixelFault, rule: str, content: Content):
    shown = clip(content)
    broken, first = damaged(shown.frames, fault, 1)
    found = judged(broken, shown.times_ms)
    (told,) = (one for one in found if one.rule == rule)
    assert (told.fault, told.origin, told.detector) == (
        Fault.VIDEO_CORRUPT, Origin.INPUT, Detector.PIXELS,
    )  # fmt: skip
    assert told.at_ms is not None
    assert 0 <= told.at_ms - shown.times_ms[first] <= 600
    assert told.value is not None
    assert told.limit is not None
    assert told.value > told.limit


def test_a_picture_that_stands_still_is_frozen_only_if_its_packets_say_that_it_moved():
    shown = clip(Content.MOTION)
    still, _ = damaged(shown.frames, PixelFault.FROZEN, 1)
    assert rules(judged(still, shown.times_ms, coded_bytes=30.0)) == set()
    assert rules(judged(still, shown.times_ms, coded_bytes=float("nan"))) == set()


def test_a_picture_that_never_moved_only_shows_as_frozen():
    shown = clip(Content.MOTION)
    still = np.repeat(shown.frames[:1], len(shown.frames), axis=0)
    found = judged(still, shown.times_ms)
    assert rules(found) == set()
    assert "freeze" in rules(found, Grade.SOFT)


def test_a_cut_to_a_grey_wall_is_no_damage():
    shown = clip(Content.MOTION)
    frames = shown.frames.copy()
    frames[20:] = 128
    frames[20:, :40] = 90
    assert rules(judged(frames, shown.times_ms, coded_bytes=30.0)) == set()


@lru_cache
def landscape(height: int, width: int) -> np.ndarray:
    """Smooth in every direction."""
    coarse = np.random.default_rng(2).uniform(30, 220, (height // 8 + 2, width // 8 + 2))
    smooth = np.kron(coarse, np.ones((8, 8)))
    for axis in (0, 1):
        smooth = np.mean([np.roll(smooth, by, axis) for by in range(-4, 5)], axis=0)
    return smooth[:height, :width].astype(np.uint8)


def leaning(y: np.ndarray) -> float:
    chroma = np.full((y.shape[0] // 2, y.shape[1] // 2), 128, np.uint8)
    return look(y, chroma, chroma, 8, 0.0).lean


@pytest.mark.parametrize("height", [480, 720])
@pytest.mark.parametrize("speed", [8, 12])
def test_an_interlaced_pan_does_not_lean(height: int, speed: int):
    shown = landscape(height, 1000)
    interlaced = shown[:, :640].copy()
    interlaced[1::2] = shown[1::2, speed : speed + 640]
    assert leaning(interlaced) == 0.0
    assert leaning(np.stack([np.roll(row, 8 * i) for i, row in enumerate(shown)])[:, :640]) > 0.9


@pytest.mark.parametrize(("slope", "period"), [(8, 32), (10, 40), (6, 24), (12, 60)])
def test_shallow_stripes_do_not_lean(slope: int, period: int):
    y, x = np.mgrid[:480, :640]
    stripes = (128 + 90 * np.sin(2 * np.pi * (x + slope * y) / period)).astype(np.uint8)
    assert leaning(stripes) == 0.0


def test_a_clip_that_leans_from_its_first_frame_only_shows_it():
    shown = clip(Content.MOTION)
    leans, first = damaged(shown.frames, PixelFault.STRIDE, 1)
    found = judged(leans[first:], shown.times_ms[first:])
    assert "lean" not in rules(found)
    assert "lean" in rules(found, Grade.SOFT)


def test_a_deck_with_a_grey_bar_is_scanned_once_for_grey(monkeypatch: pytest.MonkeyPatch):
    scanned: list[int] = []
    right = np.all

    def counted(values: np.ndarray, axis: int) -> np.ndarray:
        scanned.append(values.size)
        return right(values, axis=axis)

    monkeypatch.setattr(np, "all", counted)
    grids = np.full((600, 18, 32), 250, np.uint8)
    grids[:, 8:14] = 128
    times = np.arange(0, 24_000, 40, np.float64)
    looks = [Look(at, 0.0, 0.3, 0.0, 0.0, 0.0, 1) for at in times[::12]]
    faults(looks, Glanced(times, grids, np.full(600, 30.0), 57_600))
    assert sum(scanned) < 2 * grids.size


def test_black_from_one_frame_to_the_next_only_shows():
    shown = clip(Content.MOTION)
    frames = shown.frames.copy()
    frames[20:, :180], frames[20:, 180:] = 16, 128
    found = judged(frames, shown.times_ms, coded_bytes=30.0)
    assert rules(found) == set()
    assert rules(found, Grade.SOFT) == {"sudden_black"}


def test_blocks_and_smears_only_show():
    shown = clip(Content.MOTION)
    frames = shown.frames.copy()
    tiles = np.random.default_rng(0).integers(30, 220, (12, 20)).astype(np.uint8)
    frames[20:30, :180] = np.kron(tiles, np.ones((16, 16), np.uint8))[:180, :320]
    frames[30:, 60:180] = frames[30:, 59:60]
    found = judged(frames, shown.times_ms)
    assert rules(found) == set()
    assert rules(found, Grade.SOFT) == {"mosaic", "smear"}


def test_ten_bits_are_judged_as_eight():
    shown = clip(Content.MOTION)
    broken, _ = damaged(shown.frames, PixelFault.HALF_GREEN, 1)
    looks = []
    for i420 in (shown.frames[0], broken[-1]):
        frame = av.VideoFrame.from_ndarray(i420, format="yuv420p").reformat(format="yuv420p10le")
        looks.append(look(*planes(frame), 40.0 * len(looks)))
    assert looks[0].green == 0.0
    assert looks[1].green > 0.2


@pytest.mark.parametrize("layout", ["yuv420p", "yuv422p", "yuv444p"])
@pytest.mark.parametrize("size", [(319, 179), (320, 179), (319, 180)])
def test_the_whole_of_an_odd_picture_is_looked_at(size: tuple[int, int], layout: str):
    y, x = np.mgrid[: size[1], : size[0]]
    for lost, share in ((y >= 90, 0.5), (x >= 160, 0.5), ((y < 90) & (x < 160), 0.25)):
        planes_shown = [np.where(lost, 0, other) for other in (120, 90, 160)]
        seen = look(*planes(coded(planes_shown, layout)), 0.0)
        assert seen.green == pytest.approx(share, abs=0.02)
        filled = [np.where(lost, 128, other) for other in (120, 90, 160)]
        grey = look(*planes(coded(filled, layout)), 0.0).grey
        assert grey == pytest.approx(0.5 if lost[-1].all() else 0.0, abs=0.02)


def test_a_clip_of_no_frames_has_no_fault():
    nothing = Glanced(np.zeros(0), np.zeros((0, 18, 32), np.uint8), np.zeros(0), 0)
    assert faults((), nothing) == ()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.sampled_from([8, 10]), st.integers(0, 2**32 - 1))
def test_any_planes_can_be_looked_at(height: int, width: int, depth: int, seed: int):
    random = np.random.default_rng(seed)
    kind = np.uint8 if depth == 8 else np.uint16
    odd = seed % 2  # a last sample of chroma may have one of luma alone
    y = random.integers(0, 1 << depth, (2 * height - odd, 2 * width - odd)).astype(kind)
    u, v = (random.integers(0, 1 << depth, (height, width)).astype(kind) for _ in range(2))
    seen = look(y, u, v, depth, 0.0)
    assert isinstance(seen, Look)
    assert all(0.0 <= share <= 1.0 for share in (seen.green, seen.grey, seen.lean, seen.smear))
