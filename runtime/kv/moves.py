"""Turning pages from one form or tier into another, never past a flush (DESIGN 5).

A move to the host is in two steps, as a copy between devices takes its time: `depart` starts it
and `arrive` ends it. What was flushed, freed or moved meanwhile stays as it is.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.kv.contents import Contents
from runtime.kv.formats import PAGE_TOKENS, Format
from runtime.kv.records import NOBODY, Pages, Records
from runtime.kv.rotation import Rotation
from runtime.kv.slabs import Arena, HostSlab, PoolExhausted
from runtime.kv.subspace import Unit


@dataclass(frozen=True, eq=False)
class Departure:
    """Pages on their way to the host: their bytes, and what must still be true on arrival."""

    pages: Pages
    serials: NDArray[np.int32]
    epoch: int
    left_as: Format  # what the pages were when they left
    form: Format  # what they are on arrival
    packed: Tensor  # (pages, size), on the host
    copied: torch.cuda.Event | None  # until it has passed, `packed` is not all there


class Moves:
    """Works on sealed pages alone."""

    def __init__(self, records: Records, contents: Contents, arena: Arena, host: HostSlab) -> None:
        self._records = records
        self._contents = contents
        self._arena = arena
        self._host = host

    def vacate(self, page: int) -> None:
        """Nobody owns the page any more: its slot is free, unless its partner is still in it."""
        records = self._records
        partner = int(records.partner[page])
        if partner == NOBODY:
            self._free_slot(page)
        else:
            records.partner[page] = records.partner[partner] = NOBODY

    def quantise(self, pages: Pages, form: Format = Format.INT8) -> int:
        """Turn sealed pages to an integer form on the device; those that are as small already, or
        on the host, are left alone.

        Returns how many were turned: fewer when the device has no slot left.
        """
        records = self._records
        larger = (records.form[pages] < form) & ~records.on_host[pages] & (records.form[pages] > 0)
        chosen = pages[records.sealed[pages] & larger]
        chosen = chosen[np.argsort(records.slot[chosen])]  # so that extents come free soon
        if not len(chosen):
            return 0
        packed = self._contents.quantised(chosen, form)
        return self._settle_on_device(chosen, form, packed)

    def project(self, columns: Pages, unit: Unit, rotation: Rotation) -> int:
        """Turn sealed device pages to coordinates in their layers' subspace.

        `columns` `(n, layers of the unit)`: pages of the same tokens, which `rotation`
        `(n, 16, head_dim)` is of. Returns how many pages were turned; a column of which one is
        not sealed, on the host or in a subspace already is left alone.
        """
        records = self._records
        there = records.sealed[columns] & ~records.on_host[columns]
        ready = (there & (records.form[columns] < Format.SUBSPACE)).all(1)
        columns, rotation = columns[ready], rotation[torch.from_numpy(ready)]
        fill = records.fill[columns[:, 0]].astype(np.int64)
        if not len(columns):
            return 0
        rows, moved = self._projected(columns, fill, unit, rotation), 0
        starts = np.cumsum(fill) - fill
        for tokens in np.unique(fill):
            which = fill == tokens
            at = torch.from_numpy(starts[which][:, None] + np.arange(tokens)).to(rows.device)
            moved += self._settle_columns(columns[which], rows[at].flatten(1))
        return moved

    def compact(self) -> int:
        """Bring packed device pages together, so that an extent comes free; how many did.

        Freed slots lie scattered, and a native page needs an extent of its own kind.
        """
        native = self._contents.page_bytes(Format.NATIVE)
        packed = (size for size in self._arena.books.sizes() if size != native)
        return sum(self._clear_out(size) for size in packed)

    def fetch(self, pages: Pages) -> int:
        """Bring host pages back to the device as they are. Returns how many found room."""
        away = pages[self._records.on_host[pages]]
        return sum(self._fetch_alike(group) for group in self._by_kind(away))

    def offload(self, pages: Pages) -> int:
        """Move sealed, unpinned device pages to the host at once. Returns how many moved."""
        return sum(self.arrive(departure) for departure in self.depart(pages))

    def depart(self, pages: Pages) -> list[Departure]:
        """Start moving sealed, unpinned device pages to the host: native ones as int8, packed
        ones as they are."""
        records = self._records
        there = pages[records.sealed[pages] & ~records.on_host[pages]]
        begun = (self._depart_alike(group) for group in self._by_kind(there[self._unpinned(there)]))
        return [departure for departure in begun if departure is not None]

    def arrive(self, departure: Departure) -> int:
        """End a move; returns how many pages are on the host by it. Pages of a flushed epoch
        keep away: the caller asks `PagePool.admit` first, which raises."""
        records, pages = self._records, departure.pages
        same = (
            (records.serial[pages] == departure.serials)
            & (records.form[pages] == departure.left_as)
            & ~records.on_host[pages]
            & self._unpinned(pages)
        )
        size = departure.packed.shape[1]
        fitting = np.flatnonzero(same)[: self._host.room(size)]
        if not len(fitting):
            return 0
        if departure.copied is not None:
            departure.copied.synchronize()
        slots = [self._host.allocate(size) for _ in fitting]
        self._host.write(size, torch.tensor(slots), departure.packed[fitting])
        moved = 0
        for page, slot in zip(pages[fitting], slots, strict=True):
            self._free_slot(int(page))
            moved += self._place(int(page), departure.form, slot, size, on_host=True)
        return moved

    # ------------------------------------------------------------ pages of one kind
    def _by_kind(self, pages: Pages) -> list[Pages]:
        """Pages of one form and slot size each; of two partners the leader stands for both."""
        records, leaders = self._records, np.unique(self._records.leaders(pages))
        kinds = np.stack([records.form[leaders], records.size[leaders]])
        _, which = np.unique(kinds, axis=1, return_inverse=True)
        return [leaders[which == kind] for kind in range(int(which.max(initial=-1)) + 1)]

    def _unpinned(self, pages: Pages) -> NDArray[np.bool_]:
        """Neither the page nor its partner is pinned."""
        records, partner = self._records, self._records.partner[pages]
        return (records.pins[pages] == 0) & ((partner == NOBODY) | (records.pins[partner] == 0))

    def _depart_alike(self, pages: Pages) -> Departure | None:
        """`None` where the host has no room."""
        records, left_as = self._records, Format(int(self._records.form[pages[0]]))
        native = left_as is Format.NATIVE
        form = Format.INT8 if native else left_as
        size = self._contents.page_bytes(form) if native else int(records.size[pages[0]])
        pages = pages[: self._host.room(size)]
        if not len(pages):
            return None
        contents = self._contents
        packed = contents.quantised(pages, form) if native else contents.packed(pages)
        return Departure(
            pages=pages,
            serials=records.serial[pages].copy(),
            epoch=int(records.epoch_of[pages].max()),
            left_as=left_as,
            form=form,
            packed=packed.to("cpu", non_blocking=True),
            copied=_event(packed.device),
        )

    def _fetch_alike(self, pages: Pages) -> int:
        form = Format(int(self._records.form[pages[0]]))
        return self._settle_on_device(pages, form, self._contents.packed(pages))

    def _settle_on_device(self, pages: Pages, form: Format, packed: Tensor) -> int:
        """Give pages of one kind new slots on the device, as many as there are."""
        size, moved = packed.shape[1], 0
        slots: list[int] = []
        for page in pages:
            try:
                slot = self._arena.allocate(size)
            except PoolExhausted:
                break
            slots.append(slot)
            self._free_slot(int(page))
            moved += self._place(int(page), form, slot, size, on_host=False)
        if slots:
            self._arena.write(size, torch.tensor(slots), packed[: len(slots)])
        return moved

    def _projected(self, columns: Pages, fill: Pages, unit: Unit, rotation: Rotation) -> Tensor:
        """Rows of all tokens in use, `(tokens, row_bytes)`, column by column."""
        used = torch.from_numpy(np.arange(PAGE_TOKENS) < fill[:, None])
        layers = [self._contents.gather(column, None) for column in columns.T]
        used = used.to(layers[0][0].device)
        keys = torch.stack([rotation[used].undo(k[used].float()) for k, _ in layers], 1)
        return unit.pack(keys, torch.stack([v[used].float() for _, v in layers], 1))

    def _settle_columns(self, columns: Pages, packed: Tensor) -> int:
        """Pages of each column into one slot; as many as there is room for."""
        records, size = self._records, packed.shape[1]
        slots: list[int] = []
        for column in columns:
            try:
                slots.append(self._arena.allocate(size))
            except PoolExhausted:
                break
            for page in column:
                self._free_slot(int(page))
            if len(column) > 1:
                records.partner[column] = column[::-1]
            records.solo[column] = len(column) == 1
            self._place(int(column[0]), Format.SUBSPACE, slots[-1], size, on_host=False)
        if slots:
            self._arena.write(size, torch.tensor(slots), packed[: len(slots)])
        return len(slots) * columns.shape[1]

    def _clear_out(self, size: int) -> int:
        """Free one extent that serves slots of `size` for their like; 1 where that could be."""
        records, found = self._records, self._arena.books.clear_out(size)
        if found is None:
            return 0
        taken, places = found
        here = (records.form > 0) & ~records.on_host & (records.size == size)
        pages = np.unique(records.leaders(np.flatnonzero(here & np.isin(records.slot, taken))))
        pages = pages[np.argsort(records.slot[pages])]
        self._arena.write(size, torch.tensor(places), self._arena.read(size, torch.tensor(taken)))
        for page, old, new in zip(pages.tolist(), taken, places, strict=True):
            self._arena.free(size, old)
            self._place(page, Format(int(records.form[page])), new, size, on_host=False)
        return 1

    def _free_slot(self, page: int) -> None:
        records = self._records
        slab = self._host if records.on_host[page] else self._arena
        slab.free(int(records.size[page]), int(records.slot[page]))

    def _place(self, page: int, form: Format, slot: int, size: int, *, on_host: bool) -> int:
        """A page and its partner are in this slot now; returns how many that is."""
        records = self._records
        partner = int(records.partner[page])
        for each in (page,) if partner == NOBODY else (page, partner):
            records.form[each], records.size[each] = form, size
            records.on_host[each], records.slot[each] = on_host, slot
        return 1 if partner == NOBODY else 2


def _event(device: torch.device) -> torch.cuda.Event | None:
    """Behind all that was queued on the device; elsewhere than on one nothing is queued."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event
