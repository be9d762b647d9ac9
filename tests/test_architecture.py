"""The house rules that a newcomer cannot see: sizes, runbooks, metrics, machine paths."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from monitors import catalog

ROOT = Path(__file__).parent.parent
ROOMS = ("alerts", "dashboards", "monitors", "redline", "rollout", "runtime", "tools")
SOURCES = sorted(p for room in ROOMS for p in (ROOT / room).rglob("*.py"))
MAX_LINES = 400


def tracked_texts() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_says_on_top_what_it_is_for_and_stays_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES, "split it along a seam"
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), "say in one line what the module is for"


def test_every_alert_has_a_runbook_page() -> None:
    from alerts.compile import alerts
    from alerts.policy import make
    from monitors.redlines import RedLines

    pages = {p.name for p in (ROOT / "docs" / "runbooks").glob("*.md")}
    every = alerts(make(RedLines()))
    assert every
    assert [alert.name for alert in every if alert.runbook not in pages] == []


def test_every_metric_in_rules_and_dashboards_is_in_the_catalog() -> None:
    known = {m.name for m in catalog.ALL}
    known |= {f"{m.name}_{s}" for m in catalog.ALL for s in ("bucket", "count", "sum", "info")}
    files = [*(ROOT / "deploy" / "prometheus").glob("*rules*.yml")]
    files += (ROOT / "dashboards" / "json").glob("*.json")
    assert files
    for path in files:
        used = set(re.findall(r"(?<![:\w])redline_[a-z0-9_]+(?![:\w])", path.read_text()))
        assert used - known == set(), path.name


def test_no_code_names_a_metric_outside_the_catalog() -> None:
    offenders = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if path.name not in ("catalog.py", "recorded.py")
        and re.search(r"[\"']redline_[a-z_]+_(total|seconds|bytes|ratio)[\"'{]", path.read_text())
    ]
    assert offenders == []


def test_no_code_makes_a_metric_of_the_client_library_by_itself() -> None:
    kinds = {"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum"}
    made = [
        f"{path.relative_to(ROOT)}: {alias.name}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("prometheus_client")
        for alias in node.names
        if alias.name in kinds or alias.name.endswith("MetricFamily")
    ]
    assert made == []


def test_the_command_line_starts_without_torch() -> None:
    code = "import sys, redline.cli; sys.exit('torch' in sys.modules or 'av' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_path_of_a_machine_or_registry_host_is_in_the_project() -> None:
    pattern = re.compile(
        r"/(?:work|root|home)/\w|(?:files|deb|registry|index)\.(?:python|debian|npm)"
    )
    offenders = [
        str(path.relative_to(ROOT))
        for path in tracked_texts()
        if path.suffix in {".py", ".md", ".yml", ".yaml", ".toml", ".json", ".alloy", ""}
        and path.name != "test_architecture.py"
        and pattern.search(path.read_text(encoding="utf-8", errors="ignore"))
    ]
    assert offenders == []


def test_yaml_that_ships_is_yaml() -> None:
    for path in tracked_texts():
        if path.suffix in {".yml", ".yaml"}:
            assert list(yaml.safe_load_all(path.read_text(encoding="utf-8"))), path
