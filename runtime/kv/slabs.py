"""The memory under the pool: one preallocated device arena, and a host slab that grows.

Memory is cut into extents of eight native pages. An extent serves slots of one size at a time
and goes back to the common stock when its last slot is free, so that packing pages truly makes
room.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.kv.formats import PAGE_TOKENS, PageShape

EXTENT_PAGES = 8
PAGE_ROWS = 2 * PAGE_TOKENS  # rows of a native page: 16 of K, then 16 of V
_SPARE_EXTENTS = 1  # kept from native pages: without room to pack into, a full pool stays full


Numbers = NDArray[np.signedinteger]


class PoolExhausted(RuntimeError):
    """No page is free in the pool, and nothing more can be evicted."""


class PoolTooSmall(ValueError):
    """The pool cannot hold the work it is for; the message says what to do."""


class Extents:
    """The books of a slab: which slots are taken. Slot `s` of a size is number `s % per` in
    extent `s // per`, where `per` slots of that size fit an extent."""

    def __init__(self, extent_bytes: int) -> None:
        self.extent_bytes = extent_bytes
        self.count = 0
        self.used_bytes = 0
        self.peak_bytes = 0  # the most that was ever used
        self._stock: list[int] = []
        self._open: dict[int, dict[int, list[int]]] = {}  # size -> extent -> its free slots
        self._served: dict[int, int] = {}  # size -> extents that serve it

    @property
    def stock(self) -> int:
        """Extents that serve nothing."""
        return len(self._stock)

    def per(self, size: int) -> int:
        """Slots of `size` bytes in an extent."""
        return self.extent_bytes // size

    def add(self, count: int) -> None:
        """More extents, behind the ones there are."""
        self._stock[:0] = reversed(range(self.count, self.count + count))
        self.count += count

    def allocate(self, size: int, *, spare: int = 0) -> int:
        """A free slot of `size` bytes, or `PoolExhausted` rather than touch the last `spare`
        extents of the stock."""
        room = self._open.setdefault(size, {})
        if not room:
            if len(self._stock) <= spare:
                raise PoolExhausted(f"no slot of {size} bytes is free")
            extent, per = self._stock.pop(), self.per(size)
            self._served[size] = self._served.get(size, 0) + 1
            room[extent] = list(reversed(range(extent * per, (extent + 1) * per)))
        extent = next(iter(room))
        slot = room[extent].pop()
        if not room[extent]:
            del room[extent]
        self.used_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        return slot

    def free(self, size: int, slot: int) -> None:
        extent, room = slot // self.per(size), self._open[size]
        slots = room.setdefault(extent, [])
        slots.append(slot)
        self.used_bytes -= size
        if len(slots) == self.per(size):
            del room[extent]
            self._served[size] -= 1
            self._stock.append(extent)

    def clear_out(self, size: int) -> tuple[list[int], list[int]] | None:
        """The taken slots of the emptiest extent that serves `size`, and as many slots elsewhere,
        taken for what is in them; `None` where there are not as many.

        Whoever asks moves the content and frees the first: then the extent serves nothing.
        """
        room, per = self._open.get(size, {}), self.per(size)
        if not room:
            return None
        extent = max(room, key=lambda each: len(room[each]))
        free = room.pop(extent)
        taken = sorted(set(range(extent * per, (extent + 1) * per)) - set(free))
        others = self.free_slots(size) >= len(taken)
        places = [self.allocate(size) for _ in taken] if others else []
        room[extent] = free
        return (taken, places) if others else None

    def sizes(self) -> list[int]:
        """Slot sizes in use."""
        return [size for size, extents in self._served.items() if extents]

    def used_slots(self, size: int) -> int:
        return self._served.get(size, 0) * self.per(size) - self.free_slots(size)

    def free_slots(self, size: int) -> int:
        """Free slots in extents that serve `size` already."""
        return sum(len(slots) for slots in self._open.get(size, {}).values())


class Slab:
    """Bytes in extents, read and written by slot."""

    def __init__(self, extent_bytes: int, device: torch.device, *, pinned: bool = False) -> None:
        self.books = Extents(extent_bytes)
        self._device = device
        self._pinned = pinned
        self._bytes = self._blank(0)

    @property
    def nbytes(self) -> int:
        return self._bytes.numel()

    def slots(self, size: int) -> Tensor:
        """All of it as slots of `size` bytes: `(extents, per extent, size)`."""
        per = self.books.per(size)
        whole = self._bytes.view(self.books.count, self.books.extent_bytes)
        return whole[:, : per * size].unflatten(1, (per, size))

    def read(self, size: int, slots: Tensor) -> Tensor:
        """Bytes `(n, size)` of `slots` `(n,)`."""
        per, slots = self.books.per(size), slots.to(self._device)
        return self.slots(size)[slots // per, slots % per]

    def read_rows(self, row_bytes: int, sizes: Numbers, slots: Numbers, rows: Numbers) -> Tensor:
        """Bytes `(n, row_bytes)` of row `rows` of slot `slots` of `sizes`, each `(n,)`, where
        the slots hold rows of that many bytes."""
        per = self.books.extent_bytes // sizes
        place = (slots % per).astype(np.int64) * (sizes // row_bytes) + rows
        extent, place = (torch.from_numpy(n).to(self._device) for n in (slots // per, place))
        return self.slots(row_bytes)[extent, place]

    def write(self, size: int, slots: Tensor, packed: Tensor) -> None:
        per, slots = self.books.per(size), slots.to(self._device)
        self.slots(size)[slots // per, slots % per] = packed.to(self._device)

    def free(self, size: int, slot: int) -> None:
        self.books.free(size, slot)

    def _blank(self, size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.uint8, device=self._device, pin_memory=self._pinned)


class Arena(Slab):
    """Device bytes of a pool, all taken at once. Raises `PoolTooSmall` under two extents."""

    def __init__(self, shape: PageShape, pool_bytes: int, device: torch.device) -> None:
        extent_bytes = EXTENT_PAGES * shape.native_bytes
        super().__init__(extent_bytes, device)
        extents = pool_bytes // extent_bytes
        if extents < 2:
            raise PoolTooSmall(
                f"a pool of {pool_bytes} bytes is too small: give it at least {2 * extent_bytes}"
            )
        self.books.add(extents)
        self._bytes = self._blank(extents * extent_bytes)
        self._native = shape.native_bytes
        self.rows = self._bytes.view(shape.dtype).view(-1, shape.kv_heads, shape.head_dim)

    @property
    def native_pages(self) -> int:
        """Native pages it could hold at most."""
        return (self.books.count - _SPARE_EXTENTS) * EXTENT_PAGES

    def free_native(self) -> int:
        """Native pages that `allocate` could still hand out."""
        whole = max(0, self.books.stock - _SPARE_EXTENTS)
        return self.books.free_slots(self._native) + EXTENT_PAGES * whole

    def allocate(self, size: int) -> int:
        """A free slot, or `PoolExhausted`."""
        return self.books.allocate(size, spare=_SPARE_EXTENTS if size == self._native else 0)


class HostSlab(Slab):
    """Packed pages in host memory, pinned where the pool is on an accelerator.

    It doubles when full and is given back when empty. `limit` bounds its bytes.
    """

    _FIRST = 8  # extents

    def __init__(self, shape: PageShape, limit: int, *, pinned: bool) -> None:
        super().__init__(EXTENT_PAGES * shape.native_bytes, torch.device("cpu"), pinned=pinned)
        self.limit = limit
        self._most = limit // self.books.extent_bytes

    def most(self, size: int) -> int:
        """Slots of `size` that it could have if it held nothing else."""
        return self._most * self.books.per(size)

    def room(self, size: int) -> int:
        """Slots of `size` that could still be had."""
        books = self.books
        unborn = self._most - books.count
        return books.free_slots(size) + (books.stock + unborn) * books.per(size)

    def allocate(self, size: int) -> int:
        """A free slot, or `PoolExhausted` where `limit` is reached."""
        try:
            return self.books.allocate(size)
        except PoolExhausted:
            self._grow()
            return self.books.allocate(size)

    def free(self, size: int, slot: int) -> None:
        super().free(size, slot)
        if self.books.used_bytes == 0:
            peak = self.books.peak_bytes
            self.books = Extents(self.books.extent_bytes)
            self.books.peak_bytes = peak
            self._bytes = self._blank(0)

    def _grow(self) -> None:
        count = min(max(self._FIRST, self.books.count), self._most - self.books.count)
        self.books.add(count)
        old, self._bytes = self._bytes, self._blank(self.books.count * self.books.extent_bytes)
        self._bytes[: len(old)] = old
