"""Reading pages of any form and tier: K and V as numbers, or the packed bytes as they are."""

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from runtime.kv.formats import PAGE_TOKENS, Format, PageShape
from runtime.kv.prefetch import Prefetch
from runtime.kv.quantise import Quantiser
from runtime.kv.records import Pages, Records
from runtime.kv.rotation import Rotation
from runtime.kv.slabs import Arena, HostSlab
from runtime.kv.subspace import Subspace, Unit


class Contents:
    """`subspace` is `None` where no page is ever stored in one."""

    def __init__(
        self,
        records: Records,
        shape: PageShape,
        arena: Arena,
        host: HostSlab,
        subspace: Subspace | None,
    ) -> None:
        self._records = records
        self._shape = shape
        self._arena = arena
        self._host = host
        self._device = arena.rows.device
        self.subspace = subspace
        self.widest = 0  # bytes that a read was unpacked into, at most
        self.quantisers: Mapping[Format, Quantiser] = {
            form: Quantiser(form, shape) for form in (Format.INT8, Format.INT4)
        }

    def page_bytes(self, form: Format) -> int:
        """Of a full page at rest; of the widest unit in a subspace."""
        if form is Format.NATIVE:
            return self._shape.native_bytes
        if form is not Format.SUBSPACE:
            return self.quantisers[form].page_bytes
        assert self.subspace is not None
        return PAGE_TOKENS * self.subspace.layer_row_bytes

    def plain(self, pages: Pages) -> bool:
        """Whether all of these can be read straight from the arena's native rows."""
        return bool((self._records.form[pages] == Format.NATIVE).all())

    def gather(
        self, pages: Pages, rotation: Rotation | None, brought: Prefetch | None = None
    ) -> tuple[Tensor, Tensor]:
        """K and V `(n, 16, kv_heads, head_dim)` of any forms and tiers, dequantised.

        `rotation` `(n, 16, head_dim)` is that of the pages' tokens; only pages in a subspace
        need it. `brought`: where the bytes of host pages are. Unused slots hold anything that is
        finite.
        """
        shape, device = (len(pages), *self._shape.half), self._device
        keys = torch.zeros(shape, dtype=self._shape.numbers, device=device)
        values = torch.zeros_like(keys)
        self.widest = max(self.widest, keys.nbytes + values.nbytes)
        for rows in self._alike(pages):
            some = pages[rows]
            if self._records.form[some[0]] == Format.SUBSPACE:
                tokens, k, v = self._from_subspace(some, rows, rotation, brought)
                flat_keys, flat_values = keys.flatten(0, 1), values.flatten(0, 1)
                flat_keys[tokens], flat_values[tokens] = k.to(keys.dtype), v.to(keys.dtype)
                continue
            at = torch.from_numpy(rows).to(device)
            k, v = self._numbers(some, brought)
            keys[at], values[at] = k.to(keys.dtype), v.to(keys.dtype)
        return keys, values

    def native(self, pages: Pages) -> tuple[Tensor, Tensor]:
        """K and V `(n, 16, kv_heads, head_dim)` of native pages."""
        slots = torch.from_numpy(self._records.slot[pages].astype(np.int64)).to(self._device)
        both = self._arena.rows.view(-1, 2, *self._shape.half)[slots]
        return both[:, 0], both[:, 1]

    def packed(self, pages: Pages) -> Tensor:
        """Stored bytes `(n, size)` of pages that share a size and a tier."""
        records = self._records
        slab = self._host if records.on_host[pages[0]] else self._arena
        slots = torch.from_numpy(records.slot[pages].astype(np.int64))
        return slab.read(int(records.size[pages[0]]), slots)

    def quantised(self, pages: Pages, form: Format) -> Tensor:
        """Pages that are in no subspace as bytes `(n, page_bytes)` of an integer form."""
        keys, values = self.gather(pages, None)
        fill = torch.from_numpy(self._records.fill[pages].astype(np.int64)).to(self._device)
        return self.quantisers[form].pack(keys, values, fill)

    def unit_of(self, pages: Pages) -> Unit:
        """The subspace of pages that share one."""
        assert self.subspace is not None
        records, first = self._records, pages[0]
        layer = int(records.layer[first])
        return self.subspace.units[(layer,) if records.solo[first] else self.subspace.pair(layer)]

    def _alike(self, pages: Pages) -> Iterator[Pages]:
        """Where pages stand in `pages` that one read can serve: of one form and tier and, in a
        subspace, of one layer and kind of unit; elsewhere of one size."""
        records = self._records
        projected = records.form[pages] == Format.SUBSPACE
        kind = np.stack(
            [
                records.form[pages],
                records.on_host[pages],
                np.where(projected, records.layer[pages], records.size[pages]),
                np.where(projected, records.solo[pages], False),
            ]
        )
        _, which = np.unique(kind, axis=1, return_inverse=True)
        for group in range(int(which.max(initial=-1)) + 1):
            yield np.flatnonzero(which == group)

    def _numbers(self, pages: Pages, brought: Prefetch | None) -> tuple[Tensor, Tensor]:
        """K and V of whole pages that share form, size and tier."""
        form = Format(int(self._records.form[pages[0]]))
        if form is Format.NATIVE:
            return self.native(pages)
        if brought is not None and self._records.on_host[pages[0]]:
            return self.quantisers[form].unpack(brought.packed(pages))
        return self.quantisers[form].unpack(self.packed(pages).to(self._device))

    def _from_subspace(
        self,
        pages: Pages,
        places: Pages,
        rotation: Rotation | None,
        brought: Prefetch | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens in use, as `place x 16 + slot`, and their K and V."""
        if rotation is None:
            raise ValueError("a page in a subspace is read with the positions of its tokens")
        records, unit = self._records, self.unit_of(pages)
        fill = records.fill[pages].astype(np.int64)
        page = np.repeat(np.arange(len(pages)), fill)
        slot = np.arange(len(page)) - np.repeat(np.cumsum(fill) - fill, fill)
        tokens = torch.from_numpy(places[page] * PAGE_TOKENS + slot).to(self._device)
        rows = self._rows(pages[page], slot, unit.row_bytes, brought)
        keys, values = unit.unpack(rows, int(records.layer[pages[0]]), self._shape.kv_heads)
        flat = Rotation(rotation.cos.flatten(0, 1), rotation.sin.flatten(0, 1))
        return tokens, flat[tokens].apply(keys), values

    def _rows(self, pages: Pages, slots: Pages, row_bytes: int, brought: Prefetch | None) -> Tensor:
        """Bytes `(n, row_bytes)` of these tokens of pages of one tier, on the device.

        Slots of different sizes hold rows of the same size: all are read at once.
        """
        records = self._records
        if brought is not None and records.on_host[pages[0]]:
            return brought.rows(row_bytes, pages, slots)
        slab = self._host if records.on_host[pages[0]] else self._arena
        rows = slab.read_rows(row_bytes, records.size[pages], records.slot[pages], slots)
        return rows.to(self._device)
