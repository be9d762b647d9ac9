"""The memory under the pool: one preallocated device arena and a host slab that grows.

The arena is cut into extents of eight native pages. An extent serves one format at a time and
goes back to the common stock when its last page leaves, so quantising pages truly makes room.
"""

import torch
from torch import Tensor

from runtime.kv.formats import PAGE_TOKENS, Format, PageShape

EXTENT_PAGES = 8
PAGE_ROWS = 2 * PAGE_TOKENS  # rows of a native page: 16 of K, then 16 of V


class PoolExhausted(RuntimeError):
    """No page is free in the pool, and nothing more can be evicted."""


class PoolTooSmall(ValueError):
    """The pool cannot hold the work it is for; the message says what to do."""


class Arena:
    """Device bytes of a pool. A slot numbers a page within its format.

    Raises `PoolTooSmall` where not even two extents fit.
    """

    def __init__(self, shape: PageShape, pool_bytes: int, device: torch.device) -> None:
        extent_bytes = EXTENT_PAGES * shape.native_bytes
        self.extents = pool_bytes // extent_bytes
        if self.extents < 2:
            raise PoolTooSmall(
                f"a pool of {pool_bytes} bytes is too small: give it at least {2 * extent_bytes}"
            )
        self._shape = shape
        self._bytes = torch.zeros(self.extents * extent_bytes, dtype=torch.uint8, device=device)
        self.per_extent = {
            Format.NATIVE: EXTENT_PAGES,
            Format.INT8: extent_bytes // shape.int8_bytes,
        }
        self.rows = self._bytes.view(shape.dtype).view(-1, shape.kv_heads, shape.head_dim)
        int8 = self._bytes.view(self.extents, extent_bytes)
        used = self.per_extent[Format.INT8] * shape.int8_bytes
        self._int8 = int8[:, :used].unflatten(1, (self.per_extent[Format.INT8], -1))
        self._stock = list(reversed(range(self.extents)))
        self._served: list[Format | None] = [None] * self.extents
        self._open: dict[Format, dict[int, list[int]]] = {form: {} for form in Format}

    @property
    def nbytes(self) -> int:
        return self._bytes.numel()

    def free_native(self) -> int:
        """Native pages that `allocate` could still hand out."""
        spread = sum(len(slots) for slots in self._open[Format.NATIVE].values())
        return spread + EXTENT_PAGES * max(0, len(self._stock) - 1)

    def allocate(self, form: Format) -> int:
        """A free slot, or `PoolExhausted`. The last extent is kept for int8: without it a full
        pool could not be quantised."""
        room = self._open[form]
        if not room:
            if len(self._stock) <= (1 if form is Format.NATIVE else 0):
                raise PoolExhausted(f"no {form.name.lower()} page is free on the device")
            extent, size = self._stock.pop(), self.per_extent[form]
            self._served[extent] = form
            room[extent] = list(reversed(range(extent * size, (extent + 1) * size)))
        extent = next(iter(room))
        slot = room[extent].pop()
        if not room[extent]:
            del room[extent]
        return slot

    def free(self, form: Format, slot: int) -> None:
        extent = slot // self.per_extent[form]
        slots = self._open[form].setdefault(extent, [])
        slots.append(slot)
        if len(slots) == self.per_extent[form]:
            del self._open[form][extent]
            self._served[extent] = None
            self._stock.append(extent)

    def used_slots(self, form: Format) -> int:
        """Slots handed out, from the arena's own books."""
        free = sum(len(slots) for slots in self._open[form].values())
        return self._served.count(form) * self.per_extent[form] - free

    def read_native(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """K and V `(n, 16, kv_heads, head_dim)` of native slots `(n,)`."""
        pages = self.rows.view(-1, 2, *self._shape.half)[slots]
        return pages[:, 0], pages[:, 1]

    def read_int8(self, slots: Tensor) -> Tensor:
        """Packed bytes `(n, int8_bytes)` of int8 slots `(n,)`."""
        per = self.per_extent[Format.INT8]
        return self._int8[slots // per, slots % per]

    def write_int8(self, slots: Tensor, packed: Tensor) -> None:
        per = self.per_extent[Format.INT8]
        self._int8[slots // per, slots % per] = packed


class HostSlab:
    """Int8 pages in host memory. It doubles when full and is given back when empty."""

    _FIRST = 64

    def __init__(self, shape: PageShape, *, pinned: bool) -> None:
        self._page_bytes = shape.int8_bytes
        self._pinned = pinned
        self._pages = self._blank(0)
        self._free: list[int] = []

    @property
    def nbytes(self) -> int:
        return self._pages.numel()

    def used_slots(self) -> int:
        return len(self._pages) - len(self._free)

    def allocate(self) -> int:
        if not self._free:
            self._grow()
        return self._free.pop()

    def free(self, slot: int) -> None:
        self._free.append(slot)
        if self.used_slots() == 0:
            self._pages, self._free = self._blank(0), []

    def read(self, slots: Tensor) -> Tensor:
        """Packed bytes `(n, int8_bytes)`, on the host."""
        return self._pages[slots]

    def write(self, slots: Tensor, packed: Tensor) -> None:
        self._pages[slots] = packed.to(self._pages.device)

    def _blank(self, pages: int) -> Tensor:
        return torch.zeros(pages, self._page_bytes, dtype=torch.uint8, pin_memory=self._pinned)

    def _grow(self) -> None:
        old = self._pages
        self._pages = self._blank(max(self._FIRST, 2 * len(old)))
        self._pages[: len(old)] = old
        self._free = list(reversed(range(len(old), len(self._pages))))
