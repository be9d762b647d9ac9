"""An exposition to test, and the two tables it reads."""

from prometheus_client.core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families as parse_text

from monitors import catalog
from monitors.cache_table import CacheCell, CacheTable
from monitors.cell_text import SHOWN
from monitors.exposition import Exposition
from monitors.fault_table import FaultTable
from monitors.labels import Modality
from monitors.redlines import RedLines

LINES = RedLines()
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
FROM_TABLES = frozenset(
    metric
    for metric in catalog.DATA_PLANE
    if metric in SHOWN or metric.name.startswith("redline_fault_window")
)


class Plane:
    """An exposition and the two tables it reads."""

    def __init__(self) -> None:
        self.metrics = Exposition(LINES)
        self.cache = CacheTable(LINES)
        self.faults = FaultTable(LINES)
        self.metrics.publish_tables(self.cache, self.faults, clock=lambda: 1.0)

    def families(self) -> dict[str, Family]:
        return families(self.metrics)

    def samples(self, name: str) -> dict[tuple[str, ...], float]:
        """Label values (in the order of their names) -> value, of one sample name."""
        return {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for family in self.families().values()
            for sample in family.samples
            if sample.name == name
        }


def families(exposition: Exposition) -> dict[str, Family]:
    """What a scrape shows, as the client library reads it."""
    body, _ = exposition.render(None)
    return {family.name: family for family in parse_text(body.decode())}


def cell(layer: int, modality: Modality, *, entropy_th: float | None = 0.35) -> CacheCell:
    return CacheCell(
        layer=layer,
        modality=modality,
        entropy_th=entropy_th,
        hit_mass=0.125,
        lookup_mass=0.5,
        entropy_sum=3.5,
        entropy_count=4,
        token_entropy_sum=9.5,
        token_entropy_count=3,
        live_bytes=5,
        evictable_bytes=6,
        host_bytes=7,
        alias_pages=8,
    )
