"""The lint finds what it is there to find: each rule against a dashboard broken on purpose."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from dashboards import build, lint
from monitors import catalog
from monitors.redlines import RedLines

LINES = RedLines()
Break = Callable[[dict[str, Any]], None]


def figure(dashboard: dict[str, Any]) -> dict[str, Any]:
    return next(p for p in dashboard["panels"] if p["type"] == "stat")


def complaints(break_it: Break) -> list[str]:
    dashboard = json.loads(build.build_all(LINES)["oncall"])
    break_it(dashboard)
    return lint.problems(json.dumps(dashboard), LINES)


def same_id(dashboard: dict[str, Any]) -> None:
    figure(dashboard)["id"] = 1


def no_id(dashboard: dict[str, Any]) -> None:
    figure(dashboard)["id"] = 0


def on_top_of_the_next(dashboard: dict[str, Any]) -> None:
    figure(dashboard)["gridPos"]["w"] += 1


def too_wide(dashboard: dict[str, Any]) -> None:
    dashboard["panels"][-1]["gridPos"]["x"] = 1


def no_description(dashboard: dict[str, Any]) -> None:
    figure(dashboard)["description"] = ""


def no_unit(dashboard: dict[str, Any]) -> None:
    del figure(dashboard)["fieldConfig"]["defaults"]["unit"]


def no_query(dashboard: dict[str, Any]) -> None:
    figure(dashboard)["targets"] = []


def fixed_source(dashboard: dict[str, Any]) -> None:
    figure(dashboard)["datasource"]["uid"] = "prometheus"


def undeclared_variable(dashboard: dict[str, Any]) -> None:
    figure(dashboard)["targets"][0]["expr"] = 'up{zone="$zone"}'


def unused_variable(dashboard: dict[str, Any]) -> None:
    extra = {"type": "custom", "name": "zone", "query": "north,south"}
    dashboard["templating"]["list"].append(extra)


def misspelt_metric(dashboard: dict[str, Any]) -> None:
    figure(dashboard)["targets"][0]["expr"] = "max(redline_kv_live_byte)"


def limit_of_its_own(dashboard: dict[str, Any]) -> None:
    figure(dashboard)["fieldConfig"]["defaults"]["thresholds"]["steps"][1]["value"] = 0.89


def limit_of_another_unit(dashboard: dict[str, Any]) -> None:
    figure(dashboard)["fieldConfig"]["defaults"]["unit"] = "s"


def editable(dashboard: dict[str, Any]) -> None:
    dashboard["editable"] = True


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (same_id, "id 1 is used 2 times"),
        (no_id, "ids start at 1"),
        (on_top_of_the_next, "overlap"),
        (too_wide, "past column 24"),
        (no_description, "has no description"),
        (no_unit, "has no unit"),
        (no_query, "has no query"),
        (fixed_source, "tied to a data source"),
        (undeclared_variable, "$zone is used and not declared"),
        (unused_variable, "$zone is declared and not used"),
        (misspelt_metric, "redline_kv_live_byte, which nothing exports"),
        (limit_of_its_own, "limit of 0.89 percentunit"),
        (limit_of_another_unit, "limit of 0.9 s"),
        (editable, "can be edited"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_lint_finds(break_it: Break, words: str) -> None:
    assert any(words in complaint for complaint in complaints(break_it)), words


@pytest.mark.parametrize(
    ("expr", "series"),
    [
        ("up", {"up"}),
        ('sum by (version) (rate(a_total{x="b{c}"}[5m]))', {"a_total"}),
        ("histogram_quantile(0.99, sum by (le) (rate(a_bucket[$__rate_interval])))", {"a_bucket"}),
        ("max by (v) (a) * on (v) group_left () max by (v) (b_info)", {"a", "b_info"}),
        ("version:a:ratio > bool 0.5 and on (version) b unless c offset 5m",
         {"version:a:ratio", "b", "c"}),
        ("vector(1)", set()),
    ],
)  # fmt: skip
def test_series_names_are_found_in_promql(expr: str, series: set[str]) -> None:
    assert lint.series_in(expr) == series


def test_a_histogram_and_an_info_have_the_names_that_a_scrape_shows() -> None:
    assert lint.exposed_names(catalog.RESIDENT_INFO) == ("redline_resident_info",)
    assert lint.exposed_names(catalog.FIRST_OUTPUT)[0] == "redline_first_output_seconds_bucket"
    assert lint.exposed_names(catalog.BUSY) == ("redline_engine_busy_seconds_total",)
