"""What the bytes of a page mean: its shape, and the int8 form with its scales (DESIGN 5)."""

from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

PAGE_TOKENS = 16
_LIMIT = 127.0
_TINY = 1e-8  # keeps the scale of an all-zero channel above zero


class Format(IntEnum):
    """How the K and V of a page are stored."""

    NATIVE = 1
    INT8 = 2


@dataclass(frozen=True)
class PageShape:
    """One layer x 16 tokens x (K, V). A K or V half is `(16, kv_heads, head_dim)`."""

    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def half(self) -> tuple[int, int, int]:
        return (PAGE_TOKENS, self.kv_heads, self.head_dim)

    @property
    def values(self) -> int:
        """Numbers in one half."""
        return PAGE_TOKENS * self.kv_heads * self.head_dim

    @property
    def native_bytes(self) -> int:
        return 2 * self.values * self.dtype.itemsize

    @property
    def int8_bytes(self) -> int:
        """K and V as int8, then float32 scales: one per K channel, one per V token and head."""
        scales = self.kv_heads * self.head_dim + PAGE_TOKENS * self.kv_heads
        return 2 * self.values + 4 * scales

    def page_bytes(self, form: Format) -> int:
        return self.native_bytes if form is Format.NATIVE else self.int8_bytes


def pack_int8(keys: Tensor, values: Tensor, fill: Tensor) -> Tensor:
    """Pages of `(n, 16, kv_heads, head_dim)` to bytes `(n, int8_bytes)`.

    K gets one scale per channel over its page, V one per token and head. Slots at or past
    `fill` `(n,)` hold whatever a former page left: they count as zero.
    """
    used = torch.arange(PAGE_TOKENS, device=keys.device)[None, :] < fill[:, None]
    k, v = (half.float().masked_fill(~used[:, :, None, None], 0.0) for half in (keys, values))
    k_scale = k.abs().amax(1, keepdim=True).clamp_min(_TINY) / _LIMIT
    v_scale = v.abs().amax(3, keepdim=True).clamp_min(_TINY) / _LIMIT
    parts = (
        torch.round(k / k_scale).to(torch.int8),
        torch.round(v / v_scale).to(torch.int8),
        k_scale,
        v_scale,
    )
    return torch.cat([p.reshape(len(keys), -1).view(torch.uint8) for p in parts], 1)


def unpack_int8(packed: Tensor, shape: PageShape) -> tuple[Tensor, Tensor]:
    """Inverse of `pack_int8`, within half a scale step: K and V `(n, 16, kv_heads, head_dim)`."""
    n, heads, dim = len(packed), shape.kv_heads, shape.head_dim
    sizes = [shape.values, shape.values, 4 * heads * dim, 4 * PAGE_TOKENS * heads]
    k8, v8, k_bytes, v_bytes = packed.split(sizes, dim=1)
    k_scale = k_bytes.contiguous().view(torch.float32).view(n, 1, heads, dim)
    v_scale = v_bytes.contiguous().view(torch.float32).view(n, PAGE_TOKENS, heads, 1)
    k = k8.contiguous().view(torch.int8).view(n, *shape.half) * k_scale
    v = v8.contiguous().view(torch.int8).view(n, *shape.half) * v_scale
    return k.to(shape.dtype), v.to(shape.dtype)
