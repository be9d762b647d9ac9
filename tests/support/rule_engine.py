"""Prometheus' own rule engine over series that a test gives, in its own time: `promtool`."""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from tests.support.promtool import run

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: apt-get install prometheus"
)
_GOT = re.compile(r'expr: "ALERTS", time: (\S+?),\n\s+exp: .*\n\s+got: (.*)')
_SAMPLE = re.compile(r"\{([^{}]*)\} 1E\+00")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}

Labels = frozenset[tuple[str, str]]
Scrape = Mapping[str, float]  # series -> value


def scraped(body: str, wanted: re.Pattern[str]) -> dict[str, float]:
    """The samples of a scrape whose series matches."""
    lines = (line.rsplit(" ", 1) for line in body.splitlines() if line[:1] != "#")
    return {series: float(value) for series, value in lines if wanted.match(series)}


def alerts_at_each_second(
    folder: Path, rules: str, scrapes: Sequence[Scrape | None]
) -> list[set[Labels]]:
    """What `ALERTS` holds after each second, when `scrapes` came at them. None: the scrape failed.

    Asks for what cannot be, so that promtool answers with what is.
    """
    (folder / "rules.yml").write_text(rules, encoding="utf-8")
    names = sorted({series for scrape in scrapes for series in scrape or ()})
    asked = [{"expr": "ALERTS", "eval_time": f"{at}s"} for at in range(len(scrapes))]
    for each in asked:
        each["exp_samples"] = [{"labels": "cannot_be", "value": 1}]  # pyright: ignore
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1s",
        "tests": [
            {
                "interval": "1s",
                "input_series": [
                    {"series": name, "values": _values([(s or {}).get(name) for s in scrapes])}
                    for name in names
                ],
                "promql_expr_test": asked,
            }
        ],
    }
    (folder / "test.yml").write_text(yaml.dump(test, Dumper=_Dumper), encoding="utf-8")
    told = run("promtool", "test", "rules", folder / "test.yml", check=False)
    seen = [set[Labels]() for _ in scrapes]
    found = _GOT.findall(told)
    assert len(found) == len(scrapes), told[:2_000]
    for at, samples in found:
        seen[round(_seconds(at))] = {
            frozenset(_LABEL.findall(labels)) - {("__name__", "ALERTS")}
            for labels in _SAMPLE.findall(samples)
        }
    return seen


_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def _seconds(text: str) -> float:
    parts = re.findall(r"([\d.]+)(ms|h|m|s)", text)
    return sum(float(number) * _UNIT_S[unit] for number, unit in parts)


def _values(values: Sequence[float | None]) -> str:
    """In promtool's notation; a series that goes away is marked stale once, as scrapes do."""
    words, before = list[str](), None
    for value in values:
        gone = "stale" if before is not None else "_"
        words.append(gone if value is None else repr(value))
        before = value
    return " ".join(words)
