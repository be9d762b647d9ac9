"""The generated dashboards: fresh, clean, and drawn at the red lines."""

import json
from pathlib import Path
from typing import Any

import pytest

from dashboards import build, lint, view
from monitors.contract import KvRung, MediaRung
from monitors.redlines import CacheLines, LatencyLines, RedLines

JSON = Path(__file__).parents[3] / "dashboards" / "json"
LINES = RedLines()
NAMES = list(build.BUILDERS)


def panels(name: str, lines: RedLines = LINES) -> dict[str, dict[str, Any]]:
    found = json.loads(build.build_all(lines)[name])["panels"]
    return {panel["title"]: panel for panel in found}


def steps(config: dict[str, Any]) -> dict[float | None, str]:
    return {step["value"]: step["color"] for step in config["steps"]}


def panel_limits(panel: dict[str, Any]) -> dict[float | None, str]:
    return steps(panel["fieldConfig"]["defaults"]["thresholds"])


def column_limits(panel: dict[str, Any], column: str) -> dict[float | None, str]:
    [override] = [o for o in panel["fieldConfig"]["overrides"] if o["matcher"]["options"] == column]
    return steps({p["id"]: p["value"] for p in override["properties"]}["thresholds"])


def test_the_committed_files_are_what_is_built_now() -> None:
    committed = {path.stem: path.read_text(encoding="utf-8") for path in JSON.glob("*.json")}
    assert committed == build.build_all(LINES), "run: make generate"


def test_writing_puts_one_file_for_each_dashboard(tmp_path: Path) -> None:
    written = build.write_all(tmp_path, LINES)
    assert [path.stem for path in written] == NAMES
    assert {p.read_text(encoding="utf-8") for p in written} == set(build.build_all(LINES).values())


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_has_no_lint(name: str) -> None:
    assert lint.problems(build.build_all(LINES)[name], LINES) == []


def test_limits_follow_an_overridden_red_line() -> None:
    other = RedLines(
        cache=CacheLines(hit_rate_floor=0.8, gpu_mem_gb=16),
        latency=LatencyLines(first_packet_s=0.3, degrade_s=0.5),
    )
    oncall = panels("oncall", other)
    assert set(panel_limits(oncall["Worst cache hit rate"])) == {None, 0.8}
    assert set(panel_limits(oncall["Most live KV memory"])) == {None, 16e9}
    assert set(panel_limits(oncall["p99 of each first output"])) == {None, 0.3, 0.5}
    assert lint.problems(build.build_all(other)["oncall"], other) == []
    assert lint.problems(build.build_all(other)["oncall"], LINES) != []


def test_each_figure_turns_red_at_its_red_line() -> None:
    oncall = panels("oncall")
    cache, latency = LINES.cache, LINES.latency
    assert panel_limits(oncall["Worst cache hit rate"]) == {
        None: "red", cache.hit_rate_floor: "green",
    }  # fmt: skip
    for title, line in {
        "Most live KV memory": cache.gpu_mem_gb * 1e9,
        "First packets over 250 ms": latency.first_packet_exceedance,
        "First outputs over 400 ms": latency.degrade_exceedance,
        "Worst fault rate": LINES.faults.rate,
    }.items():
        assert panel_limits(oncall[title]) == {None: "green", line: "red"}, title


def test_further_limits_show_in_amber_before_the_line_and_not_past_it() -> None:
    others = {"cache.hit_rate_floor": (0.95, 0.5), "faults.rate": (0.002, 0.1)}
    found = json.loads(build.build_all(LINES, others)["oncall"])["panels"]
    shown = {panel["title"]: panel for panel in found}
    hits, faults = shown["Worst cache hit rate"], shown["Worst fault rate"]
    assert panel_limits(hits) == {None: "red", 0.9: "orange", 0.95: "green"}
    assert panel_limits(faults) == {None: "green", 0.002: "orange", 0.005: "red"}


def test_the_three_tables_have_the_columns_of_the_article_and_their_lines() -> None:
    oncall = panels("oncall")
    table = oncall["Table 1: cache"]
    [arranged] = [t["options"] for t in table["transformations"] if t["id"] == "organize"]
    order = sorted(arranged["indexByName"], key=arranged["indexByName"].__getitem__)
    assert [arranged["renameByName"][field] for field in order] == [
        "layer_id", "modal", "version", "entropy_th", "hit_rate", "gpu_mem_gb",
    ]  # fmt: skip
    assert column_limits(table, "hit_rate") == {None: "red", 0.90: "orange", 0.92: "green"}
    latency = oncall["Table 2: latency of first outputs"]
    for quantile in ("p50", "p95", "p99"):
        assert column_limits(latency, quantile) == {None: "green", 0.25: "orange", 0.4: "red"}
    assert column_limits(oncall["Table 3: faults"], "rate") == {None: "green", 0.005: "red"}


def test_no_value_is_shown_as_unknown_and_never_in_green() -> None:
    for name in NAMES:
        for title, panel in panels(name).items():
            if panel["type"] == "row":
                continue
            defaults = panel["fieldConfig"]["defaults"]
            special = [m["options"] for m in defaults["mappings"] if m["type"] == "special"]
            assert [s["match"] for s in special] == ["null+nan"], title
            assert special[0]["result"]["text"] == "unknown"
            assert special[0]["result"]["color"] not in {"green", "orange", "red"}


def test_the_first_row_ignores_what_is_chosen_below_it() -> None:
    dashboard = view.read(build.build_all(LINES)["oncall"])
    rows = [panel for panel in dashboard.panels if panel.is_row]
    first = [p for p in dashboard.panels if p.grid_pos.y < rows[1].grid_pos.y and not p.is_row]
    assert len(first) == 8
    assert [t.expr for p in first for t in p.targets if "$" in t.expr] == []


def test_each_part_of_the_ladder_names_its_own_rungs() -> None:
    ladder = panels("oncall")["Ladder level"]
    shown = {
        o["matcher"]["options"]: o["properties"][0]["value"][0]["options"]
        for o in ladder["fieldConfig"]["overrides"]
    }
    # Grafana reads a pattern only between slashes; the legend is `{{part}} {{version}}`.
    assert len(shown["/^media /"]) == len(MediaRung)
    assert shown["/^kv /"][str(int(KvRung.INT8))]["text"] == "int8"
    assert ladder["targets"][0]["legendFormat"] == "{{part}} {{version}}"


def test_latency_over_time_carries_exemplars_because_it_reads_buckets() -> None:
    [target] = panels("oncall")["p99 of each first output"]["targets"]
    assert target["exemplar"] is True
    assert "_bucket" in target["expr"]
