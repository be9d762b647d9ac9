"""Host pages brought to the device one layer ahead of the attention that reads them (S1.4).

While layer l computes, the bytes that layer l + 1 will read travel on a stream of their own. What
has not arrived when it is asked for is waited for: attention stays exact, the page counts as a
miss.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.kv.records import Pages, Records
from runtime.kv.slabs import HostSlab


class Copy(Protocol):
    """Bytes on their way to the device."""

    def done(self) -> bool:
        """Whether all of it has arrived."""
        ...

    def landed(self) -> Tensor:
        """The bytes on the device; what is queued behind this call waits for them."""
        ...


class Transport(Protocol):
    def start(self, packed: Tensor) -> Copy:
        """Begin to bring `packed`, bytes in host memory of which nobody writes any more."""
        ...


class SideStream:
    """Copies from pinned memory on a CUDA stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def start(self, packed: Tensor) -> Copy:
        pinned = packed.pin_memory()
        with torch.cuda.stream(self._stream):
            there = pinned.to(self._device, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        return _OnStream(there, event)


def side_stream(device: torch.device) -> Transport | None:
    """`None` where nothing could overlap: a CPU reads its own memory as it computes."""
    return SideStream(device) if device.type == "cuda" else None


@dataclass(frozen=True, eq=False)
class _OnStream:
    there: Tensor
    event: torch.cuda.Event

    def done(self) -> bool:
        return self.event.query()

    def landed(self) -> Tensor:
        current = torch.cuda.current_stream(self.there.device)
        current.wait_event(self.event)
        self.there.record_stream(current)  # else its memory could go to the next copy too soon
        return self.there


@dataclass(frozen=True, eq=False)
class _Load:
    """Slots of one size on their way."""

    leaders: Pages  # whose slots they are, in order
    copy: Copy  # of (leaders, size)

    def bytes_of(self, leaders: Pages) -> Tensor:
        """`(n, size)` of the slots of these."""
        landed = self.copy.landed()
        at = torch.from_numpy(np.searchsorted(self.leaders, leaders))
        return landed[at.to(landed.device)]


class Prefetch:
    """The host pages of one step, `pages` `(layers, columns)`. They must not move meanwhile."""

    def __init__(
        self, records: Records, host: HostSlab, transport: Transport, pages: Pages
    ) -> None:
        self._records = records
        self._host = host
        self._transport = transport
        self._pages = pages
        self._here: dict[int, _Load] = {}  # by slot size: what the layer at hand reads
        self._next = self._begin(0)

    def reach(self, layer: int) -> None:
        """Attention comes to `layer`, one after the other: what the next one reads sets out."""
        self._here = self._next
        self._next = self._begin(layer + 1)

    def in_time(self, pages: Pages) -> NDArray[np.bool_]:
        """Which pages of the layer that comes next are on the device by now."""
        records = self._records
        here = [size for size, load in self._next.items() if load.copy.done()]
        return ~records.on_host[pages] | np.isin(records.size[pages], here)

    def packed(self, pages: Pages) -> Tensor:
        """Stored bytes `(n, size)` of host pages of one size that the layer at hand reads."""
        load = self._here[int(self._records.size[pages[0]])]
        return load.bytes_of(self._records.leaders(pages))

    def rows(self, row_bytes: int, pages: Pages, rows: Pages) -> Tensor:
        """Bytes `(n, row_bytes)` of row `rows` of host pages of any sizes, each `(n,)`."""
        sizes = self._records.size[pages]
        groups = [np.flatnonzero(sizes == size) for size in np.unique(sizes)]
        parts = [
            self.packed(pages[of]).unflatten(1, (-1, row_bytes))[np.arange(len(of)), rows[of]]
            for of in groups
        ]
        together = torch.cat(parts)
        back = torch.from_numpy(np.argsort(np.concatenate(groups)))
        return together[back.to(together.device)]

    def _begin(self, layer: int) -> dict[int, _Load]:
        """Behind the last layer there is nothing to bring."""
        if layer >= len(self._pages):
            return {}
        records, pages = self._records, self._pages[layer]
        leaders = np.unique(records.leaders(pages[records.on_host[pages]]))
        sizes = records.size[leaders]
        return {int(n): self._load(int(n), leaders[sizes == n]) for n in np.unique(sizes)}

    def _load(self, size: int, leaders: Pages) -> _Load:
        slots = torch.from_numpy(self._records.slot[leaders].astype(np.int64))
        return _Load(leaders, self._transport.start(self._host.read(size, slots)))
