"""`/metrics` holds what the catalog allows and is known: it parses and stays bounded."""

import itertools
import re
import shutil
import subprocess
from collections.abc import Iterable

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from monitors import catalog
from monitors.cache_table import CacheCell, CacheTable
from monitors.cardinality import MOST_SERIES, OPEN, MetricRefused, most_series
from monitors.cell_text import SHOWN
from monitors.exposition import Exposition
from monitors.fault_table import FaultTable
from monitors.labels import Fault, Grade, Mark, Milestone, Modality, Origin, Outcome, Role
from monitors.metric import CLOSED, Kind, Label, Metric, Unit
from monitors.redlines import RedLines

LINES = RedLines()
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
LAYERS = 48
VERSIONS = ("v1", "v2", "v3", "v4")
FROM_TABLES = frozenset(
    metric
    for metric in catalog.DATA_PLANE
    if metric in SHOWN or metric.name.startswith("redline_fault_window")
)


class Plane:
    """An exposition and the two tables it reads."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Exposition(self.registry, LINES)
        self.cache = CacheTable(LINES)
        self.faults = FaultTable(LINES)
        self.metrics.publish_tables(self.cache, self.faults, clock=lambda: 1.0)

    def families(self) -> dict[str, Family]:
        body, _ = self.metrics.render(None)
        return {family.name: family for family in parse_text(body.decode())}

    def samples(self, name: str) -> dict[tuple[str, ...], float]:
        """Label values (in the order of their names) -> value, of one sample name."""
        return {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for family in self.families().values()
            for sample in family.samples
            if sample.name == name
        }


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


def everything() -> Plane:
    """The largest state allowed: four versions of 48 layers, every label value in use."""
    plane = Plane()
    for version in VERSIONS:
        cells = [cell(layer, modality) for layer in range(LAYERS) for modality in Modality]
        plane.cache.update(version, cells, now=1.0)
        plane.faults.finish(version, Outcome.OK, True, {Fault.LIP_DESYNC: Mark.HARD})
    for metric in catalog.ALL:
        if metric not in FROM_TABLES:
            fill(plane.metrics, metric)
    return plane


def fill(metrics: Exposition, metric: Metric) -> None:
    if metric.kind is Kind.INFO:
        for place in range(OPEN[metric.labels[0]]):
            values = (some_values(label) for label in metric.labels)
            metrics.info(metric).set(*(those[place % len(those)] for those in values))
        return
    for labels in itertools.product(*map(some_values, metric.labels)):
        match metric.kind:
            case Kind.COUNTER:
                metrics.counter(metric).inc(*labels)
            case Kind.GAUGE:
                metrics.gauge(metric).set(0.5, *labels)
            case Kind.HISTOGRAM:
                metrics.histogram(metric).observe(0.3, *labels, trace_id="ab" * 16)


def some_values(label: Label) -> tuple[str, ...]:
    """All of a closed enum, or four."""
    return CLOSED.get(label, VERSIONS)


def family_name(metric: Metric) -> str:
    return f"{metric.name}_info" if metric.kind is Kind.INFO else metric.name


# ---------------------------------------------------------------- the whole of it
def test_everything_parses_as_text_and_every_family_is_in_the_catalog() -> None:
    body, content_type = everything().metrics.render("text/plain;version=0.0.4")
    assert content_type.startswith("text/plain")
    found = {family.name: family.type for family in parse_text(body.decode())}
    expected = {
        # This parser drops the suffix of counters and knows info metrics as gauges.
        family_name(metric).removesuffix("_total"): "gauge"
        if metric.kind is Kind.INFO
        else metric.kind.value
        for metric in catalog.ALL
    }
    assert found == expected


def test_everything_parses_as_openmetrics_with_exemplars_and_the_same_samples() -> None:
    plane = everything()
    body, content_type = plane.metrics.render(OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    families = {family.name: family for family in parse_openmetrics(body.decode())}
    assert set(families) == {metric.name.removesuffix("_total") for metric in catalog.ALL}
    exemplars = [s.exemplar for s in families[catalog.FIRST_OUTPUT.name].samples if s.exemplar]
    assert {exemplar.labels["trace_id"] for exemplar in exemplars} == {"ab" * 16}
    assert values(families.values()) == values(plane.families().values())


def values(families: Iterable[Family]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_openmetrics_tells_the_unit_of_every_family_that_has_one() -> None:
    body = everything().metrics.render(OPENMETRICS)[0].decode()
    told = dict(re.findall(r"^# UNIT (\S+) (\S+)$", body, re.M))
    assert told == {metric.family: metric.unit for metric in catalog.ALL if metric.unit}
    parsed = {family.name: family.unit for family in parse_openmetrics(body) if family.unit}
    assert parsed == told


def test_a_name_ends_in_its_unit_and_in_no_suffix_that_is_reserved() -> None:
    units = {unit.value for unit in Unit if unit}
    for metric in catalog.ALL:
        last = metric.family.rpartition("_")[2]
        assert (last if last in units else "") == metric.unit, metric.name
        assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total"), metric.name
        assert last not in {"total", "created", "count", "sum", "bucket", "info"}, metric.name
    with pytest.raises(ValueError, match="let its name end in that"):
        Metric("redline_wait", Kind.GAUGE, "", unit=Unit.SECONDS)


def test_the_client_library_reads_from_its_registry_what_a_scrape_reads() -> None:
    plane = everything()
    assert values(plane.registry.collect()) == values(plane.families().values())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_mend() -> None:
    body, _ = everything().metrics.render(None)
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=body, check=False, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_cardinality_at_48_layers_and_four_versions_is_what_was_computed() -> None:
    found = everything().families()
    limits = {
        family_name(metric).removesuffix("_total"): most_series(metric, layers=LAYERS, lines=LINES)
        for metric in catalog.ALL
    }
    assert {name: len(family.samples) for name, family in found.items()} == limits
    assert sum(limits.values()) < MOST_SERIES


def test_two_residents_of_48_layers_live_in_half_of_that() -> None:
    live = sum(
        most_series(metric, layers=LAYERS, lines=LINES, versions=2) for metric in catalog.DATA_PLANE
    )
    by_cell = sum(
        most_series(metric, layers=LAYERS, lines=LINES, versions=2)
        for metric in catalog.DATA_PLANE
        if Label.LAYER in metric.labels
    )
    assert by_cell == 7 * 2 * 48 * 4
    assert live < MOST_SERIES / 2


def test_every_label_is_closed_or_has_a_limit() -> None:
    labels = {label for metric in catalog.ALL for label in metric.labels}
    assert labels <= CLOSED.keys() | OPEN.keys()
    assert not CLOSED.keys() & OPEN.keys()
    assert OPEN[Label.VERSION] == 4


# ---------------------------------------------------------------- unknown is absent
def test_before_anything_is_known_nothing_is_shown() -> None:
    plane = Plane()
    for metric in catalog.ALL:
        if metric.kind is Kind.GAUGE and metric not in FROM_TABLES:
            plane.metrics.gauge(metric)
    assert plane.families() == {}


def test_a_gauge_that_becomes_unknown_disappears_and_comes_back() -> None:
    plane = Plane()
    fill_ratio = plane.metrics.gauge(catalog.BLOCK_FILL)
    fill_ratio.set(0.0, "v1")
    fill_ratio.set(None, "v2")
    assert plane.samples(catalog.BLOCK_FILL.name) == {("v1",): 0.0}
    fill_ratio.set(None, "v1")
    assert plane.samples(catalog.BLOCK_FILL.name) == {}
    fill_ratio.set(0.5, "v1")
    assert plane.samples(catalog.BLOCK_FILL.name) == {("v1",): 0.5}


def test_a_threshold_is_absent_where_reuse_is_off() -> None:
    plane = Plane()
    cells = [cell(0, Modality.AUDIO, entropy_th=None), cell(0, Modality.TEXT, entropy_th=0.28)]
    plane.cache.update("v1", cells, now=1.0)
    assert plane.samples(catalog.ENTROPY_THRESHOLD.name) == {("0", "text", "v1"): 0.28}


# ---------------------------------------------------------------- the tables at scrape time
def test_cells_show_their_values_and_totals_that_survive_a_restart() -> None:
    plane = Plane()
    for _ in range(2):
        plane.cache.update("v1", [cell(3, Modality.VIDEO)], now=1.0)
    fresh = CacheCell(
        layer=3,
        modality=Modality.VIDEO,
        entropy_th=None,
        hit_mass=0.0625,
        lookup_mass=0.25,
        entropy_sum=1.0,
        entropy_count=1,
        token_entropy_sum=2.0,
        token_entropy_count=1,
        live_bytes=1,
        evictable_bytes=0,
        host_bytes=0,
        alias_pages=0,
    )
    plane.cache.update("v1", [fresh], now=1.0)
    at = ("3", "video", "v1")
    assert plane.samples(catalog.RESIDENCY_HIT_MASS.name) == {at: 0.125 + 0.0625}
    assert plane.samples(catalog.RESIDENCY_LOOKUP_MASS.name) == {at: 0.5 + 0.25}
    assert plane.samples(catalog.ENTROPY_SUM.name) == {at: 3.5 + 1.0}
    assert plane.samples(catalog.ENTROPY_COUNT.name) == {at: 5.0}
    assert plane.samples(catalog.LIVE_BYTES.name) == {at: 1.0}
    assert plane.samples(catalog.HOST_BYTES.name) == {("video", "v1"): 0.0}


@pytest.mark.parametrize("accept", [None, OPENMETRICS])
def test_a_version_with_quotes_breaks_no_scrape(accept: str | None) -> None:
    plane = Plane()
    version = 'v"1\\2\n3'
    plane.cache.update(version, [cell(0, Modality.TEXT)], now=1.0)
    body, _ = plane.metrics.render(accept)
    parse = parse_openmetrics if accept else parse_text
    live = [f for f in parse(body.decode()) if f.name == catalog.LIVE_BYTES.name]
    assert live[0].samples[0].labels["version"] == version


def test_the_fault_ring_shows_every_fault_from_the_first_request_on() -> None:
    plane = Plane()
    plane.faults.finish("v1", Outcome.LOST, True)
    plane.faults.finish("v1", Outcome.OK, True, {Fault.LIP_DESYNC: Mark.HARD})
    assert plane.samples(catalog.FAULT_WINDOW_REQUESTS.name) == {("v1",): 2.0}
    assert plane.samples(catalog.FAULT_WINDOW_FAULTED.name) == {
        ("hard", "v1"): 2.0,
        ("soft", "v1"): 0.0,
        ("input_only", "v1"): 0.0,
    }
    by_fault = plane.samples(catalog.FAULT_WINDOW_BY_FAULT.name)
    assert len(by_fault) == len(Fault) * len(Mark)
    assert {where: count for where, count in by_fault.items() if count} == {
        ("lip_desync", "hard", "v1"): 1.0
    }


def test_the_interval_of_the_rate_is_the_tables_own() -> None:
    plane = Plane()
    for _ in range(9):
        plane.faults.finish("v1", Outcome.OK, False)
    plane.faults.finish("v1", Outcome.LOST, True)
    row = plane.faults.rows()[0]
    assert plane.samples(catalog.FAULT_WINDOW_BOUND.name) == {
        ("low", "v1"): row.rate_low,
        ("high", "v1"): row.rate_high,
    }


# ---------------------------------------------------------------- handles
def test_a_started_counter_shows_zero_and_then_counts() -> None:
    plane = Plane()
    requests = plane.metrics.counter(catalog.REQUESTS)
    requests.start("v1", Outcome.OK)
    requests.inc("v1", Outcome.LOST, by=2)
    assert plane.samples(catalog.REQUESTS.name) == {("ok", "v1"): 0.0, ("lost", "v1"): 2.0}
    assert plane.metrics.counter(catalog.REQUESTS) is requests


def test_a_followed_total_counts_on_through_a_restart() -> None:
    plane = Plane()
    steps = plane.metrics.counter(catalog.STEPS)
    for total in (5.0, 9.0, 9.0, 2.0, 3.0):  # restarted before 2
        steps.follow(total, "v1")
    assert plane.samples(catalog.STEPS.name) == {("v1",): 12.0}


def test_histogram_bounds_are_written_as_the_rules_name_them() -> None:
    plane = Plane()
    plane.metrics.histogram(catalog.FIRST_OUTPUT).observe(0.39, "v1", Milestone.FIRST_TOKEN)
    buckets = plane.samples(f"{catalog.FIRST_OUTPUT.name}_bucket")
    line = catalog.bound_label(LINES.latency.degrade_s)
    assert buckets[line, "first_token", "v1"] == 1.0
    assert {le for le, _, _ in buckets} == {
        *(catalog.bound_label(bound) for bound in catalog.latency_bounds(LINES)),
        "+Inf",
    }


def test_an_info_metric_withdraws_what_no_longer_holds() -> None:
    plane = Plane()
    resident = plane.metrics.info(catalog.RESIDENT_INFO)
    resident.set("v1", "a", Role.CANARY, "d1", "3", "full")
    resident.set("v2", "b", Role.STABLE, "d2", "1", "full")
    resident.set("v1", "a", Role.STABLE, "d1", "4", "p360_8k+int8")
    assert set(plane.samples("redline_resident_info")) == {
        ("4", "a", "stable", "p360_8k+int8", "v1", "d1"),
        ("1", "b", "stable", "full", "v2", "d2"),
    }


def test_a_forgotten_version_leaves_no_series_and_makes_room() -> None:
    plane = everything()
    plane.metrics.forget("v2")
    plane.cache.lost_sight("v2")
    plane.faults.forget("v2")
    body, _ = plane.metrics.render(None)
    assert b'version="v2"' not in body
    assert b'version="v3"' in body
    plane.metrics.counter(catalog.STEPS).follow(4.0, "v2")
    assert plane.samples(catalog.STEPS.name)["v2",] == 4.0


# ---------------------------------------------------------------- refusals
def test_a_fifth_live_version_is_refused_until_one_is_forgotten() -> None:
    plane = Plane()
    steps = plane.metrics.counter(catalog.STEPS)
    for version in VERSIONS:
        steps.inc(version)
    with pytest.raises(MetricRefused, match="forget a closed version"):
        steps.inc("v5")
    plane.metrics.forget("v1")
    steps.inc("v5")


@pytest.mark.parametrize(
    "labels",
    [("v1", "exploded"), ("v1",), ("v1", "ok", "extra"), ()],
    ids=["not in the enum", "too few", "too many", "none"],
)
def test_labels_outside_the_catalog_are_refused(labels: tuple[str, ...]) -> None:
    plane = Plane()
    with pytest.raises(MetricRefused):
        plane.metrics.counter(catalog.REQUESTS).inc(*labels)
    assert plane.samples(catalog.REQUESTS.name) == {}


def test_families_outside_the_catalog_are_refused() -> None:
    metrics = Exposition(CollectorRegistry(), LINES, catalog.CONTROL_PLANE)
    metrics.gauge(catalog.LEADER_EPOCH).set(3)
    with pytest.raises(MetricRefused, match="catalog"):
        metrics.counter(catalog.STEPS)
    with pytest.raises(MetricRefused, match="is a gauge"):
        metrics.counter(catalog.LEADER_EPOCH)


def test_what_a_table_shows_cannot_be_written_beside_it() -> None:
    for metric in FROM_TABLES:
        handle = Plane().metrics.counter if metric.kind is Kind.COUNTER else Plane().metrics.gauge
        with pytest.raises(MetricRefused, match="from its table"):
            handle(metric)


def test_a_counter_never_falls() -> None:
    with pytest.raises(ValueError, match="only grows"):
        Plane().metrics.counter(catalog.STEPS).inc("v1", by=-1.0)


def test_a_fault_carries_the_trace_it_was_found_in() -> None:
    plane = Plane()
    labels = ("v1", Fault.LIP_DESYNC, Grade.HARD, Origin.OUTPUT)
    plane.metrics.counter(catalog.FAULTS).inc(*labels, trace_id="cd" * 16)
    body = plane.metrics.render(OPENMETRICS)[0].decode()
    (family,) = parse_openmetrics(body)
    assert family.samples[0].exemplar.labels == {"trace_id": "cd" * 16}
    assert b"trace_id" not in plane.metrics.render(None)[0]


def test_text_written_as_cells_came_is_what_a_scrape_would_write() -> None:
    early, late = Plane(), Plane()
    for thresholds in ((None, 0.35), (0.28, 0.35), (0.28, 0.35)):
        for plane in (early, late):
            cells = [
                cell(layer, Modality.TEXT, entropy_th=th) for layer, th in enumerate(thresholds)
            ]
            plane.cache.update('v"%s', cells, now=1.0)
        early.metrics.prepare()
    assert early.metrics.render(None) == late.metrics.render(None)
    assert b"%s" in early.metrics.render(None)[0]


def test_modalities_add_up_over_layers_where_no_layer_is_told() -> None:
    plane = Plane()
    plane.cache.update("v1", [cell(layer, Modality.AUDIO) for layer in range(3)], now=1.0)
    assert plane.samples(catalog.EVICTABLE_BYTES.name) == {("audio", "v1"): 18.0}
    assert plane.samples(catalog.TOKEN_ENTROPY_COUNT.name) == {("audio", "v1"): 9.0}


def test_a_ring_that_was_forgotten_leaves_no_series() -> None:
    plane = Plane()
    plane.faults.finish("v1", Outcome.LOST, True)
    assert plane.samples(catalog.FAULT_WINDOW_REQUESTS.name)
    plane.faults.forget("v1")
    assert plane.samples(catalog.FAULT_WINDOW_REQUESTS.name) == {}
    assert plane.samples(catalog.FAULT_WINDOW_BOUND.name) == {}
