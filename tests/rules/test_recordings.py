"""Every rule, and each part of it, against what a real runtime exposes: none is dead."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.compile import alerts
from alerts.machinery import CONTROL_JOB, RUNTIME_JOB
from alerts.policy import make
from alerts.rules import render_rules
from monitors.redlines import RedLines
from tests.support.record_exposition import APART_S
from tests.support.recordings import FIXTURES, dead, load, operands, selectors

REDLINE = load(
    *(
        [FIXTURES / "redline" / f"{plane}_{number}.txt" for plane in ("runtime", "control")]
        for number in (0, 1)
    )
)
UP: dict[str, list[float | None]] = {
    f'up{{job="{job}",instance="i"}}': [1.0, 1.0] for job in (RUNTIME_JOB, CONTROL_JOB)
}  # Prometheus' own, as it is while both planes answer
RULES: dict[str, Any] = yaml.safe_load(render_rules(make(RedLines())))
EVERY = [rule for group in RULES["groups"] for rule in group["rules"]]
REMOTE = {
    "vllm": load([FIXTURES / "vllm_0.32" / "metrics_2_end.txt"]),
    "vllm_omni": load([FIXTURES / "vllm_omni_0.30" / "metrics_2_end.txt"]),
}
_REMOTE_NAME = re.compile(r"\bvllm(?:_omni)?:\w+")


def asked() -> list[str]:
    """Recorded series, all selectors, and what alerts compare; not what Prometheus makes."""
    found = [rule["record"] for rule in EVERY if "record" in rule]
    found += [selector for rule in EVERY for selector in selectors(rule["expr"])]
    found += [part for alert in alerts(make(RedLines())) for part in operands(alert.expr)]
    now = (re.sub(r" offset \w+", "", expr) for expr in found)
    return [expr for expr in dict.fromkeys(now) if "ALERTS" not in expr]


def test_every_rule_and_each_part_of_it_finds_series_in_a_real_runtime(tmp_path: Path):
    exprs = asked()
    assert len(exprs) > 70
    assert dead(tmp_path, {**REDLINE, **UP}, RULES, exprs, int(APART_S)) == []


def test_a_dead_part_would_be_found(tmp_path: Path):
    """The name without `_total` is the trap that others have shipped."""
    alive = 'redline_requests_total{outcome="ok"}'
    gone = ["redline_requests", 'redline_requests_total{outcome="fine"}']
    assert dead(tmp_path, REDLINE, RULES, [gone[0], alive, gone[1]], int(APART_S)) == gone


@pytest.mark.parametrize(
    ("expr", "parts"),
    [
        ("a < 0.9\nand b > 25.0 * 1e+09", ["a", "b"]),
        ("max by (v) (a) > 0\nunless on (v) sum by (v) (increase(b[3s])) > 0",
         ["max by (v) (a)", "sum by (v) (increase(b[3s]))"]),
        ('label_replace((a == 1) unless on (v) (b or c{t="x"} == 0), "t", "x", "", "")',
         ["a", "b", 'c{t="x"}']),
        ('up{job="j"} == 0\nor absent(up{job="j"})', ['up{job="j"}', 'up{job="j"}']),
        ("(r5 > 0.1 and r6 > 0.1 and sum_over_time(m[1h]) >= 3)\nor (r7 > 1 and r8 > 1)",
         ["r5", "r6", "sum_over_time(m[1h])", "r7", "r8"]),
    ],
)  # fmt: skip
def test_an_expression_is_taken_apart(expr: str, parts: list[str]):
    assert list(operands(expr)) == parts


# ---------------------------------------------------------------- remote engines
def remote_names(text: str) -> set[str]:
    return set(_REMOTE_NAME.findall(text))


def unknown_to(recording: str, names: set[str]) -> set[str]:
    exposed = {re.split(r"[{ ]", series)[0] for series in REMOTE[recording]}
    return {name for name in names if name.startswith(f"{recording}:")} - exposed


@pytest.mark.parametrize("recording", REMOTE)
def test_no_rule_names_a_series_that_a_remote_engine_does_not_have(recording: str):
    named = {name for rule in EVERY for name in remote_names(rule["expr"])}
    assert unknown_to(recording, named) == set()


def test_the_name_that_others_took_for_one_would_be_found():
    named = remote_names("rate(vllm:num_preemptions[5m]) or vllm:num_preemptions_total")
    assert unknown_to("vllm", named) == {"vllm:num_preemptions"}
    assert unknown_to("vllm_omni", remote_names("vllm_omni:nothing")) == {"vllm_omni:nothing"}
