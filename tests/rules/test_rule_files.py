"""The generated rules and routes against Prometheus' and Alertmanager's own tools."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from alerts import burn
from alerts.compile import alerts
from alerts.generate import BEGIN, END, write_all
from alerts.names import AlertName
from alerts.policy import make
from alerts.promql import parse_duration
from alerts.records import records
from alerts.routing import CONTROL_PLANE, ON_CALL, render_alertmanager
from alerts.rules import prometheus_flags, render_prometheus, render_rules, retention
from monitors import catalog, recorded
from monitors.labels import Severity
from monitors.metric import Kind, Metric
from monitors.redlines import AlertLines, CacheLines, LatencyLines, RedLines, SchedulerLines
from tests.support.promtool import run

ROOT = Path(__file__).parents[2]
ARTICLE = make(RedLines())
ALERTS = alerts(ARTICLE)
OTHER_LINES = RedLines(
    cache=CacheLines(hit_rate_floor=0.75, gpu_mem_gb=0.0144, hold_s=2.5),
    latency=LatencyLines(degrade_s=0.35, min_count=5),
)


# ---------------------------------------------------------------- promtool, amtool
@pytest.mark.parametrize("lines", [RedLines(), OTHER_LINES], ids=["article", "other"])
def test_promtool_accepts_rules_and_configuration(tmp_path: Path, lines: RedLines):
    rules, config = tmp_path / "rules.yml", tmp_path / "prometheus.yml"
    rules.write_text(render_rules(make(lines)))
    config.write_text(
        render_prometheus(
            runtime="127.0.0.1:1",
            control="127.0.0.1:2",
            alertmanager="127.0.0.1:3",
            rule_file=str(rules),
        )
    )
    found = len(records(lines)) + len(burn.records(lines)) + len(alerts(make(lines)))
    assert f"{found} rules found" in run("promtool", "check", "config", config)


@pytest.mark.parametrize("oncall_url", [None, "https://127.0.0.1:9/hook"])
def test_amtool_accepts_the_routes(tmp_path: Path, oncall_url: str | None):
    config = tmp_path / "alertmanager.yml"
    config.write_text(
        render_alertmanager(
            ARTICLE,
            webhook_url="http://127.0.0.1:1/alerts",
            credentials_file="/nowhere/token",
            oncall_url=oncall_url,
        )
    )
    assert "2 receivers" in run("amtool", "check-config", config)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda a: f"{a.name}-{a.severity}-{a.table}")
def test_each_alert_reaches_its_receivers(alert):
    receivers = {
        Severity.PAGE: f"{CONTROL_PLANE},{ON_CALL}",
        Severity.TICKET: f"{CONTROL_PLANE},{ON_CALL}",
        Severity.ACTION: CONTROL_PLANE,
        Severity.HEARTBEAT: CONTROL_PLANE,
    }
    routed(
        receivers[alert.severity],
        f"alertname={alert.name}",
        f"severity={alert.severity}",
        f"action={alert.action}",
    )


def test_an_alert_nobody_expected_reaches_people():
    routed(ON_CALL, "alertname=SomebodyElses", "severity=whatever")


def routed(receivers: str, *labels: str) -> None:
    config = ROOT / "deploy/alertmanager/alertmanager.yml"
    verify = f"--verify.receivers={receivers}"
    run("amtool", "config", "routes", "test", f"--config.file={config}", verify, *labels)


# ---------------------------------------------------------------- what is generated
def test_committed_files_are_what_the_red_lines_generate(tmp_path: Path):
    shutil.copytree(ROOT / "docs/runbooks", tmp_path / "docs/runbooks")
    for path in write_all(tmp_path, ARTICLE):
        committed = ROOT / path.relative_to(tmp_path)
        assert committed.read_text() == path.read_text(), f"{committed}: run `make generate`"


def test_the_lines_reach_the_rules():
    rules = render_rules(make(OTHER_LINES))
    assert "< 0.75" in rules
    assert "> 0.0144 * 1e+09" in rules
    assert "for: 2500ms" in rules
    assert 'le="0.35"' in rules
    assert ">= 5" in rules


def test_the_lines_reach_what_pages_say_of_an_action(tmp_path: Path):
    shutil.copytree(ROOT / "docs/runbooks", tmp_path / "docs/runbooks")
    lines = RedLines(scheduler=SchedulerLines(shed_utilisation=0.92))
    write_all(tmp_path, make(lines))
    page = tmp_path / f"docs/runbooks/{AlertName.FIRST_PACKET_SHED.page}"
    assert "while its engine is past 92 % busy" in page.read_text()


def test_rules_read_only_series_that_exist():
    exposed = {name for metric in catalog.ALL for name in series_of(metric)}
    derived = {series.name for series in recorded.RECORDED}
    named = {
        name
        for group in yaml.safe_load(render_rules(ARTICLE))["groups"]
        for rule in group["rules"]
        for name in re.findall(r"[a-z_]+:redline_[a-z_]+:\w+|(?<![:\w])redline_\w+", rule["expr"])
    }
    derived |= {record.series.name for record in burn.records(RedLines())}
    assert named - exposed - derived == set()
    assert len(named) >= 20


def series_of(metric: Metric) -> list[str]:
    suffixes = {Kind.HISTOGRAM: ["_bucket", "_count", "_sum"], Kind.INFO: ["_info"]}
    return [metric.name + suffix for suffix in suffixes.get(metric.kind, [""])]


def test_every_recorded_series_of_the_catalog_is_recorded_once():
    assert [record.series for record in records(RedLines())] == list(recorded.RECORDED)


def test_what_panels_show_of_error_budgets_is_recorded_and_pages_where_they_say():
    named = {record.series.name for record in burn.records(RedLines())}
    assert {series.name for series in recorded.BUDGETS} <= named
    (pages,) = (pair for pair in burn.PAIRS if pair.factor == recorded.BURN_PAGES)
    assert (pages.short, pages.long) == recorded.BUDGET_WINDOWS[:2]
    assert pages.severity is Severity.PAGE


def test_a_dead_prometheus_is_missed_before_the_evaluator_must_take_over():
    lines = AlertLines()
    (flag,) = prometheus_flags(lines)
    resend_s = int(flag.removeprefix("--rules.alert.resend-delay=").removesuffix("ms")) / 1000
    assert 4 * resend_s + lines.heartbeat_s < lines.heartbeat_silence_s


def test_prometheus_remembers_what_the_longest_window_looks_at():
    kept_s = int(retention().removeprefix("--storage.tsdb.retention.time=").removesuffix("s"))
    windows = re.findall(r"\[(\d+[smhd])\]", render_rules(ARTICLE))
    assert "3d" in windows
    assert kept_s > max(map(parse_duration, windows))


# ---------------------------------------------------------------- runbooks
@pytest.mark.parametrize("name", AlertName)
def test_each_alert_has_a_runbook_that_says_all_of_it(name: AlertName):
    page = (ROOT / f"docs/runbooks/{name.page}").read_text()
    assert page.startswith(f"# {name}\n")
    assert re.findall(r"^## (.+)$", page, re.M) == [
        "Redline has already",
        "Check",
        "By hand",
        "Over when",
    ]


def test_runbooks_of_alerts_that_are_gone_are_gone():
    pages = {path.name for path in (ROOT / "docs/runbooks").glob("redline-*.md")}
    assert pages == {name.page for name in AlertName}


def test_links_between_runbooks_lead_somewhere():
    folder = ROOT / "docs/runbooks"
    links = [
        folder / link
        for page in folder.glob("*.md")
        for link in re.findall(r"\]\(([^)#:]+\.md)\)", page.read_text())
    ]
    assert links
    assert [link for link in links if not link.exists()] == []


def test_a_runbook_without_a_place_for_its_head_is_an_error(tmp_path: Path):
    shutil.copytree(ROOT / "docs/runbooks", tmp_path / "docs/runbooks")
    page = tmp_path / f"docs/runbooks/{AlertName.WATCHDOG.page}"
    page.write_text(page.read_text().replace(END, ""))
    with pytest.raises(ValueError, match="no place for what is generated"):
        write_all(tmp_path, ARTICLE)
    assert BEGIN in page.read_text()
