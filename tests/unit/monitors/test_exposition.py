"""`/metrics` holds what the catalog allows and is known: it parses and stays bounded."""

import itertools
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
from monitors.catalog import CLOSED, Kind, Label, Metric
from monitors.exposition import OPEN, Exposition, MetricRefused, most_series
from monitors.fault_table import FaultTable
from monitors.labels import Fault, Milestone, Modality, Outcome, Role
from monitors.redlines import RedLines

LINES = RedLines()
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
LAYERS = 48
VERSIONS = ("v1", "v2", "v3", "v4")
FROM_TABLES = frozenset(
    metric
    for metric in catalog.DATA_PLANE
    if Label.LAYER in metric.labels or metric.name.startswith("redline_fault_window")
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
        plane.faults.finish(version, Outcome.OK, True, frozenset({Fault.LIP_DESYNC}))
    for metric in catalog.ALL:
        if metric not in FROM_TABLES:
            fill(plane.metrics, metric)
    return plane


def fill(metrics: Exposition, metric: Metric) -> None:
    values = [CLOSED.get(label, VERSIONS) for label in metric.labels]
    for labels in itertools.product(*values):
        match metric.kind:
            case Kind.COUNTER:
                metrics.counter(metric).inc(*labels)
            case Kind.GAUGE:
                metrics.gauge(metric).set(0.5, *labels)
            case Kind.HISTOGRAM:
                metrics.histogram(metric).observe(0.3, *labels, trace_id="ab" * 16)
            case Kind.INFO:
                metrics.info(metric).set(*labels)


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
    assert sum(limits.values()) < 9_100


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
    assert plane.samples(catalog.HOST_BYTES.name) == {at: 0.0}


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
    plane.faults.finish("v1", Outcome.OK, True, frozenset({Fault.LIP_DESYNC}))
    assert plane.samples(catalog.FAULT_WINDOW_REQUESTS.name) == {("v1",): 2.0}
    assert plane.samples(catalog.FAULT_WINDOW_FAULTED.name) == {("v1",): 2.0}
    assert plane.samples(catalog.FAULT_WINDOW_BY_FAULT.name) == {
        ("lip_desync", "v1"): 1.0,
        ("speech_truncated", "v1"): 0.0,
        ("video_corrupt", "v1"): 0.0,
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
    resident.set("v1", "a", Role.CANARY, "d1")
    resident.set("v2", "b", Role.STABLE, "d2")
    resident.set("v1", "a", Role.STABLE, "d1")
    assert set(plane.samples("redline_resident_info")) == {
        ("a", "stable", "v1", "d1"),
        ("b", "stable", "v2", "d2"),
    }


def test_no_created_series_although_the_client_library_would_write_them() -> None:
    plane = Plane()
    plane.metrics.counter(catalog.STEPS).inc("v1")
    plane.metrics.histogram(catalog.FIRST_OUTPUT).observe(0.1, "v1", Milestone.FIRST_TOKEN)
    raw = [sample.name for family in plane.registry.collect() for sample in family.samples]
    assert any(name.endswith("_created") for name in raw)
    assert b"_created" not in plane.metrics.render(None)[0]
    assert b"_created" not in plane.metrics.render(OPENMETRICS)[0]


def test_a_forgotten_version_leaves_no_series_and_makes_room() -> None:
    plane = everything()
    plane.metrics.forget("v2")
    plane.cache.forget("v2")
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
