"""Every frame leaves a small trace of its luma, at a cost that does not grow with its size."""

import time

import av
import numpy as np
import pytest

from runtime.media.glimpses import MOST_FRAMES, Glimpses


def grey_frame(luma: np.ndarray, pixel_format: str = "yuv420p") -> av.VideoFrame:
    frame = av.VideoFrame(luma.shape[1], luma.shape[0], pixel_format)
    for plane, content in zip(frame.planes, (luma, None, None), strict=True):
        wide = np.full((plane.height, plane.line_size // luma.itemsize), 128, luma.dtype)
        if content is not None:
            wide[:, : luma.shape[1]] = content
        plane.update(wide.tobytes())
    return frame


def steps(height: int, width: int) -> np.ndarray:
    """Every cell of the grid in another grey."""
    rows = np.arange(height) * 18 // height
    columns = np.arange(width) * 32 // width
    return (rows[:, None] * 7 + columns[None] * 3 + 16).astype(np.uint8)


@pytest.mark.parametrize("size", [(360, 640), (720, 1280), (480, 854), (1280, 720), (90, 162)])
def test_a_cell_holds_the_mean_of_its_part_of_the_picture(size: tuple[int, int]):
    glimpses = Glimpses()
    glimpses.feed(grey_frame(steps(*size)), 0.0)
    assert np.abs(glimpses.grids[0].astype(int) - steps(18, 32)).max() <= 4
    assert np.abs(glimpses.grids[0].astype(int) - steps(18, 32)).mean() <= 0.5


@pytest.mark.parametrize("size", [(2, 2), (17, 31), (1, 400)])
def test_a_tiny_picture_has_a_glimpse_too(size: tuple[int, int]):
    glimpses = Glimpses()
    glimpses.feed(grey_frame(np.full(size, 77, np.uint8)), 0.0)
    assert (glimpses.grids == 77).all()


def test_ten_bits_are_shown_in_eight():
    glimpses = Glimpses()
    glimpses.feed(grey_frame(np.full((36, 64), 801, np.uint16), "yuv420p10le"), 0.0)
    assert (glimpses.grids == 801 >> 2).all()


def test_times_and_grids_stay_in_step():
    glimpses = Glimpses()
    for i in range(5):
        glimpses.feed(grey_frame(np.full((36, 64), 20 + i, np.uint8)), 40.0 * i)
    assert glimpses.times_ms.tolist() == [0.0, 40.0, 80.0, 120.0, 160.0]
    assert glimpses.grids.shape == (5, 18, 32)
    assert glimpses.grids[:, 0, 0].tolist() == [20, 21, 22, 23, 24]


def test_a_clip_of_no_frames_has_no_glimpse():
    assert Glimpses().times_ms.shape == (0,)
    assert Glimpses().grids.shape == (0, 18, 32)


def test_a_pixel_format_without_luma_is_left_out_and_not_guessed():
    glimpses = Glimpses()
    glimpses.feed(av.VideoFrame(64, 36, "rgb24"), 0.0)
    assert len(glimpses.times_ms) == 0


def test_a_fast_clip_is_thinned_out():
    glimpses = Glimpses()
    frame = grey_frame(np.full((36, 64), 20, np.uint8))
    for i in range(240):
        glimpses.feed(frame, i * 1000 / 240)
    assert 28 <= len(glimpses.times_ms) <= 35


def test_thirty_frames_a_second_are_all_kept_though_containers_round():
    glimpses = Glimpses()
    frame = grey_frame(np.full((36, 64), 20, np.uint8))
    for i in range(90):
        glimpses.feed(frame, float(round(i * 1000 / 30)))
    assert len(glimpses.times_ms) == 90


def test_what_is_kept_is_bounded():
    glimpses = Glimpses()
    frame = grey_frame(np.full((2, 2), 20, np.uint8))
    for i in range(MOST_FRAMES + 10):
        glimpses.feed(frame, 40.0 * i)
    assert len(glimpses.grids) == MOST_FRAMES


def test_a_glimpse_costs_little_at_any_size():
    frame = grey_frame(np.full((720, 1280), 20, np.uint8))
    glimpses = Glimpses()
    glimpses.feed(frame, 0.0)
    begun = time.thread_time()
    for i in range(1, 201):
        glimpses.feed(frame, 40.0 * i)
    assert (time.thread_time() - begun) / 200 < 0.0005
