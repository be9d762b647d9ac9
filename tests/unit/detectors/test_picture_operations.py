"""A picture is the frame it was made of, whatever our scaling, colours and turning did."""

from functools import lru_cache
from itertools import chain

import av
import numpy as np
import pytest

from monitors.contract import MediaRung
from monitors.detectors.operations import (
    PICTURE_MEAN,
    PICTURE_WORST,
    Difference,
    colour_of,
    differences,
    made,
    picture_faults,
)
from monitors.labels import Detector, Fault, Grade, Origin
from monitors.redlines import LadderLines
from runtime.media.fidelity import fidelity_of
from runtime.media.planes import planes
from tests.faults.patterns import drawn, extreme, masks, painted, wild
from tests.faults.pictures import Content, footage
from tests.faults.pixel import STILL_FAULTS, PixelFault, damaged_frame


@lru_cache
def shown(content: Content, width: int = 640, height: int = 360) -> np.ndarray:
    return footage(content, 3, width=width, height=height, count=5).frames[4]


def frame_of(i420: np.ndarray) -> av.VideoFrame:
    return av.VideoFrame.from_ndarray(i420, format="yuv420p")


def difference(
    frame: av.VideoFrame, source: av.VideoFrame | None = None, rung: MediaRung = MediaRung.FULL,
    turned: int = 0, matrix: int = 2, full_range: bool = False,
) -> Difference:  # fmt: skip
    """Between `frame` and the picture that our operations make of `source`, by default of it."""
    fidelity = fidelity_of(rung, LadderLines())
    size = fidelity.size(frame.width, frame.height)
    picture = fidelity.picture(source or frame, size, turned)
    return between(frame, picture, turned, matrix, full_range)


def between(
    frame: av.VideoFrame,
    picture: np.ndarray,
    turned: int,
    matrix: int = 2,
    full_range: bool = False,
) -> Difference:
    seen = made(*planes(frame), picture, turned)
    (found,) = differences([seen], colour_of(matrix, full_range))
    return found


def sound(found: Difference) -> bool:
    return found.mean <= PICTURE_MEAN and found.worst <= PICTURE_WORST


@pytest.mark.parametrize("rung", list(MediaRung))
@pytest.mark.parametrize("size", [(640, 360), (854, 480), (162, 130)])
@pytest.mark.parametrize("content", [Content.NOISE, Content.DARK, Content.SLIDES, Content.SCREEN])
def test_scaling_and_colours_leave_the_picture_alone(
    content: Content, size: tuple[int, int], rung: MediaRung
):
    assert sound(difference(frame_of(shown(content, *size)), rung=rung))


@pytest.mark.parametrize("matrix", [1, 2, 5, 6, 7, 9])
@pytest.mark.parametrize("full_range", [False, True])
def test_every_tagged_colour_is_read_as_the_scaler_reads_it(matrix: int, full_range: bool):
    frame = frame_of(shown(Content.MOTION))
    frame.colorspace, frame.color_range = matrix, 2 if full_range else 1
    assert sound(difference(frame, matrix=matrix, full_range=full_range))


def test_a_tag_that_is_ignored_would_be_seen():
    frame = frame_of(shown(Content.MOTION))
    frame.color_range = 2
    assert not sound(difference(frame, full_range=False))


@pytest.mark.parametrize("turned", [0, 90, 180, 270, -90])
def test_turning_upright_is_no_damage(turned: int):
    assert sound(difference(frame_of(shown(Content.CUTS)), turned=turned))


def test_a_wrong_turn_is_damage():
    frame = frame_of(shown(Content.CUTS))
    fidelity = fidelity_of(MediaRung.FULL, LadderLines())
    picture = fidelity.picture(frame, (640, 360), 180)
    assert not sound(between(frame, picture, 0))


@pytest.mark.parametrize("rung", [MediaRung.FULL, MediaRung.P160_8K])
@pytest.mark.parametrize("fault", sorted(STILL_FAULTS))
def test_each_damage_on_the_way_is_seen(fault: PixelFault, rung: MediaRung):
    clean = shown(Content.MOTION)
    assert not sound(
        difference(frame_of(clean), frame_of(damaged_frame(clean, fault, 1)), rung=rung)
    )


def test_ten_bits_are_compared_as_eight():
    frame = frame_of(shown(Content.MOTION)).reformat(format="yuv420p10le")
    assert sound(difference(frame))


@pytest.mark.parametrize("fault", sorted(STILL_FAULTS))
@pytest.mark.parametrize("seed", range(6))
def test_damage_that_came_with_the_frame_is_not_ours(fault: PixelFault, seed: int):
    broken = frame_of(damaged_frame(shown(Content.MOTION), fault, seed))
    for rung in MediaRung:
        assert sound(difference(broken, rung=rung))


def test_colours_that_rgb_cannot_show_are_not_held_against_the_picture():
    random = np.random.default_rng(0)
    wild = random.integers(0, 256, (540, 640), np.uint8)  # luma and chroma know nothing of another
    for rung in MediaRung:
        assert sound(difference(frame_of(wild), rung=rung))


def hurt_by_patterns(size: tuple[int, int], rung: MediaRung, each: int) -> list[str]:
    """The clean patterns, every so many of them, that are taken for damage."""
    layouts = "yuv420p", "yuv422p", "yuv444p", "yuv420p10le"
    shown = chain.from_iterable(
        kind(*size, layout, each) for layout in layouts for kind in (wild, extreme, drawn)
    )
    return [
        f"{name}: {found}"
        for name, frame in shown
        if not sound(found := difference(frame, rung=rung))
    ]


@pytest.mark.parametrize("rung", [MediaRung.FULL, MediaRung.P160_8K])
def test_fine_patterns_are_not_held_against_the_picture(rung: MediaRung):
    assert hurt_by_patterns((214, 180), rung, 11) == []


@pytest.mark.parametrize("size", [(175, 143), (143, 175)])
@pytest.mark.parametrize("layout", ["yuv420p", "yuv422p", "yuv444p", "yuv420p10le"])
def test_what_drawing_an_odd_size_anew_mixes_at_edges_is_no_damage(
    layout: str, size: tuple[int, int]
):
    for lines in ("pairs of columns", "pairs of rows"):
        frame = painted(masks(*size)[lines], "green", "magenta", layout)
        assert sound(found := difference(frame)), (lines, found)


@pytest.mark.slow
@pytest.mark.parametrize("rung", list(MediaRung))
@pytest.mark.parametrize(
    ("size", "each"),
    [
        ((162, 130), 3),
        ((175, 143), 2),
        ((131, 129), 7),
        ((361, 203), 7),
        ((640, 360), 11),
        ((1280, 720), 31),
        ((720, 960), 31),
    ],
)
def test_fine_patterns_of_every_size_are_not_held_against_the_picture(
    size: tuple[int, int], each: int, rung: MediaRung
):
    assert hurt_by_patterns(size, rung, each) == []


@pytest.mark.parametrize("rung", [MediaRung.FULL, MediaRung.P160_8K])
@pytest.mark.parametrize(
    ("fault", "other"),
    [
        (PixelFault.GREEN, "red"),
        (PixelFault.HALF_GREEN, "red"),
        (PixelFault.GREY, "red"),
        (PixelFault.PLANES_SWAPPED, "red"),
        (PixelFault.RANGE_DOUBLED, "grey"),
    ],
)
def test_damage_to_a_fine_pattern_is_seen(fault: PixelFault, other: str, rung: MediaRung):
    frame = painted(masks(640, 360)["columns"], "white", other)
    broken = frame_of(damaged_frame(np.asarray(frame.to_ndarray(), np.uint8), fault, 1))
    assert not sound(difference(frame, broken, rung=rung))


@pytest.mark.parametrize(
    ("side", "layout", "to"),
    [
        (12, "yuv420p", 12),
        (126, "yuv420p10le", 126),
        (126, "yuv420p", 120),
        (62, "yuv422p", 62),
        (300, "yuv420p", 62),
    ],
)
def test_a_frame_whose_blocks_tell_too_little_is_refused_in_words(side: int, layout: str, to: int):
    small = av.VideoFrame(side, side, layout)
    with pytest.raises(ValueError, match="too small"):
        made(*planes(small), np.zeros((to, to, 3), np.uint8), 0)


def test_small_blocks_of_whole_rows_are_compared():
    assert sound(difference(frame_of(shown(Content.NOISE, 32, 32))))


def test_the_fault_says_where_and_how_far():
    found = [
        (0.0, Difference(0.1, 1.0)),
        (500.0, Difference(3.0, 20.0)),
        (1000.0, Difference(9, 9)),
    ]
    (fault,) = picture_faults(found)
    assert (fault.fault, fault.grade) == (Fault.VIDEO_CORRUPT, Grade.HARD)
    assert (fault.origin, fault.detector) == (Origin.PIPELINE, Detector.OPERATIONS)
    assert (fault.rule, fault.at_ms, fault.value) == ("picture_altered", 500.0, 3.0)
    assert "2 of 3 pictures" in fault.detail
    assert picture_faults(found[:1]) == ()
