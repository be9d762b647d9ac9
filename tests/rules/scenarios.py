"""The scenarios of promtool: those written as YAML here, and how they are run at once."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
Rule = Mapping[str, Any]  # one entry of a group's `rules:`


@dataclass(frozen=True)
class Run:
    """Scenarios on the rules of one group, or on those of them that `chosen` leaves."""

    scenarios: Sequence[Scenario]
    every: str = "1s"
    group: str = "redline"
    chosen: Callable[[Sequence[Rule]], Sequence[Rule]] = list


def written() -> list[Run]:
    """Every scenario of the YAML files."""
    files = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in WRITTEN]
    return [Run(file["tests"], file["evaluation_interval"]) for file in files]


def promtool(folder: Path, runs: Sequence[Run], policy: Policy = FEW) -> None:
    """Run them all, in as many processes as there are cores. Fails with what promtool says of
    those that do."""
    groups = yaml.safe_load(render_rules(policy))["groups"]
    rules = {group["name"]: group["rules"] for group in groups}
    files = [_file(folder / f"run-{n}", run, rules) for n, run in enumerate(runs)]
    cores = min(len(files), os.cpu_count() or 1)
    shares = [files[first::cores] for first in range(cores)]
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(lambda some: run("promtool", "test", "rules", *some), shares))


def _file(folder: Path, of: Run, rules: Mapping[str, list[Rule]]) -> Path:
    folder.mkdir()
    groups = [{"name": of.group, "rules": [*of.chosen(rules[of.group])]}]
    (folder / "rules.yml").write_text(_dump({"groups": groups}), encoding="utf-8")
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": of.every, "tests": [*of.scenarios]}
    path = folder / "scenarios.yml"
    path.write_text(_dump(tests), encoding="utf-8")
    return path


def needed_by(alert: str, rules: Sequence[Rule]) -> list[Rule]:
    """The alert's rule and those that it reads: a scenario then costs half."""
    return needed([rule for rule in rules if rule.get("alert") == alert], rules)


def needed(wanted: Sequence[Rule], rules: Sequence[Rule]) -> list[Rule]:
    """Those that are wanted and those that they read, in order."""
    kept: list[Rule] = []
    for rule in reversed(rules):
        read = any(rule.get("record", "ALERTS") in other["expr"] for other in kept)
        if rule in wanted or read:
            kept.insert(0, rule)
    return kept


def _dump(document: object) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000)


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # pyright: ignore
    """Each scenario stands for itself: no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True
