"""The page pool: who owns each page, what form and tier it has, and every byte accounted for.

Records are plain numpy columns indexed by page number, so that steps, sweeps and the account
work on thousands of pages at once. Bytes are derived from the records, never kept beside them.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.kv.formats import PAGE_TOKENS, Format, PageShape, pack_int8, unpack_int8
from runtime.kv.slabs import PAGE_ROWS, Arena, HostSlab, PoolExhausted
from runtime.kv.tokens import MODALITIES

Pages = NDArray[np.int64]  # page numbers; a number may stand twice (an alias)
_GROWTH = 256


class StaleEpoch(RuntimeError):
    """A write came from before the last flush."""


@dataclass(frozen=True)
class Account:
    """Bytes by `[layer, modality]`: live and evictable on the device, and all on the host."""

    live: NDArray[np.int64]
    evictable: NDArray[np.int64]
    host: NDArray[np.int64]


@dataclass(frozen=True)
class Holdings:
    """Pages of older epochs that are still held."""

    pages: int
    host_pages: int
    bytes: int


class PagePool:
    """All pages of one resident, on the device and on the host.

    A page lives while a sequence uses it, the prefix index holds it or somebody pins it. It is
    live while used or pinned, evictable while only held.
    """

    _COLUMNS = (
        ("layer", np.int16), ("modality", np.int8), ("form", np.int8), ("on_host", np.bool_),
        ("slot", np.int64), ("uses", np.int32), ("holds", np.int32), ("pins", np.int32),
        ("epoch_of", np.int64), ("fill", np.int8), ("sealed", np.bool_),
    )  # fmt: skip

    def __init__(
        self,
        shape: PageShape,
        layers: int,
        pool_bytes: int,
        epoch: int = 0,
        device: torch.device | None = None,
    ) -> None:
        self.shape = shape
        self.layers = layers
        self.epoch = epoch
        self.device = device or torch.device("cpu")
        self.arena = Arena(shape, pool_bytes, self.device)
        self.host = HostSlab(shape, pinned=self.device.type == "cuda")
        self.free_pages: list[int] = []
        self._size = 0
        self.layer = self.modality = self.form = self.slot = np.zeros(0, np.int64)
        self.uses = self.holds = self.pins = self.epoch_of = self.fill = np.zeros(0, np.int64)
        self.on_host = self.sealed = np.zeros(0, np.bool_)
        self._grow()

    # ------------------------------------------------------------ ownership
    def allocate(self, layer: int, modality: int, epoch: int) -> int:
        """A new empty native page with one use. Raises `PoolExhausted` or `StaleEpoch`."""
        self.admit(epoch)
        slot = self.arena.allocate(Format.NATIVE)
        if not self.free_pages:
            self._grow()
        page = self.free_pages.pop()
        self.layer[page], self.modality[page] = layer, modality
        self.form[page], self.on_host[page], self.slot[page] = Format.NATIVE, False, slot
        self.uses[page], self.holds[page], self.pins[page] = 1, 0, 0
        self.epoch_of[page], self.fill[page], self.sealed[page] = epoch, 0, False
        return page

    def admit(self, epoch: int) -> None:
        """Raises `StaleEpoch` unless `epoch` is the pool's own."""
        if epoch != self.epoch:
            raise StaleEpoch(f"epoch {epoch} was flushed; the pool is at {self.epoch}")

    def retain(self, pages: Pages) -> None:
        """A sequence uses these pages too."""
        np.add.at(self.uses, pages, 1)

    def release(self, pages: Pages) -> None:
        """A sequence is done with these pages."""
        self._give_up(self.uses, pages)

    def hold(self, pages: Pages) -> None:
        """The prefix index keeps these pages."""
        np.add.at(self.holds, pages, 1)

    def drop(self, pages: Pages) -> None:
        """The prefix index lets go of these pages."""
        self._give_up(self.holds, pages)

    def pin(self, pages: Pages) -> None:
        """These pages are live and stay on the device until unpinned."""
        np.add.at(self.pins, pages, 1)

    def unpin(self, pages: Pages) -> None:
        self._give_up(self.pins, pages)

    def _give_up(self, count: NDArray[np.int64], pages: Pages) -> None:
        np.subtract.at(count, pages, 1)
        if (count[pages] < 0).any():
            raise ValueError("a page was given up more often than it was taken")
        for page in np.unique(pages):
            if self.uses[page] == self.holds[page] == self.pins[page] == 0:
                self._free(int(page))

    def _free(self, page: int) -> None:
        self._vacate(page)
        self.form[page] = 0
        self.free_pages.append(page)

    def _vacate(self, page: int) -> None:
        if self.on_host[page]:
            self.host.free(int(self.slot[page]))
        else:
            self.arena.free(Format(int(self.form[page])), int(self.slot[page]))

    # ------------------------------------------------------------ content
    def writable_rows(
        self, pages: Pages, offsets: NDArray[np.int64], epoch: int
    ) -> NDArray[np.int64]:
        """Rows for new tokens, which must go to unsealed native pages of this epoch."""
        self.admit(epoch)
        if (self.form[pages] != Format.NATIVE).any() or self.sealed[pages].any():
            raise ValueError("only an unsealed native page can be written")
        return self.rows(pages, offsets)

    def rows(self, pages: Pages, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row in `arena.rows` of each token's K on a native page; its V is 16 rows further."""
        return self.slot[pages] * PAGE_ROWS + offsets

    def write(self, rows: Tensor, keys: Tensor, values: Tensor) -> None:
        """K and V `(n, kv_heads, head_dim)` of new tokens to their `writable_rows` `(n,)`."""
        self.arena.rows[rows] = keys
        self.arena.rows[rows + PAGE_TOKENS] = values

    def read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """K and V, each `(*rows.shape, kv_heads, head_dim)`, of tokens on native pages."""
        return self.arena.rows[rows], self.arena.rows[rows + PAGE_TOKENS]

    def plain(self, pages: Pages) -> bool:
        """Whether all of these can be read straight from the arena's native rows."""
        return bool((self.form[pages] == Format.NATIVE).all())

    def gather(self, pages: Pages) -> tuple[Tensor, Tensor]:
        """K and V `(n, 16, kv_heads, head_dim)` of any forms and tiers, dequantised."""
        keys = torch.empty(len(pages), *self.shape.half, dtype=self.shape.dtype, device=self.device)
        values = torch.empty_like(keys)
        native = self.form[pages] == Format.NATIVE
        for where in (native, ~native & ~self.on_host[pages], ~native & self.on_host[pages]):
            if where.any():
                at = torch.from_numpy(np.flatnonzero(where)).to(self.device)
                keys[at], values[at] = self._read(pages[where])
        return keys, values

    def _read(self, pages: Pages) -> tuple[Tensor, Tensor]:
        """K and V of pages that share one form and tier."""
        slots = torch.from_numpy(self.slot[pages])
        if self.form[pages[0]] == Format.NATIVE:
            return self.arena.read_native(slots.to(self.device))
        return unpack_int8(self._packed(pages).to(self.device), self.shape)

    def _packed(self, pages: Pages) -> Tensor:
        """The int8 bytes of pages that share one form and tier; native ones are quantised."""
        slots = torch.from_numpy(self.slot[pages])
        if self.on_host[pages[0]]:
            return self.host.read(slots)
        if self.form[pages[0]] == Format.INT8:
            return self.arena.read_int8(slots.to(self.device))
        keys, values = self.arena.read_native(slots.to(self.device))
        return pack_int8(keys, values, torch.from_numpy(self.fill[pages]).to(self.device))

    # ------------------------------------------------------------ form and tier
    def quantise(self, pages: Pages) -> int:
        """Turn sealed native pages to int8 on the device; the rest of `pages` is left alone.

        Returns how many were turned: fewer when the device has no int8 slot left.
        """
        native = self.sealed[pages] & (self.form[pages] == Format.NATIVE)
        chosen = pages[native]
        return self._to_device_int8(chosen[np.argsort(self.slot[chosen])])

    def fetch(self, pages: Pages) -> int:
        """Bring host pages back to the device, as int8. Returns how many found room."""
        return self._to_device_int8(pages[self.on_host[pages]])

    def _to_device_int8(self, pages: Pages) -> int:
        if not len(pages):
            return 0
        packed, done = self._packed(pages), 0
        slots: list[int] = []
        for page in pages:
            try:
                slot = self.arena.allocate(Format.INT8)
            except PoolExhausted:
                break
            slots.append(slot)
            self._vacate(int(page))
            self.form[page], self.on_host[page], self.slot[page] = Format.INT8, False, slot
            done += 1
        if done:
            at = torch.tensor(slots, device=self.device)
            self.arena.write_int8(at, packed[:done].to(self.device))
        return done

    def offload(self, pages: Pages) -> int:
        """Move sealed, unpinned device pages to the host as int8. Returns how many moved."""
        movable = pages[self.sealed[pages] & ~self.on_host[pages] & (self.pins[pages] == 0)]
        groups = [movable[self.form[movable] == form] for form in Format]
        for chosen in (group for group in groups if len(group)):
            packed = self._packed(chosen)
            slots = [self.host.allocate() for _ in chosen]
            self.host.write(torch.tensor(slots), packed)
            for page in chosen:
                self._vacate(int(page))
            self.form[chosen], self.on_host[chosen], self.slot[chosen] = Format.INT8, True, slots
        return len(movable)

    # ------------------------------------------------------------ epochs
    def advance(self, min_epoch: int) -> None:
        """Raise the epoch to `min_epoch`; writes that carry an older one are refused from now."""
        self.epoch = max(self.epoch, min_epoch)

    def held_before(self, epoch: int) -> Holdings:
        """What is still held of epochs before `epoch`."""
        old = (self.form > 0) & (self.epoch_of < epoch)
        return Holdings(
            pages=int((old & ~self.on_host).sum()),
            host_pages=int((old & self.on_host).sum()),
            bytes=int(self._bytes()[old].sum()),
        )

    # ------------------------------------------------------------ the account
    def account(self) -> Account:
        live = self.live() & ~self.on_host
        evictable = (self.form > 0) & ~self.live() & ~self.on_host
        return Account(*(self._tally(rows) for rows in (live, evictable, self.on_host_pages())))

    def live(self) -> NDArray[np.bool_]:
        """Which pages a sequence uses or somebody pins."""
        return (self.form > 0) & ((self.uses > 0) | (self.pins > 0))

    def on_host_pages(self) -> NDArray[np.bool_]:
        return (self.form > 0) & self.on_host

    def live_share(self) -> float:
        """Live device bytes over the arena's bytes."""
        live = self.live() & ~self.on_host
        return float(self._bytes()[live].sum()) / self.arena.nbytes

    def fill_rate(self) -> float | None:
        """Share of the slots of live pages in use; `None` while nothing is live."""
        live = self.live()
        return float(self.fill[live].mean()) / PAGE_TOKENS if live.any() else None

    def _bytes(self) -> NDArray[np.int64]:
        sizes = np.array([0, *(self.shape.page_bytes(form) for form in Format)], np.int64)
        return sizes[self.form]

    def _tally(self, rows: NDArray[np.bool_]) -> NDArray[np.int64]:
        kinds = len(MODALITIES)
        cell = self.layer[rows].astype(np.int64) * kinds + self.modality[rows]
        sums = np.bincount(cell, self._bytes()[rows], self.layers * kinds)
        return sums.astype(np.int64).reshape(self.layers, kinds)

    def _grow(self) -> None:
        size = max(_GROWTH, 2 * self._size)
        for name, dtype in self._COLUMNS:
            column = np.zeros(size, dtype)
            column[: self._size] = getattr(self, name)
            setattr(self, name, column)
        self.free_pages += reversed(range(self._size, size))
        self._size = size
