"""`/metrics` holds what the catalog allows and is known: it parses and stays bounded."""

import itertools
import re
import shutil
import subprocess
from collections.abc import Iterable

import pytest
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from monitors import catalog
from monitors.cardinality import MOST_SERIES, OPEN, MetricRefused, most_series
from monitors.exposition import Exposition
from monitors.labels import Fault, Mark, Modality, Outcome
from monitors.metric import CLOSED, Kind, Label, Metric, Unit
from tests.support.exposition import FROM_TABLES, LINES, OPENMETRICS, Plane, cell

LAYERS = 48
VERSIONS = ("v1", "v2", "v3", "v4")


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


# ---------------------------------------------------------------- refusals
def test_a_fifth_live_version_is_refused() -> None:
    plane = Plane()
    steps = plane.metrics.counter(catalog.STEPS)
    for version in VERSIONS:
        steps.inc(version)
    with pytest.raises(MetricRefused, match="5 values of version would be live"):
        steps.inc("v5")
    assert set(plane.samples(catalog.STEPS.name)) == {(version,) for version in VERSIONS}


def test_table_one_is_refused_beyond_the_limits_of_its_labels() -> None:
    plane = Plane()
    for version in (*VERSIONS, "v5"):
        plane.cache.update(version, [cell(0, Modality.TEXT)], now=1.0)
    with pytest.raises(MetricRefused, match="5 values of version"):
        plane.metrics.prepare()
    deep = Plane()
    layers = OPEN[Label.LAYER]
    deep.cache.update("v1", [cell(layer, Modality.TEXT) for layer in range(layers + 1)], now=1.0)
    with pytest.raises(MetricRefused, match="129 values of layer_id"):
        deep.metrics.prepare()


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
    metrics = Exposition(LINES, catalog.CONTROL_PLANE)
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
