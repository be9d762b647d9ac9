"""The command line's own words: help, durations, sentences for mistakes."""

import shutil
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from redline.cli import app
from redline.control.api import ProposalAnswer
from redline.operate import parse_duration
from redline.settings import Stack
from tests.support.http_server import Answer, recording_server
from tests.support.ports import free_ports
from tests.unit.redline.samples import PLAN

run = CliRunner().invoke
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), ("30", 30.0)]
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "ten", "10 weeks", "-5s"])
def test_other_durations_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write 90s, 10m or 1h"):
        parse_duration(text)


def test_help_names_every_command() -> None:
    shown = run(app, ["--help"]).output
    for command in (
        "up",
        "send",
        "tables",
        "status",
        "drill",
        "inject",
        "freeze",
        "dry-run",
        "rollout",
        "generate",
        "maintenance",
        "eval",
        "calibrate",
    ):
        assert command in shown


def test_a_missing_clip_is_named(tmp_path: Path) -> None:
    result = run(app, ["send", str(tmp_path / "no.mp4"), "--state-dir", str(tmp_path)])
    assert result.exit_code == 2
    assert "no such file" in result.output


def test_without_a_stack_a_command_says_what_to_do(tmp_path: Path) -> None:
    result = run(app, ["rollout", "status", "--state-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "redline up" in result.output


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--runtime-port", "70000"], "65535"),
        (["--control-port", "0"], "--control-port"),
        (["--pool-mb", "0"], "pool_mb"),
        (["--model-a", "here", "--model-b", "here"], "names and versions must differ"),
    ],
)
def test_what_up_cannot_use_is_a_sentence_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], says: str
) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    models = [] if "--model-a" in flags else ["--model-a", "here", "--model-b", "there"]
    ports = zip(("runtime", "control", "prometheus", "alertmanager"), free_ports(4), strict=True)
    free = [word for name, port in ports for word in (f"--{name}-port", str(port))]
    monkeypatch.setattr("signal.signal", lambda *_: None)
    result = run(app, ["up", "--state-dir", "state", *free, *models, *flags])
    assert result.exit_code == 2, result.output
    assert says in result.output


def test_a_wrong_key_in_redline_yaml_is_named(tmp_path: Path) -> None:
    lines = tmp_path / "redline.yaml"
    lines.write_text("cache: {hit_rate_flor: 0.8}")
    result = run(app, ["up", "--lines", str(lines), "--state-dir", str(tmp_path)])
    assert result.exit_code == 2
    assert "cache.hit_rate_flor" in result.output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rules: {RedlineFaultRate: {enabled: false}}", "a rollback cannot be switched off"),
        ("rules: {RedlineLatencyDegrade: {when: [p99_s > 0.4]}}", "compare over_share"),
        ("maintenance: [{days: [sunday]}]", "maintenance.0.from"),
    ],
)
def test_a_policy_that_cannot_be_used_stops_up_and_generate(
    tmp_path: Path, text: str, says: str
) -> None:
    lines = tmp_path / "redline.yaml"
    lines.write_text(text)
    for command in (["up", "--state-dir", str(tmp_path)], ["generate", "--root", str(tmp_path)]):
        result = run(app, [*command, "--lines", str(lines)])
        assert result.exit_code == 2
        assert says in result.output
        assert str(lines) in result.output


def test_generate_writes_a_policy_of_ones_own_below_any_root(tmp_path: Path) -> None:
    for folder in ("docs/runbooks", "dashboards/json"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    lines = tmp_path / "redline.yaml"
    lines.write_text(
        "rules: {RedlineCacheBelowFloor: {when: [hit_rate < 0.7, gpu_mem_gb > 25], for: 45s}}"
    )
    result = run(app, ["generate", "--root", str(tmp_path), "--lines", str(lines)])
    assert result.exit_code == 0, result.output
    rules = (tmp_path / "deploy/prometheus/rules.yml").read_text()
    assert "version:redline_kv_residency:ratio < 0.7\n" in rules
    head = (tmp_path / "docs/runbooks/redline-cache-below-floor.md").read_text()
    assert "| held for | 45s |" in head
    assert '"value": 0.7' in (tmp_path / "dashboards/json/oncall.json").read_text()


def test_a_rule_without_its_page_is_named_by_generate(tmp_path: Path) -> None:
    for folder in ("docs/runbooks", "dashboards/json"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    lines = tmp_path / "redline.yaml"
    lines.write_text(
        "rules: {Own: {table: cache, when: [hit_rate < 0.5], for: 0s, severity: page, "
        "action: none, runbook: own.md, summary: own}}"
    )
    result = run(app, ["generate", "--root", str(tmp_path), "--lines", str(lines)])
    assert result.exit_code == 2
    assert "own.md: there is no such page" in result.output


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--for", "soon"], "--for: 'soon' is not a duration"),
        (["--for", "0s"], "--for: give a time above 0"),
        (["--for", "2h"], "--reason: say why"),
        ([], "this stack has no Alertmanager"),
        (["--end"], "this stack has no Alertmanager"),
    ],
)
def test_a_maintenance_that_cannot_be_is_a_sentence(
    tmp_path: Path, flags: list[str], says: str
) -> None:
    url = "http://127.0.0.1:9"
    Stack(runtime_url=url, control_url=url, token="t").save(tmp_path)
    result = run(app, ["maintenance", "--state-dir", str(tmp_path), *flags])
    assert result.exit_code != 0
    assert says in result.output


def test_a_start_that_nobody_confirms_or_that_is_refused_starts_nothing(tmp_path: Path) -> None:
    with recording_server() as server:
        plan = ProposalAnswer(plan=PLAN, detectable=None)
        server.answers["/api/rollout/propose"] = Answer(msgspec.json.encode(plan))
        stack = Stack(runtime_url=server.url, control_url=server.url, token="t")
        stack.save(tmp_path)
        asked = ["rollout", "start", "--model", str(tmp_path / "m"), "--state-dir", str(tmp_path)]
        result = run(app, asked, input="")
        assert (result.exit_code, "not started" in result.output) == (1, True)
        for status, code in ((422, 2), (409, 1), (502, 1), (503, 1)):
            server.answers["/api/rollout/start"] = Answer(b'{"error": "no, for this"}', status)
            refused = run(app, [*asked, "--yes"])
            assert (refused.exit_code, "no, for this" in refused.output) == (code, True)
        assert msgspec.json.decode(server.seen[-1].body)["model"] == str(tmp_path / "m")
