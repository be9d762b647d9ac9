"""The three tables travel as one JSON message, and unknown stays unknown on the way."""

import msgspec
import pytest

from monitors import tables
from monitors.cache_table import CacheTable
from monitors.fault_table import FaultTable
from monitors.labels import Milestone, Outcome
from monitors.latency_table import LatencyTable
from monitors.redlines import CacheLines, FaultLines, LatencyLines, RedLines
from tests.unit.monitors.test_cache_table import cell


def some_tables(own: RedLines | None = None) -> tables.Tables:
    lines = own or RedLines()
    cache, latency, faults = CacheTable(lines), LatencyTable(lines), FaultTable(lines)
    cache.update("v1", [cell(0, 0)], 0.0)
    latency.overdue("v1", Milestone.FIRST_TOKEN)
    faults.finish("v1", Outcome.OK, faulted=False)
    return tables.snapshot(cache, latency, faults, lines, now=1.0, wall=1_700_000_000.0)


def test_the_tables_survive_json() -> None:
    written = some_tables()
    assert tables.from_json(written.to_json()) == written


def test_the_tables_tell_by_which_lines_they_are_judged() -> None:
    own = RedLines(
        cache=CacheLines(hit_rate_floor=0.5),
        latency=LatencyLines(
            first_packet_s=0.3, first_packet_exceedance=0.1, degrade_s=2.0, degrade_exceedance=0.2
        ),
        faults=FaultLines(rate=0.25),
    )
    assert msgspec.json.decode(some_tables(own).to_json())["lines"] == {
        "hit_rate_floor": 0.5,
        "first_packet_s": 0.3,
        "first_packet_exceedance": 0.1,
        "degrade_s": 2.0,
        "degrade_exceedance": 0.2,
        "fault_rate": 0.25,
    }


def test_an_unknown_value_is_null_and_not_zero() -> None:
    body = msgspec.json.decode(some_tables().to_json())
    assert body["cache"][0]["hit_rate"] is None
    assert body["latency"][0]["p99_s"] is None
    assert body["faults"][0]["rate"] == 0.0  # one request, no fault: known


def test_a_message_of_another_shape_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        tables.from_json(b'{"wall": 1.0, "cash": []}')
