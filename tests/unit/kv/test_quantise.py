"""Integer pages: what they lose, what they weigh, and what never gets into them."""

import pytest
import torch

from runtime.kv.formats import PAGE_TOKENS, Format, PageShape
from runtime.kv.quantise import Quantiser, join_codes, split_codes

SHAPE = PageShape(kv_heads=2, head_dim=4, dtype=torch.float32)
LEVELS = {Format.INT8: 255, Format.INT4: 15}
FULL = torch.full((5,), PAGE_TOKENS)


def span(half: torch.Tensor, axis: int) -> torch.Tensor:
    return half.amax(axis, keepdim=True) - half.amin(axis, keepdim=True)


@pytest.mark.parametrize("form", LEVELS)
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e3])
@pytest.mark.parametrize("offset", [0.0, 5.0])
def test_a_round_trip_stays_within_half_a_step(form: Format, scale: float, offset: float) -> None:
    torch.manual_seed(0)
    k, v = (torch.randn(2, 5, *SHAPE.half) + offset) * scale
    pages = Quantiser(form, SHAPE)
    k2, v2 = pages.unpack(pages.pack(k, v, FULL))
    rounding = (offset + 4) * scale * 2**-10  # the least value is a float16
    assert ((k2 - k).abs() <= span(k, 1) / LEVELS[form] * 0.51 + rounding).all()
    assert ((v2 - v).abs() <= span(v, 3) / LEVELS[form] * 0.51 + rounding).all()


@pytest.mark.parametrize("form", LEVELS)
@pytest.mark.parametrize("left", [1e6, torch.nan])
def test_what_a_former_page_left_past_the_fill_spoils_nothing(form: Format, left: float) -> None:
    """Bytes of a former page, read as floats, may be NaN: nothing times them is zero."""
    pages, fill = Quantiser(form, SHAPE), torch.tensor([5])
    keys, values = (torch.randn(1, *SHAPE.half) for _ in range(2))
    clean = pages.unpack(pages.pack(keys, values, fill))
    short = Quantiser(form, SHAPE).pack(keys, values, fill)
    keys[0, 5:] = values[0, 5:] = left
    spoiled = pages.unpack(pages.pack(keys, values, fill))
    for half, other in zip(spoiled, clean, strict=True):
        assert torch.equal(half[0, :5], other[0, :5])
    assert torch.equal(pages.pack(keys, values, fill), short)


@pytest.mark.parametrize("form", LEVELS)
def test_a_page_weighs_what_it_says(form: Format) -> None:
    pages = Quantiser(form, SHAPE)
    k, v = torch.randn(2, 5, *SHAPE.half)
    assert pages.pack(k, v, FULL).shape == (5, pages.page_bytes)


def test_integer_pages_of_a_production_shape_are_as_small_as_they_should_be() -> None:
    shape = PageShape(kv_heads=4, head_dim=128, dtype=torch.bfloat16)
    ratio = {form: shape.native_bytes / Quantiser(form, shape).page_bytes for form in LEVELS}
    assert ratio[Format.INT8] > 1.75
    assert ratio[Format.INT4] > 3.1


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("count", [0, 8, 24])
def test_joined_codes_come_back(bits: int, count: int) -> None:
    codes = torch.randint(0, 2**bits, (3, count), dtype=torch.uint8)
    joined = join_codes(codes, bits)
    assert joined.shape == (3, count * bits // 8)
    assert torch.equal(split_codes(joined, bits), codes)
