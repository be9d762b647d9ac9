"""What a scrape shows of the tables and of the handles: what is known, and nothing else."""

import math

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from monitors import catalog
from monitors.cache_table import CacheCell
from monitors.labels import Fault, Grade, Mark, Milestone, Modality, Origin, Outcome, Role
from monitors.metric import Kind
from tests.support.exposition import FROM_TABLES, LINES, OPENMETRICS, Plane, cell


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
    plane.cache.lost_sight("v1")
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
    for total in (5.0, 9.0, 9.0):
        steps.follow(total, "v1")
    steps.follow(100.0, "v2")
    steps.restarted("v1")
    for total in (2.0, 3.0):
        steps.follow(total, "v1")
    steps.follow(101.0, "v2")
    assert plane.samples(catalog.STEPS.name) == {("v1",): 12.0, ("v2",): 101.0}


def test_a_followed_total_that_falls_by_rounding_is_not_counted_again() -> None:
    plane = Plane()
    nats = plane.metrics.counter(catalog.SHADOW_NATS)
    for total in (5.0, 9.0, 9.0 - 2.4e-7, 9.5):
        nats.follow(total, "v1")
    assert plane.samples(catalog.SHADOW_NATS.name) == {("v1",): 9.5}


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


def test_a_fault_carries_the_trace_it_was_found_in() -> None:
    plane = Plane()
    labels = ("v1", Fault.LIP_DESYNC, Grade.HARD, Origin.OUTPUT)
    plane.metrics.counter(catalog.FAULTS).inc(*labels, trace_id="cd" * 16)
    body = plane.metrics.render(OPENMETRICS)[0].decode()
    (family,) = parse_openmetrics(body)
    assert family.samples[0].exemplar.labels == {"trace_id": "cd" * 16}
    assert b"trace_id" not in plane.metrics.render(None)[0]


def test_a_threshold_without_end_is_written_as_prometheus_reads_it() -> None:
    plane = Plane()
    plane.cache.update("v1", [cell(0, Modality.TEXT, entropy_th=math.inf)], now=1.0)
    assert 'version="v1"} +Inf\n' in plane.metrics.render(None)[0].decode()
    assert plane.samples(catalog.ENTROPY_THRESHOLD.name) == {("0", "text", "v1"): math.inf}


def test_numbers_of_numpy_are_written_as_any_others() -> None:
    plane = Plane()
    plane.metrics.counter(catalog.FAULTS).inc(
        "v1", Fault.LIP_DESYNC, Grade.HARD, Origin.OUTPUT, by=np.float64(2.0), trace_id="ab" * 16
    )
    plane.metrics.counter(catalog.BUSY).follow(np.float64(0.5), "v1")
    plane.metrics.histogram(catalog.FIRST_OUTPUT).observe(
        np.float64(0.25), "v1", Milestone.FIRST_TOKEN, trace_id="ab" * 16
    )
    for accept in (None, OPENMETRICS):
        body = plane.metrics.render(accept)[0].decode()
        assert "np." not in body
        assert f'{catalog.BUSY.name}{{version="v1"}} 0.5' in body
