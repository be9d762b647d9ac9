"""The scenarios of promtool: those written as YAML here, and how they are run at once."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from alerts.policy import Policy, make
from alerts.rules import render_rules
from monitors.redlines import FaultLines, LatencyLines, RedLines
from tests.support.promtool import run

# Low minimum counts, so that a scenario stays readable.
FEW = make(RedLines(latency=LatencyLines(min_count=20), faults=FaultLines(min_count=20)))
WRITTEN = sorted(Path(__file__).parent.glob("*.yml"))
Scenario = Mapping[str, Any]  # one entry of promtool's `tests:`


def written() -> list[Scenario]:
    """Every scenario of the YAML files."""
    files = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in WRITTEN]
    return [scenario for file in files for scenario in file["tests"]]


def promtool(
    folder: Path, scenarios: Sequence[Scenario], policy: Policy = FEW, evaluated: str = "1s"
) -> None:
    """Run them all in one process. Fails with what promtool says of those that do."""
    rules, tests = folder / "rules.yml", folder / "scenarios.yml"
    rules.write_text(render_rules(policy), encoding="utf-8")
    file = {"rule_files": [rules.name], "evaluation_interval": evaluated, "tests": [*scenarios]}
    tests.write_text(yaml.safe_dump(file, sort_keys=False, width=1000), encoding="utf-8")
    run("promtool", "test", "rules", tests)
