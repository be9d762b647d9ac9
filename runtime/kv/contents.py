"""Reading pages of any form and tier: K and V as numbers, or the packed bytes as they are."""

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from runtime.kv.formats import Format, PageShape
from runtime.kv.quantise import Quantiser
from runtime.kv.records import Pages, Records
from runtime.kv.slabs import Arena, HostSlab
from runtime.kv.subspace import Subspace


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
        self.quantisers: Mapping[Format, Quantiser] = {
            form: Quantiser(form, shape) for form in (Format.INT8, Format.INT4)
        }

    def page_bytes(self, form: Format) -> int:
        """Of a full page at rest."""
        if form is Format.NATIVE:
            return self._shape.native_bytes
        return self.quantisers[form].page_bytes

    def plain(self, pages: Pages) -> bool:
        """Whether all of these can be read straight from the arena's native rows."""
        return bool((self._records.form[pages] == Format.NATIVE).all())

    def gather(self, pages: Pages) -> tuple[Tensor, Tensor]:
        """K and V `(n, 16, kv_heads, head_dim)` of any forms and tiers, dequantised.

        Unused slots of a page hold anything finite or not: nobody may read them.
        """
        keys = torch.empty(
            len(pages), *self._shape.half, dtype=self._shape.dtype, device=self._device
        )
        values = torch.empty_like(keys)
        for rows in self._alike(pages):
            at = torch.from_numpy(rows).to(self._device)
            k, v = self._numbers(pages[rows])
            keys[at], values[at] = k.to(keys.dtype), v.to(values.dtype)
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
        """Native pages as bytes `(n, page_bytes)` of an integer form."""
        keys, values = self.native(pages)
        fill = torch.from_numpy(self._records.fill[pages].astype(np.int64)).to(self._device)
        return self.quantisers[form].pack(keys, values, fill)

    def _alike(self, pages: Pages) -> Iterator[Pages]:
        """Where pages of one form, size and tier stand in `pages`."""
        records = self._records
        kind = np.stack([records.form[pages], records.size[pages], records.on_host[pages]])
        _, which = np.unique(kind, axis=1, return_inverse=True)
        for group in range(int(which.max(initial=-1)) + 1):
            yield np.flatnonzero(which == group)

    def _numbers(self, pages: Pages) -> tuple[Tensor, Tensor]:
        """K and V of pages that share form, size and tier."""
        form = Format(int(self._records.form[pages[0]]))
        if form is Format.NATIVE:
            return self.native(pages)
        packed = self.packed(pages).to(self._device)
        if form is not Format.SUBSPACE:
            return self.quantisers[form].unpack(packed)
        raise NotImplementedError
