"""Prometheus' rule engine and the evaluator here on who is down, silent or blind.

One book and one set of residents are the only source, as in `test_differential`. Most of the
traffic that is drawn has stretches in which every request ends in an error: those are no answers.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alerts.evaluator import Evaluation, Evaluator
from alerts.machinery import ANSWERS_TAKE
from alerts.names import AlertName
from alerts.policy import make
from alerts.rules import render_rules
from monitors import catalog
from monitors.contract import Level, Observed, ResidentStatus
from monitors.labels import Outcome, ResidentState
from monitors.metric import Table
from monitors.redlines import AlertLines, LatencyLines, RedLines, RolloutLines
from tests.support.random_traffic import MOST_VERSIONS, Segment, Traffic
from tests.support.rule_engine import Labels, Scrape, alerts_at_each_second, needs_promtool, scraped

pytestmark = needs_promtool

# Short windows, so that an example of a minute has many transitions.
LINES = RedLines(
    latency=LatencyLines(window_s=2.0),
    rollout=RolloutLines(bake_s=6.0, evidence_stale_s=3.0),
    alerts=AlertLines(down_s=3.0),
)
POLICY = make(LINES)
COMPARED = (AlertName.NO_TRAFFIC, AlertName.NO_DATA, AlertName.RESIDENT_DOWN)
SECONDS = 80
# Before this the evaluator has not watched for as long as an answer may take after its first
# output; Prometheus takes what it has for all of it.
UNDECIDED_S = round(ANSWERS_TAKE * LINES.latency.window_s + LINES.rollout.evidence_stale_s) + 1


@dataclass(frozen=True)
class Act:
    """A resident's traffic, its share of new sessions in percent, and whether it is ready."""

    traffic: Segment
    weight: int
    ready: bool = True


Plan = list[Act]


def rules() -> str:
    document = yaml.safe_load(render_rules(POLICY))
    [group] = [each for each in document["groups"] if each["name"] == "redline"]
    group["rules"] = [each for each in group["rules"] if each.get("alert") in COMPARED]
    return yaml.dump({"groups": [group]}, sort_keys=False)


RULES = rules()
WANTED = re.compile("|".join(sorted(set(re.findall(r"redline_\w+", RULES)), key=len, reverse=True)))


class Run:
    """Every version's plan carried out, and what the evaluator says after each second."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = {f"v{i}": by_second(plan) for i, plan in enumerate(plans)}
        plane = Traffic(LINES, list(self._plans))
        evaluator = Evaluator(POLICY)
        self.scrapes: list[Scrape | None] = []
        self.ours: list[set[Labels]] = []
        for at in range(SECONDS):
            acts = {version: plan[at] for version, plan in self._plans.items()}
            plane.step({version: act.traffic for version, act in acts.items()} if at else {})
            seen = evaluator.tick(plane.tables(), observed(acts), float(at), float(at))
            self.scrapes.append(scrape(plane, acts))
            self.ours.append(told(seen))

    def theirs(self) -> list[set[Labels]]:
        """What `ALERTS` has after each second."""
        with TemporaryDirectory() as folder:
            return alerts_at_each_second(Path(folder), RULES, self.scrapes)


def by_second(plan: Plan) -> Plan:
    """The act of each second; the last one goes on."""
    each = [act for act in plan for _ in range(act.traffic.seconds)]
    return [*each, *[plan[-1]] * SECONDS][:SECONDS]


def observed(acts: dict[str, Act]) -> Observed:
    """As the control plane is told it. The stable resident is none of these."""
    residents = tuple(
        ResidentStatus(
            name=version, version=version, weight=act.weight, level=Level(), min_pool_epoch=1,
            state=ResidentState.READY if act.ready else ResidentState.LOADING,
        )
        for version, act in acts.items()
    )  # fmt: skip
    return Observed(
        incarnation="g", leader_epoch=1, route_epoch=1, stable="none", canary=None,
        canary_weight=0, lease_left_s=0.0, residents=residents,
    )  # fmt: skip


def scrape(plane: Traffic, acts: dict[str, Act]) -> Scrape:
    """As Prometheus is told it, by the names under which the data plane shows residents."""
    gauge = plane.book.exposition.gauge
    for version, act in acts.items():
        gauge(catalog.RESIDENT_UP).set(float(act.ready), version)
        gauge(catalog.WEIGHT).set(act.weight / 100, version)
        gauge(catalog.SHOWS_TABLE).set(0.0, version, Table.CACHE)  # not told here: Prometheus' own
    return scraped(plane.scrape(), WANTED)


def told(seen: Evaluation) -> set[Labels]:
    states = ((seen.firing, "firing"), (seen.pending, "pending"))
    return {
        frozenset({**each.labels, "alertstate": state}.items())
        for alerts, state in states
        for each in alerts
        if each.alert in COMPARED
    }


def differences(run: Run) -> list[str]:
    """Each alert that only one of them has after a second, in words."""
    return [
        f"after {at} s {who}: {sorted(alert)}"
        for at, (ours, theirs) in enumerate(zip(run.ours, run.theirs(), strict=True))
        for who, alerts in (("here", ours - theirs), ("Prometheus", theirs - ours))
        for alert in alerts
        if at >= UNDECIDED_S or ("alertname", AlertName.NO_DATA) not in alert
    ]


def fires(run: Run, name: AlertName) -> dict[str, list[int]]:
    """The seconds after which an alert fires here, by version."""
    found: dict[str, list[int]] = {}
    for at, looked in enumerate(run.ours):
        for labels in map(dict, looked):
            if (labels["alertname"], labels["alertstate"]) == (name, "firing"):
                found.setdefault(labels["version"], []).append(at)
    return found


# ---------------------------------------------------------------- drawn
def segment(seconds: int, **counts: int) -> Segment:
    """Nothing but what is named."""
    none = dict.fromkeys(("fast", "slow", "late", "hung", "lookups", "finished", "faulted"), 0)
    shown: dict[str, Any] = {**none, **counts}
    return Segment(seconds=seconds, hits=0, live_gb=0.0, **shown)


acts = st.builds(
    lambda seconds, fast, late, hung, finished, faulted, failing, weight, ready: Act(
        Segment(
            seconds, fast, 0, late, hung, lookups=0, hits=0, live_gb=0.0, finished=finished,
            faulted=faulted, failing=failing,
        ),
        weight,
        ready,
    ),
    seconds=st.integers(1, 40),
    fast=st.sampled_from([0, 0, 0, 2]),
    late=st.sampled_from([0, 0, 0, 1]),
    hung=st.sampled_from([0, 0, 1]),
    finished=st.sampled_from([0, 2, 2]),
    faulted=st.sampled_from([0, 1, 2, 2]),
    failing=st.sampled_from([Outcome.FAILED, Outcome.LOST, Outcome.CANCELLED]),
    weight=st.sampled_from([0, 5, 95]),
    ready=st.sampled_from([True, True, True, False]),
)  # fmt: skip
plans = st.lists(st.lists(acts, min_size=2, max_size=8), min_size=4, max_size=MOST_VERSIONS)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
ONCE = settings(max_examples=3, deadline=None, suppress_health_check=SLOW, print_blob=True)
OFTEN = settings(ONCE, max_examples=100)


@ONCE
@given(plans)
def test_both_say_the_same_of_residents_and_their_traffic_after_every_second(plans: list[Plan]):
    assert differences(Run(plans)) == []


@pytest.mark.slow
@OFTEN
@given(plans)
def test_both_say_the_same_of_many_more_residents(plans: list[Plan]):
    assert differences(Run(plans)) == []


# ---------------------------------------------------------------- by hand
def test_a_version_whose_every_request_fails_has_no_traffic_for_both_and_lacks_no_data():
    good = segment(30, fast=2, finished=2)
    plans = [
        [Act(good, 40), Act(segment(50, finished=2, faulted=2), 40)],
        [Act(good, 20), Act(segment(50, hung=2, finished=2, faulted=2), 20)],
        [Act(good, 20), Act(segment(50, hung=1, finished=2), 20)],
        [Act(segment(80, fast=2, finished=2, faulted=1), 20)],
    ]
    run = Run(plans)
    assert differences(run) == []
    silent, blind = fires(run, AlertName.NO_TRAFFIC), fires(run, AlertName.NO_DATA)
    last_answer, held = 29, LINES.latency.window_s + LINES.rollout.bake_s
    assert {version: seconds[0] for version, seconds in silent.items()} == {
        "v0": last_answer + held,
        "v1": last_answer + held,
    }
    assert set(blind) == {"v2"}, "those that answer and show no first output"
