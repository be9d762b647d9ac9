"""What is known of each page, as numpy columns indexed by page number."""

import numpy as np
from numpy.typing import NDArray

Pages = NDArray[np.int64]  # page numbers; a number may stand twice (an alias)
NOBODY = -1  # in `partner`
_GROWTH = 256


class Records:
    """One row a page. A free page has `form` 0 and no bytes."""

    _COLUMNS = (
        ("layer", np.int16), ("modality", np.int8), ("form", np.int8), ("on_host", np.bool_),
        ("slot", np.int32), ("size", np.int32), ("uses", np.int32), ("holds", np.int32),
        ("pins", np.int16), ("epoch_of", np.int32), ("serial", np.int32), ("fill", np.int8),
        ("sealed", np.bool_), ("partner", np.int32), ("solo", np.bool_),
    )  # fmt: skip

    layer: NDArray[np.int16]
    modality: NDArray[np.int8]
    form: NDArray[np.int8]
    on_host: NDArray[np.bool_]
    slot: NDArray[np.int32]  # in the slots of its size
    size: NDArray[np.int32]  # bytes of its slot, which two partners share
    uses: NDArray[np.int32]  # page-table entries
    holds: NDArray[np.int32]  # entries of the prefix index
    pins: NDArray[np.int16]
    epoch_of: NDArray[np.int32]
    serial: NDArray[np.int32]  # how often the number was handed out
    fill: NDArray[np.int8]
    sealed: NDArray[np.bool_]  # no token will be written any more
    partner: NDArray[np.int32]  # the page of the other layer in the same slot
    solo: NDArray[np.bool_]  # in a subspace of its own layer alone

    def __init__(self) -> None:
        self.free_pages: list[int] = []
        self._size = 0
        for name, dtype in self._COLUMNS:
            setattr(self, name, np.zeros(0, dtype))
        self._grow()

    @property
    def nbytes(self) -> int:
        """Bytes of the records themselves."""
        return sum(getattr(self, name).nbytes for name, _ in self._COLUMNS)

    def new(self) -> int:
        """An unused page number with a serial of its own."""
        if not self.free_pages:
            self._grow()
        page = self.free_pages.pop()
        self.serial[page] += 1
        return page

    def live(self) -> NDArray[np.bool_]:
        """Which pages a sequence uses or somebody pins."""
        return (self.form > 0) & ((self.uses > 0) | (self.pins > 0))

    def on_host_pages(self) -> NDArray[np.bool_]:
        return (self.form > 0) & self.on_host

    def bytes_of(self, pages: Pages | NDArray[np.bool_]) -> NDArray[np.int64]:
        """Bytes of each of these pages: partners count half of their slot each."""
        whole = np.where(self.form[pages] > 0, self.size[pages], 0).astype(np.int64)
        return np.where(self.partner[pages] == NOBODY, whole, whole // 2)

    def leaders(self, pages: Pages) -> Pages:
        """Who stands for the slot of each of these pages: of two partners, the lower layer's."""
        partner = self.partner[pages]
        upper = (partner != NOBODY) & (self.layer[partner] < self.layer[pages])
        return np.where(upper, partner, pages)

    def _grow(self) -> None:
        size = max(_GROWTH, 2 * self._size)
        for name, dtype in self._COLUMNS:
            column = np.full(size, NOBODY if name == "partner" else 0, dtype)
            column[: self._size] = getattr(self, name)
            setattr(self, name, column)
        self.free_pages += reversed(range(self._size, size))
        self._size = size
