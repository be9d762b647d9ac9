"""How long Prometheus is waited for: by what the compiled expressions look back at."""

import re

import pytest

from alerts.alert import Alert
from alerts.compile import alerts
from alerts.evaluator import Evaluator
from alerts.handover import takes_s
from alerts.names import AlertName
from alerts.policy import make
from alerts.promql import parse_duration
from alerts.records import records
from monitors.redlines import (
    AlertLines,
    CacheLines,
    FaultLines,
    LadderLines,
    LatencyLines,
    RedLines,
    RolloutLines,
)

# No two alike, so that none stands for another.
LINES = RedLines(
    cache=CacheLines(hold_s=17.0),
    latency=LatencyLines(window_s=23.0),
    faults=FaultLines(recent_s=41.0),
    ladder=LadderLines(dwell_s=53.0),
    rollout=RolloutLines(bake_s=503.0, evidence_stale_s=31.0),
    alerts=AlertLines(down_s=11.0, repeat_s=37.0),
)
POLICY = make(
    LINES,
    {
        "OurFaults": {
            "table": "faults", "when": ["soft > 3"], "for": "61s", "severity": "ticket",
            "action": "none", "runbook": "our.md", "summary": "{value}",
        }
    },
)  # fmt: skip
EVERY = {alert.name: alert for alert in alerts(POLICY)}
WATCHED = Evaluator(POLICY).watched
RECORDED = {record.series.name: record.expr for record in records(LINES)}
_ALERTS = re.compile(r'ALERTS\{alertstate="firing",action=~"([^"]+)"\}\)?\[(\w+)\]')


def looks_back_s(expr: str) -> float:
    """The longest range of an expression or of what it reads; of alerts that it looks back at, the
    range comes after their own."""
    ranges = [parse_duration(each) for each in re.findall(r"\[(\w+)\]", expr)]
    recorded = [looks_back_s(RECORDED[name]) for name in RECORDED if name in expr]
    fired = [
        parse_duration(range_) + looks_back_s(alert.expr) + alert.for_s
        for actions, range_ in _ALERTS.findall(expr)
        for alert in EVERY.values()
        if re.fullmatch(actions, alert.action)
    ]
    assert "ALERTS" not in expr or fired, "an expression that this test cannot read"
    return max((*ranges, *recorded, *fired), default=0.0)


@pytest.mark.parametrize("alert", WATCHED.values(), ids=lambda alert: alert.name)
def test_prometheus_is_waited_for_until_it_has_seen_all_that_an_alert_looks_at(alert: Alert):
    """Its window and what it reads, its `for`, and a repeat: not a second less, and none more."""
    needed = looks_back_s(alert.expr) + alert.for_s + LINES.alerts.repeat_s
    assert takes_s(WATCHED, LINES)[alert.name] == needed


def test_what_an_alert_looks_at_is_found_in_every_kind_of_expression():
    def of(name: str) -> float:
        return looks_back_s(EVERY[name].expr)

    assert of(AlertName.CACHE_BELOW_FLOOR) == 17
    assert of(AlertName.LATENCY_DEGRADE) == 23
    assert of("OurFaults") == 41
    assert of(AlertName.NO_TRAFFIC) == 23
    assert of(AlertName.NO_DATA) == 230
    assert of(AlertName.RESIDENT_DOWN) == of(AlertName.DATA_PLANE_DOWN) == 0
    assert of(AlertName.LADDER_EXHAUSTED) == 23 + (17 + 17), "a pause, after the slowest it reads"


def test_from_the_articles_lines_prometheus_is_waited_for_so_long():
    lines = RedLines()
    takes = takes_s(Evaluator(make(lines)).watched, lines)
    assert takes[AlertName.LATENCY_DEGRADE] == 30 + 0 + 30
    assert takes[AlertName.CACHE_BELOW_FLOOR] == 30 + 30 + 30
    assert takes[AlertName.LADDER_EXHAUSTED] == (30 + 30) + 30 + 3 * 60 + 30
    assert takes[AlertName.NO_TRAFFIC] == 30 + 600 + 30
    assert takes[AlertName.NO_DATA] == 10 * 30 + 30 + 30
    assert takes[AlertName.RESIDENT_DOWN] == 10 + 30
