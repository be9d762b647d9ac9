"""The injected faults are what they say, and what counts as visible is told by a clean decode."""

import numpy as np
import pytest

from tests.faults.bitstream import (
    BitstreamFault,
    Damage,
    cut_last_obu,
    damage,
    flipped,
    inject,
    psnr,
)
from tests.faults.encodings import Coding, clip_of, decoded_luma
from tests.faults.pictures import Content, footage
from tests.faults.pixel import STILL_FAULTS, PixelFault, damaged, damaged_frame

FLAT = np.full((18, 32), 100, np.uint8)


@pytest.mark.parametrize("content", list(Content))
def test_footage_is_the_same_for_the_same_seed_alone(content: Content):
    one, again, other = (footage(content, seed, count=8).frames for seed in (1, 1, 2))
    assert one.shape == (8, 270, 320)
    assert (one == again).all()
    assert (one != other).any()


def test_a_variable_rate_has_uneven_times():
    assert len(set(np.diff(footage(Content.UNEVEN, 1).times_ms))) > 3
    assert set(np.diff(footage(Content.MOTION, 1).times_ms)) == {40}


@pytest.mark.parametrize("coding", list(Coding))
def test_packets_put_back_unchanged_make_a_clip_that_shows_the_same(coding: Coding):
    coded = clip_of(Content.MOTION, coding)
    assert len(coded.pieces) == 50
    again = decoded_luma(coded.with_pieces(coded.pieces))
    assert damage(decoded_luma(coded.file), again) == Damage(0, 99.0)


@pytest.mark.parametrize("coding", list(Coding))
def test_a_lost_frame_can_be_seen(coding: Coding):
    coded = clip_of(Content.MOTION, coding)
    found = damage(decoded_luma(coded.file), decoded_luma(inject(coded, BitstreamFault.DROPPED, 1)))
    assert found.lost > 0
    assert found.visible


def test_visible_is_what_loses_frames_or_decibels():
    assert not damage({0: FLAT, 40: FLAT}, {0: FLAT, 40: FLAT + 6}).visible
    assert damage({0: FLAT, 40: FLAT}, {0: FLAT, 40: FLAT + 7}).visible
    assert damage({0: FLAT, 40: FLAT}, {0: FLAT}) == Damage(1, 99.0)
    assert damage({0: FLAT}, {}).visible
    assert psnr(FLAT, FLAT[:9]) == 0.0


def test_flipped_bits_leave_the_length_and_the_head_alone():
    data = bytes(range(200))
    broken = flipped(data, 40, np.random.default_rng(0))
    assert len(broken) == 200
    assert broken[:12] == data[:12]
    assert broken != data


def test_a_cut_unit_still_says_its_own_length():
    head = bytes([0x32, 100])
    whole = bytes([0x12, 0]) + head + bytes(100)
    assert cut_last_obu(whole, 0.5) == bytes([0x12, 0, 0x32, 50]) + bytes(50)


@pytest.mark.parametrize("fault", list(PixelFault))
def test_damage_to_pixels_begins_inside_the_clip_and_lasts(fault: PixelFault):
    clean = footage(Content.MOTION, 1).frames
    broken, first = damaged(clean, fault, 1)
    assert broken.shape == clean.shape
    assert 0 < first <= 25
    assert (broken[:first] == clean[:first]).all()
    assert all((broken[i] != clean[i]).any() for i in range(first + 1, 50))


@pytest.mark.parametrize("fault", sorted(STILL_FAULTS))
def test_one_frame_alone_can_be_damaged(fault: PixelFault):
    clean = footage(Content.MOTION, 1, count=1).frames[0]
    kept = clean.copy()
    assert (damaged_frame(clean, fault, 1) != clean).any()
    assert (clean == kept).all()
