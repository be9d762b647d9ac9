"""Every alert through promtool: it fires on time, and on none of its near misses."""

from pathlib import Path

import pytest

from alerts import burn
from alerts.alert import Alert
from alerts.burn import Objective
from alerts.compile import alerts
from alerts.names import AlertName
from alerts.policy import make
from monitors.redlines import CacheLines, FaultLines, LatencyLines, RedLines
from tests.rules import budgets, near_misses
from tests.rules.scenarios import FEW, Run, Scenario, promtool, written

ALERTS = {alert.name: alert for alert in alerts(FEW)}
# Of these an absent series is the breach; the Watchdog beats always.
OF_ABSENCE = {
    AlertName.NO_DATA,
    AlertName.DATA_PLANE_DOWN,
    AlertName.CONTROL_PLANE_DOWN,
    AlertName.WATCHDOG,
}
RUNS = [*written(), *near_misses.runs()]


def test_alerts_fire_on_time_and_only_then(tmp_path: Path):
    promtool(tmp_path, RUNS)


# ---------------------------------------------------------------- no alert without near misses
def required(alert: Alert) -> set[str]:
    """What must be tried of an alert, from what it is."""
    rule = FEW.rule(alert.name)
    looks_back = rule is not None or "increase(" in alert.expr
    conditional = {
        "resolves": alert.name != AlertName.WATCHDOG,
        "short": alert.for_s > 0.0,
        "missing": alert.name not in OF_ABSENCE,
        "stale": alert.name not in OF_ABSENCE,
        "restart": looks_back,
        "on the line": rule is not None,
        "one condition": rule is not None and len(rule.conditions) > 1,
        "few": rule is not None and rule.min_count is not None,
    }
    return {"on time"} | {kind for kind, needed in conditional.items() if needed}


def tried(scenarios: list[Scenario]) -> dict[str, set[str]]:
    """By alert what scenarios say they try of it, as far as they ask about it at all."""
    found: dict[str, set[str]] = {}
    for scenario in scenarios:
        names, _, rest = scenario["name"].partition(" | ")
        kinds, told, _ = rest.partition(" | ")
        if not told:
            continue
        fires, rests = asked_of(scenario)
        for name in names.split(", "):
            for kind in kinds.split(", "):
                wanted = fires if kind == "on time" else rests
                assert name == AlertName.WATCHDOG or names_of(name, wanted), scenario["name"]
                found.setdefault(name, set()).add(kind)
    return found


def asked_of(scenario: Scenario) -> tuple[list[str], list[str]]:
    """The expressions that must return something at some time, and those that must not."""
    tests = scenario.get("promql_expr_test", [])
    return (
        [test["expr"] for test in tests if test["exp_samples"]],
        [test["expr"] for test in tests if not test["exp_samples"]],
    )


def names_of(name: str, exprs: list[str]) -> bool:
    planes = "Redline.*PlaneDown"
    return any(name in expr or (planes in expr and "PlaneDown" in name) for expr in exprs)


SCENARIOS = [scenario for run in [*RUNS, *budgets.runs()] for scenario in run.scenarios]


@pytest.mark.parametrize("name", AlertName)
def test_every_alert_has_all_its_near_misses(name: AlertName):
    assert required(ALERTS[name]) - tried(SCENARIOS).get(name, set()) == set()


# ---------------------------------------------------------------- a rule of one's own
def test_a_rule_that_is_told_to_goes_on_firing_and_one_without_does_not(tmp_path: Path):
    """`keep_firing_for` as Debian's Prometheus has it, on a rule that a user might add."""
    own = {
        "table": "faults",
        "when": ["soft >= 5"],
        "for": "3s",
        "keep_firing_for": "10s",
        "severity": "ticket",
        "action": "none",
        "runbook": "https://wiki.example/own",
        "summary": "{value} soft on {version}",
    }
    policy = make(FEW.lines, {"Kept": own, "NotKept": {**own, "keep_firing_for": "0s"}})
    firing = 'count by (alertname) (ALERTS{alertname=~"(Not)?Kept",alertstate="firing"})'
    both = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in ("Kept", "NotKept")]
    at = {12: [], 13: both, 19: both, 20: both[:1], 29: both[:1], 30: []}
    scenario = {
        "interval": "1s",
        "input_series": [
            {"series": 'redline_fault_window_faulted{version="a",mark="soft"}',
             "values": "4x9 5x9 4x20"},
            {"series": 'redline_served_requests_total{version="a"}', "values": "0+1x40"},
        ],
        "promql_expr_test": [
            {"expr": firing, "eval_time": f"{second}s", "exp_samples": samples}
            for second, samples in at.items()
        ],
    }  # fmt: skip
    promtool(tmp_path, [Run([scenario])], policy)


# ---------------------------------------------------------------- error budgets
def test_budgets_that_burn_over_both_windows_of_a_pair_and_only_those(tmp_path: Path):
    promtool(tmp_path, budgets.runs())


def test_the_requests_of_a_drill_are_too_few_for_a_budget_however_few_a_rule_asks_for():
    small = RedLines(latency=LatencyLines(min_count=5), faults=FaultLines(min_count=12))
    assert [budget.min_count for budget in burn.budgets(small)] == [100, 100, 100]
    assert [budget.min_count for budget in burn.budgets(RedLines())] == [100, 100, 2_000]


def test_a_pair_that_no_traffic_could_fire_is_not_made_and_comes_back_with_its_budget():
    kept = {b.objective: [pair.factor for pair in b.pairs] for b in budgets.BUDGETS}
    assert kept == {
        Objective.CACHE: [6.0, 3.0, 1.0],
        Objective.FIRST_PACKET: [14.4, 6.0, 3.0, 1.0],
        Objective.FAULTS: [14.4, 6.0, 3.0, 1.0],
    }
    [strict, *_] = burn.budgets(RedLines(cache=CacheLines(hit_rate_floor=0.95)))
    assert [pair.factor for pair in strict.pairs] == [14.4, 6.0, 3.0, 1.0]
    wide = burn.budgets(RedLines(latency=LatencyLines(first_packet_exceedance=0.5)))
    assert [pair.factor for pair in wide[1].pairs] == [1.0]
    none = burn.budgets(RedLines(cache=CacheLines(hit_rate_floor=1.0)))
    assert [budget.objective for budget in none] == [Objective.FIRST_PACKET, Objective.FAULTS]
