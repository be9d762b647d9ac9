"""Every query of every dashboard against a real Prometheus that runs the generated rules."""

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from dashboards.build import build_all
from dashboards.queries import Query, UnknownVariable, interpolate, queries
from monitors.redlines import RedLines
from tests.support.prometheus import needs_prometheus, prometheus
from tests.unit.dashboards import fixture_metrics

LINES = RedLines()
CHOICES = {"__rate_interval": "4s"}


def all_queries() -> list[tuple[str, Query]]:
    return [
        (name, query)
        for name, text in build_all(LINES).items()
        for query in queries(text, CHOICES)
        if query.language == "promql"
    ]


def ask(client: httpx.Client, query: Query) -> list[dict[str, Any]]:
    """The result, of the last ten seconds where it is a range query; raises on a bad query."""
    now = time.time()
    if query.instant:
        answer = client.get("/api/v1/query", params={"query": query.expr, "time": now})
    else:
        window = {"query": query.expr, "start": now - 10, "end": now, "step": 0.5}
        answer = client.get("/api/v1/query_range", params=window)
    assert answer.status_code == 200, f"{query.panel}: {answer.text}"
    return answer.json()["data"]["result"]


def empty(client: httpx.Client) -> list[str]:
    return [f"{name}: {q.panel}: {q.expr}" for name, q in all_queries() if not ask(client, q)]


@needs_prometheus
def test_every_query_parses_and_finds_data_where_the_whole_catalog_is_exported(
    tmp_path: Path,
) -> None:
    with fixture_metrics.served() as target, prometheus(tmp_path, target, LINES) as client:
        deadline = time.monotonic() + 30
        silent = ["not asked yet"]
        while silent and time.monotonic() < deadline:
            time.sleep(1)
            try:
                silent = empty(client)
            except httpx.TransportError:
                continue  # not listening yet
        assert silent == []


def test_there_are_queries_for_panels_annotations_and_variables() -> None:
    asked = {query.panel for _, query in all_queries()}
    assert {"Worst fault rate", "annotation Rollbacks", "variable layer"} <= asked


def test_logs_are_asked_of_loki() -> None:
    found = queries(build_all(LINES)["oncall"], CHOICES)
    assert [q.panel for q in found if q.language == "logql"] == ["Warnings and errors"]


def test_a_choice_narrows_the_queries_and_no_choice_means_all() -> None:
    oncall = build_all(LINES)["oncall"]
    chosen = {q.expr for q in queries(oncall, {"version": "omni-1"})}
    assert any('version=~"omni-1"' in expr for expr in chosen)
    assert any('version=~".*"' in q.expr for q in queries(oncall, {}))


@pytest.mark.parametrize("written", ["$version", "${version}", "${version:regex}"])
def test_a_variable_is_filled_in_however_it_is_written(written: str) -> None:
    assert interpolate(f'x{{v=~"{written}"}}', {"version": "a|b"}) == 'x{v=~"a|b"}'


def test_a_variable_without_a_value_is_an_error_that_names_it() -> None:
    with pytest.raises(UnknownVariable, match=r"\$zone"):
        interpolate('up{zone="$zone"}', {"version": "a"})
