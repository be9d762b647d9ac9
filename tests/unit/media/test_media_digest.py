"""A slice's digest names everything of its item up to and including it."""

import numpy as np

from monitors.contract import MediaRung
from monitors.redlines import SchedulerLines
from runtime.media.clock import Sample
from runtime.media.slices import Slice, cut, image_slice
from tests.support import media
from tests.unit.media.decoding import decoded

SECOND = np.zeros(16_000, np.float32)


def item(pictures: np.ndarray, sound: np.ndarray, grid_ms: float = 500.0) -> list[Slice]:
    samples = [Sample(p, i * grid_ms, i * grid_ms) for i, p in enumerate(pictures)]
    return list(cut(samples, sound, grid_ms, SchedulerLines()))


def digests(pictures: np.ndarray, sound: np.ndarray, grid_ms: float = 500.0) -> list[str]:
    return [piece.digest for piece in item(pictures, sound, grid_ms)]


def test_one_changed_pixel_changes_its_slice_and_all_after_it_but_none_before():
    pictures, sound = np.zeros((8, 16, 16, 3), np.uint8), np.tile(SECOND, 4)
    changed = pictures.copy()
    changed[5, 3, 3, 1] = 1
    before, after = digests(pictures, sound), digests(changed, sound)
    assert before[:3] == after[:3]  # video 0-2 s and its two seconds of sound
    assert all(a != b for a, b in zip(before[3:], after[3:], strict=True))


def test_one_changed_sample_changes_its_slice_and_all_after_it_but_none_before():
    pictures, sound = np.zeros((8, 16, 16, 3), np.uint8), np.tile(SECOND, 4)
    changed = sound.copy()
    changed[17_000] = 1e-6
    before, after = digests(pictures, sound), digests(pictures, changed)
    assert before[:2] == after[:2]
    assert all(a != b for a, b in zip(before[2:], after[2:], strict=True))


def test_equal_content_at_another_time_is_another_slice():
    still = np.zeros((8, 16, 16, 3), np.uint8)
    assert len(set(digests(still, np.tile(SECOND, 4)))) == 6


def test_the_same_pixels_in_another_shape_or_spacing_are_another_slice():
    pictures = np.zeros((4, 16, 8, 3), np.uint8)
    wide, spaced = pictures.reshape(4, 8, 16, 3), digests(pictures, SECOND[:0], 400.0)
    assert digests(pictures, SECOND[:0]) != digests(wide, SECOND[:0])
    assert digests(pictures, SECOND[:0]) != spaced


def test_every_rung_gives_a_digest_of_its_own():
    data = media.clip(0.4, width=1280, height=720)
    assert len({decoded(data, rung=rung).digest for rung in MediaRung}) == len(MediaRung)


def test_pictures_differ_by_one_pixel():
    picture = np.zeros((8, 8, 3), np.uint8)
    changed = picture.copy()
    changed[0, 0, 0] = 1
    assert image_slice(picture).digest != image_slice(changed).digest
