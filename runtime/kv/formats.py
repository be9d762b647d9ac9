"""What the bytes of a page mean: its shape and the forms that it can be stored in (DESIGN 5)."""

from dataclasses import dataclass
from enum import IntEnum

import torch

PAGE_TOKENS = 16


class Format(IntEnum):
    """How the K and V of a page are stored; a later one takes fewer bytes."""

    NATIVE = 1
    INT8 = 2
    INT4 = 3
    SUBSPACE = 4  # coordinates in a basis that a pair of layers shares


@dataclass(frozen=True)
class PageShape:
    """One layer x 16 tokens x (K, V). A K or V half is `(16, kv_heads, head_dim)`.

    `dtype` is that of native pages; `read_as`, the model's, is what attention is given: `None`,
    the same.
    """

    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    read_as: torch.dtype | None = None

    @property
    def numbers(self) -> torch.dtype:
        """What K and V are read as."""
        return self.read_as or self.dtype

    @property
    def half(self) -> tuple[int, int, int]:
        return (PAGE_TOKENS, self.kv_heads, self.head_dim)

    @property
    def channels(self) -> int:
        """Numbers in one half for each token."""
        return self.kv_heads * self.head_dim

    @property
    def values(self) -> int:
        """Numbers in one half."""
        return PAGE_TOKENS * self.channels

    @property
    def native_bytes(self) -> int:
        return 2 * self.values * self.dtype.itemsize
