"""Block means tell pixels that arrived whole from pixels that did not."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.detectors.operations import arrival_faults, compare, signature
from monitors.labels import Fault, Grade, Origin
from tests.support import media

Frames = np.ndarray
SENT = np.stack(list(media.frames(4, 320, 240)))


def swap_red_and_blue(frames: Frames) -> Frames:
    return frames[..., ::-1]


def half_green(frames: Frames) -> Frames:
    broken = frames.copy()
    broken[:, 120:] = (0, 135, 0)
    return broken


def wrong_stride(frames: Frames) -> Frames:
    flat = frames.reshape(len(frames), -1)
    return np.roll(flat, 7 * 3 * 16, axis=1).reshape(frames.shape)


def transposed(frames: Frames) -> Frames:
    return frames.reshape(len(frames), 320, 240, 3)


def wrong_range(frames: Frames) -> Frames:
    return (frames * (219 / 255) + 16).astype(np.uint8)


def one_black_frame(frames: Frames) -> Frames:
    broken = frames.copy()
    broken[2] = 0
    return broken


def one_lost_block(frames: Frames) -> Frames:
    broken = frames.copy()
    broken[1, 30:60, 40:80] = 0
    return broken


def one_frame_less(frames: Frames) -> Frames:
    return frames[:3]


@pytest.mark.parametrize(
    "damage",
    [
        swap_red_and_blue, half_green, wrong_stride, transposed, wrong_range, one_black_frame,
        one_lost_block, one_frame_less,
    ],
)  # fmt: skip
def test_damage_on_the_way_to_the_engine_is_a_hard_fault_of_the_pipeline(damage):
    found = arrival_faults(*compare(signature(SENT), signature(damage(SENT))))
    assert [(f.fault, f.grade, f.origin) for f in found] == [
        (Fault.VIDEO_CORRUPT, Grade.HARD, Origin.PIPELINE)
    ]


def test_the_same_pixels_are_no_fault():
    assert compare(signature(SENT), signature(SENT.copy())) == (0.0, 0.0)
    assert arrival_faults(0.0, 0.0) == ()


def test_rounding_in_a_conversion_is_no_fault():
    noisy = SENT.astype(int) + np.random.default_rng(0).integers(-2, 3, SENT.shape)
    close = np.clip(noisy, 0, 255).astype(np.uint8)
    assert arrival_faults(*compare(signature(SENT), signature(close))) == ()


@given(st.integers(1, 5), st.integers(1, 90), st.integers(1, 90))
def test_any_size_has_66_numbers_a_frame(n: int, height: int, width: int):
    numbers = signature(np.full((n, height, width, 3), 77, np.uint8))
    assert len(numbers) == 66 * n
    assert set(numbers) == {77, 128}


def test_a_mean_alone_can_be_judged():
    assert arrival_faults(1.5) == ()
    assert "worst unknown" in arrival_faults(1.6)[0].detail


def test_one_bad_block_is_a_fault_though_the_mean_is_small():
    assert arrival_faults(0.1, 10.0) == ()
    assert arrival_faults(0.1, 10.1) != ()


@pytest.mark.parametrize("shape", [(4, 4, 3), (1, 4, 4, 4)])
def test_another_shape_is_refused_in_words(shape: tuple[int, ...]):
    with pytest.raises(ValueError, match="want uint8"):
        signature(np.zeros(shape, np.uint8))


def test_a_signature_costs_little_at_any_size():
    frames = np.zeros((4, 720, 1280, 3), np.uint8)
    signature(frames)
    begun = time.process_time()
    for _ in range(20):
        signature(frames)
    assert (time.process_time() - begun) / 20 < 0.02
