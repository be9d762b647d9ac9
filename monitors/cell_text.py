"""Table 1 as exposition text. It is nine tenths of all series: labels are written once for a set
of cells, and a number when an engine sends a new one, not when a scrape asks.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from monitors import catalog
from monitors.cache_table import COUNTERS, CacheCell, CellState, Key
from monitors.cardinality import check_open
from monitors.labels import Modality
from monitors.metric import Label, Metric
from monitors.metric_text import heading, labelled, number

Numbers = Sequence[float | None]  # None: unknown, so absent
_MODALITIES = tuple(Modality)


@dataclass(frozen=True)
class _Column:
    """Where a family's values come from: a field of the cells, or a column of their totals."""

    metric: Metric
    source: str

    @property
    def by_layer(self) -> bool:
        return Label.LAYER in self.metric.labels

    @property
    def read(self) -> Callable[[CellState], Numbers]:
        if self.source in COUNTERS:
            place = COUNTERS.index(self.source)
            return lambda state: state.totals[:, place].tolist()
        field: Callable[[CacheCell], float | None] = attrgetter(self.source)
        return lambda state: [field(cell) for cell in state.cells]


_COLUMNS = (
    _Column(catalog.ENTROPY_THRESHOLD, "entropy_th"),
    _Column(catalog.LIVE_BYTES, "live_bytes"),
    _Column(catalog.EVICTABLE_BYTES, "evictable_bytes"),
    _Column(catalog.HOST_BYTES, "host_bytes"),
    _Column(catalog.ALIAS_PAGES, "alias_pages"),
    _Column(catalog.RESIDENCY_HIT_MASS, "hit_mass"),
    _Column(catalog.RESIDENCY_LOOKUP_MASS, "lookup_mass"),
    _Column(catalog.ENTROPY_SUM, "entropy_sum"),
    _Column(catalog.ENTROPY_COUNT, "entropy_count"),
    _Column(catalog.TOKEN_ENTROPY_SUM, "token_entropy_sum"),
    _Column(catalog.TOKEN_ENTROPY_COUNT, "token_entropy_count"),
)
SHOWN = frozenset(column.metric for column in _COLUMNS)
"""The families that are written here and nowhere else."""


class CellText:
    """Remembers each version's text. Used on one thread."""

    def __init__(self) -> None:
        self._pages: dict[str, _Page] = {}

    def show(self, states: Iterable[CellState]) -> None:
        """Write what is new of these versions; of others nothing is kept. Raises `MetricRefused`
        for more of them, or more layers, than may be live."""
        pages: dict[str, _Page] = {}
        for state in states:
            page = self._pages.get(state.version)
            if page is None or page.keys != state.keys:
                page = _Page(state.version, state.keys)
            page.show(state)
            pages[state.version] = page
        check_open(catalog.LIVE_BYTES, Label.VERSION, pages)
        self._pages = pages

    def text(self, openmetrics: bool) -> str:
        """All families of what was last shown."""
        return "".join(self._families(openmetrics))

    def _families(self, openmetrics: bool) -> Iterable[str]:
        for index, column in enumerate(_COLUMNS):
            bodies = [page.bodies[index] for page in self._pages.values()]
            if any(bodies):
                yield heading(column.metric, openmetrics)
                yield from bodies


class _Page:
    """One version's series for one set of cells."""

    def __init__(self, version: str, keys: tuple[Key, ...]) -> None:
        check_open(catalog.LIVE_BYTES, Label.LAYER, {str(layer) for layer, _ in keys})
        self.keys = keys
        self._codes = np.array([_MODALITIES.index(m) for _, m in keys], np.int64)
        self._families = [
            _Family(column, _heads(column.metric, version, keys)) for column in _COLUMNS
        ]
        self._shown: CellState | None = None

    @property
    def bodies(self) -> list[str]:
        """The samples of each family, as text."""
        return [family.body for family in self._families]

    def show(self, state: CellState) -> None:
        if state is self._shown:
            return
        self._shown = state
        for family in self._families:
            values = family.read(state)
            family.show(values if family.by_layer else _by_modality(values, self._codes))


class _Family:
    """A family's samples of one version: a template of their heads, filled in with numbers."""

    def __init__(self, column: _Column, heads: Sequence[str]) -> None:
        self.body = ""
        self.by_layer = column.by_layer
        self.read = column.read
        self._heads = heads
        self._template = "".join(f"{head.replace('%', '%%')}%r\n" for head in heads)
        self._values: Numbers | None = None

    def show(self, values: Numbers) -> None:
        if values == self._values:
            return
        self._values = values
        known = [v for v in values if v is not None]
        if len(known) == len(values) and all(map(math.isfinite, known)):
            self.body = self._template % tuple(values)
        else:
            shown = zip(self._heads, values, strict=True)
            self.body = "".join([f"{head}{number(v)}\n" for head, v in shown if v is not None])


def _by_modality(values: Numbers, codes: NDArray[np.int64]) -> Numbers:
    """Summed over layers; None for a modality of which there is no cell."""
    sums = np.bincount(codes, np.array(values, np.float64), len(_MODALITIES))
    cells = np.bincount(codes, minlength=len(_MODALITIES))
    return [value if count else None for value, count in zip(sums.tolist(), cells, strict=True)]


def _heads(metric: Metric, version: str, keys: Sequence[Key]) -> list[str]:
    """What stands before each number, in the order of the cells or of the modalities."""
    if Label.LAYER in metric.labels:
        places = [(version, str(layer), modality.value) for layer, modality in keys]
    else:
        places = [(version, modality.value) for modality in _MODALITIES]
    return [f"{metric.name}{labelled(metric.labels, place)} " for place in places]
