"""A page in 8 or 4 bits a value: K with one scale per channel over the page, V per token.

The grids follow KIVI (Liu et al. 2024): K has channels that are large in every token, V has not.
"""

import torch
from torch import Tensor

from runtime.kv.formats import PAGE_TOKENS, Format, PageShape

_TINY = 1e-6  # keeps the step of a constant channel above zero; float16 can hold it
_BITS = {Format.INT8: 8, Format.INT4: 4}


class Quantiser:
    """Packs pages into one of the integer forms and back.

    A row of numbers is stored as unsigned steps above its least value; step and least value are
    float16. Slots at or past a page's fill hold whatever a former page left: they count as zero.
    """

    def __init__(self, form: Format, shape: PageShape) -> None:
        self.form = form
        self._shape = shape
        self._bits = _BITS[form]
        self._code_bytes = shape.values * self._bits // 8
        self._grids = (shape.channels, PAGE_TOKENS * shape.kv_heads)  # of K, of V

    @property
    def page_bytes(self) -> int:
        """Codes of K and V, then least value and step of each grid."""
        return 2 * self._code_bytes + 4 * sum(self._grids)

    def pack(self, keys: Tensor, values: Tensor, fill: Tensor) -> Tensor:
        """Pages `(n, 16, kv_heads, head_dim)` with `fill` `(n,)` slots in use to bytes
        `(n, page_bytes)`."""
        used = torch.arange(PAGE_TOKENS, device=keys.device)[None, :] < fill[:, None]
        parts: list[Tensor] = []
        for half, axis in ((keys, 1), (values, 3)):
            parts += self._codes_and_grid(_blanked(half.float(), used), axis)
        return torch.cat([part.reshape(len(keys), -1) for part in parts], 1)

    def unpack(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        """Inverse of `pack`, within half a step: K and V `(n, 16, kv_heads, head_dim)` float32."""
        n, heads = len(packed), self._shape.kv_heads
        k_grid, v_grid = (4 * grid for grid in self._grids)
        sizes = [self._code_bytes, k_grid, self._code_bytes, v_grid]
        k_codes, k_grids, v_codes, v_grids = packed.split(sizes, dim=1)
        k_low, k_step = _grid(k_grids, (n, 1, heads, self._shape.head_dim))
        v_low, v_step = _grid(v_grids, (n, PAGE_TOKENS, heads, 1))
        keys = torch.addcmul(k_low, self._numbers(k_codes), k_step)
        return keys, torch.addcmul(v_low, self._numbers(v_codes), v_step)

    def _codes_and_grid(self, half: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        low = half.amin(axis, keepdim=True).half()
        step = (half.amax(axis, keepdim=True) - low.float()) / (2**self._bits - 1)
        step = step.clamp_min(_TINY).half()
        codes = ((half - low.float()) / step.float()).round().clamp(0, 2**self._bits - 1)
        grid = torch.stack([low.reshape(len(half), -1), step.reshape(len(half), -1)], 1)
        joined = join_codes(codes.to(torch.uint8).reshape(len(half), -1), self._bits)
        return joined, grid.view(torch.uint8)

    def _numbers(self, codes: Tensor) -> Tensor:
        return split_codes(codes, self._bits).view(-1, *self._shape.half).float()


def join_codes(codes: Tensor, bits: int) -> Tensor:
    """Codes of 8, 4 or 2 bits, `(n, m)` uint8, to `(n, m * bits / 8)`: the first of equal parts
    goes lowest. `m` must be a multiple of 8 / bits."""
    whole = torch.zeros_like(codes[:, : codes.shape[1] * bits // 8])
    for place, part in enumerate(codes.chunk(8 // bits, dim=1) if codes.shape[1] else ()):
        whole |= part << (place * bits)
    return whole


def split_codes(joined: Tensor, bits: int) -> Tensor:
    """Inverse of `join_codes`."""
    if bits == 8:
        return joined
    mask = 2**bits - 1
    return torch.cat([(joined >> place) & mask for place in range(0, 8, bits)], 1)


def _blanked(half: Tensor, used: Tensor) -> Tensor:
    """Unused slots as a used one: they widen no grid, and NaN bits of a former page go."""
    blank = half.masked_fill(~used[:, :, None, None], 0.0)
    first = blank[:, :1]
    return torch.where(used[:, :, None, None], blank, first)


def _grid(raw: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Least values and steps, each of `shape`."""
    both = raw.contiguous().view(torch.float16).float().view(len(raw), 2, -1)
    return both[:, 0].reshape(shape), both[:, 1].reshape(shape)
