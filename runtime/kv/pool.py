"""The page pool: who owns each page, its epoch, and where native pages are written.

What stored bytes mean is `contents`; what turns one form or tier into another is `moves`; bytes
are counted by `account`. All of them read the same `records`.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.kv.account import Account, account
from runtime.kv.contents import Contents
from runtime.kv.formats import PAGE_TOKENS, Format, PageShape
from runtime.kv.moves import Moves
from runtime.kv.prefetch import Prefetch, Transport
from runtime.kv.records import NOBODY, Pages, Records
from runtime.kv.rotation import Rotation
from runtime.kv.slabs import PAGE_ROWS, Arena, HostSlab
from runtime.kv.subspace import Subspace


class StaleEpoch(RuntimeError):
    """A write came from before the last flush."""


class PagePool:
    """All pages of one resident, on the device and on the host.

    A page lives while a sequence uses it, the prefix index holds it or somebody pins it. It is
    live while used or pinned, evictable while only held. `host_bytes` bounds the host's part.
    """

    def __init__(
        self,
        shape: PageShape,
        layers: int,
        pool_bytes: int,
        epoch: int = 0,
        device: torch.device | None = None,
        *,
        host_bytes: int | None = None,
        subspace: Subspace | None = None,
    ) -> None:
        self.shape = shape
        self.layers = layers
        self.epoch = epoch
        self.device = device or torch.device("cpu")
        self.records = Records()
        self.arena = Arena(shape, pool_bytes, self.device)
        limit = pool_bytes if host_bytes is None else host_bytes
        self.host = HostSlab(shape, limit, pinned=self.device.type == "cuda")
        self.contents = Contents(self.records, shape, self.arena, self.host, subspace)
        self.moves = Moves(self.records, self.contents, self.arena, self.host)

    # ------------------------------------------------------------ ownership
    def allocate(self, layer: int, modality: int, epoch: int) -> int:
        """A new empty native page with one use. Raises `PoolExhausted` or `StaleEpoch`."""
        self.admit(epoch)
        size = self.shape.native_bytes
        slot = self.arena.allocate(size)
        records, page = self.records, self.records.new()
        records.layer[page], records.modality[page] = layer, modality
        records.form[page], records.on_host[page] = Format.NATIVE, False
        records.slot[page], records.size[page], records.partner[page] = slot, size, NOBODY
        records.uses[page], records.holds[page], records.pins[page] = 1, 0, 0
        records.epoch_of[page], records.fill[page], records.sealed[page] = epoch, 0, False
        return page

    def admit(self, epoch: int) -> None:
        """Raises `StaleEpoch` unless `epoch` is the pool's own."""
        if epoch != self.epoch:
            raise StaleEpoch(f"epoch {epoch} was flushed; the pool is at {self.epoch}")

    def retain(self, pages: Pages) -> None:
        """A sequence uses these pages too."""
        np.add.at(self.records.uses, pages, 1)

    def release(self, pages: Pages) -> None:
        """A sequence is done with these pages."""
        self._give_up(self.records.uses, pages)

    def hold(self, pages: Pages) -> None:
        """The prefix index keeps these pages."""
        np.add.at(self.records.holds, pages, 1)

    def drop(self, pages: Pages) -> None:
        """The prefix index lets go of these pages."""
        self._give_up(self.records.holds, pages)

    def pin(self, pages: Pages) -> None:
        """These pages are live and stay on the device until unpinned."""
        np.add.at(self.records.pins, pages, 1)

    def unpin(self, pages: Pages) -> None:
        self._give_up(self.records.pins, pages)

    def _give_up(self, count: NDArray[np.signedinteger], pages: Pages) -> None:
        np.subtract.at(count, pages, 1)
        if (count[pages] < 0).any():
            raise ValueError("a page was given up more often than it was taken")
        records, pages = self.records, np.unique(pages)
        ownerless = records.uses[pages] + records.holds[pages] + records.pins[pages] == 0
        for page in pages[ownerless]:
            self.moves.vacate(int(page))
            records.form[page] = 0
            records.free_pages.append(int(page))

    # ------------------------------------------------------------ content
    def writable_rows(
        self, pages: Pages, offsets: NDArray[np.int64], epoch: int
    ) -> NDArray[np.int64]:
        """Rows for new tokens, which must go to unsealed native pages of this epoch."""
        self.admit(epoch)
        records = self.records
        if (records.form[pages] != Format.NATIVE).any() or records.sealed[pages].any():
            raise ValueError("only an unsealed native page can be written")
        return self.rows(pages, offsets)

    def rows(self, pages: Pages, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row in `arena.rows` of each token's K on a native page; its V is 16 rows further."""
        return self.records.slot[pages].astype(np.int64) * PAGE_ROWS + offsets

    def write(self, rows: Tensor, keys: Tensor, values: Tensor) -> None:
        """K and V `(n, kv_heads, head_dim)` of new tokens to their `writable_rows` `(n,)`."""
        self.arena.rows[rows] = keys.to(self.shape.dtype)
        self.arena.rows[rows + PAGE_TOKENS] = values.to(self.shape.dtype)

    def copy(self, source: Pages, target: Pages) -> None:
        """The content of native pages to other native pages."""
        rows = self.arena.rows.view(-1, PAGE_ROWS, *self.shape.half[1:])
        ends = (torch.from_numpy(self.records.slot[p].astype(np.int64)) for p in (source, target))
        there, here = (end.to(self.device) for end in ends)
        rows[here] = rows[there]
        self.records.fill[target] = self.records.fill[source]

    def plain(self, pages: Pages) -> bool:
        """Whether all of these can be read straight from the arena's native rows."""
        return self.contents.plain(pages)

    def gather(
        self, pages: Pages, rotation: Rotation | None = None, brought: Prefetch | None = None
    ) -> tuple[Tensor, Tensor]:
        """K and V `(n, 16, kv_heads, head_dim)` of any forms and tiers, dequantised.

        `rotation` `(n, 16, head_dim)`: of the pages' tokens, where some are in a subspace;
        `brought`: where the bytes of host pages are already.
        """
        return self.contents.gather(pages, rotation, brought)

    def prefetch(self, pages: Pages, transport: Transport) -> Prefetch:
        """Bring the host pages among `pages` `(layers, columns)`, layer by layer."""
        return Prefetch(self.records, self.host, transport, pages)

    # ------------------------------------------------------------ epochs and bytes
    def advance(self, min_epoch: int) -> None:
        """Raise the epoch to `min_epoch`; writes that carry an older one are refused from now."""
        self.epoch = max(self.epoch, min_epoch)

    def account(self) -> Account:
        return account(self.records, self.layers)

    def live_bytes(self) -> int:
        """Of live pages on the device."""
        live = self.records.live() & ~self.records.on_host
        return int(self.records.bytes_of(live).sum())

    def live_bytes_at(self, form: Format) -> int:
        """Of live pages on the device, were those in int8 full ones of `form`."""
        records = self.records
        live = records.live() & ~records.on_host
        quantised = live & (records.form == Format.INT8)
        rest = int(records.bytes_of(live & ~quantised).sum())
        return rest + int(quantised.sum()) * self.contents.page_bytes(form)

    def live_share(self) -> float:
        """Live device bytes over the arena's bytes."""
        return self.live_bytes() / self.arena.nbytes
