"""Prometheus' rule engine and the evaluator here, over the same past: the same alerts at each step.

One book per four versions is the only source: its exposition is what Prometheus scrapes once a
second, its tables are what the evaluator reads. Where the two may differ, a test says for how long.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alerts.evaluator import Evaluation, Evaluator
from alerts.firing import Firing
from alerts.names import AlertName
from alerts.policy import make
from alerts.rules import render_rules
from monitors.contract import MediaRung
from monitors.redlines import CacheLines, FaultLines, LadderLines, LatencyLines, RedLines
from monitors.tables import Tables
from tests.support.random_traffic import MOST_VERSIONS, Happens, Segment, Traffic, segments
from tests.support.rule_engine import Labels, Scrape, alerts_at_each_second, needs_promtool, scraped

pytestmark = needs_promtool

# Short windows, so that an example of a minute has many transitions.
LINES = RedLines(
    cache=CacheLines(hold_s=6.0),
    latency=LatencyLines(
        window_s=5.0, min_count=20, degrade_exceedance=0.1, first_packet_exceedance=0.1
    ),
    faults=FaultLines(rate=0.05, window_requests=60, min_count=20, recent_s=8.0),
    ladder=LadderLines(dwell_s=3.0),
)
POLICY = make(
    LINES,
    {
        "RedlineLatencyDegrade": {"keep_firing_for": "4s"},
        "RedlineFaultRate": {"for": "2s", "keep_firing_for": "3s"},
        "RedlineFirstPacketSlow": {"keep_firing_for": "1s"},
        "OurPoolFull": {
            "table": "cache", "when": ["gpu_mem_gb >= 25"], "for": "3s", "severity": "ticket",
            "action": "none", "runbook": "our-pool-full.md", "summary": "{value} live",
        },
        "OurFirstTokenSlow": {
            "table": "latency", "when": ["slow_share > 0.2", "over_share <= 0.3"],
            "milestone": "first_token", "min_count": 10, "for": "1s", "keep_firing_for": "2s",
            "severity": "page", "action": "none", "runbook": "our-first-token-slow.md",
            "summary": "{value} of {version} to {milestone}",
        },
        "OurSoftFaults": {
            "table": "faults", "when": ["faulted >= 3", "requests < 50"], "severity": "ticket",
            "for": "0s", "action": "none", "runbook": "our-soft-faults.md", "summary": "{value}",
        },
    },
)  # fmt: skip
SECONDS = 70
VERSIONS = 2 * MOST_VERSIONS
Plan = list[Segment]
plans = st.lists(st.lists(segments(), min_size=3, max_size=9), min_size=VERSIONS, max_size=VERSIONS)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
ONCE = settings(max_examples=3, deadline=None, suppress_health_check=SLOW, print_blob=True)
OFTEN = settings(ONCE, max_examples=60)


def rules() -> str:
    """The rule file, without what no rule over a table reads."""
    compared = {rule.name for rule in POLICY.rules} | {AlertName.LADDER_EXHAUSTED}
    document = yaml.safe_load(render_rules(POLICY))
    for group in document["groups"]:
        group["rules"] = [
            rule
            for rule in group["rules"]
            if rule.get("alert") in compared
            or ("record" in rule and not re.search("quantile|layer_id", rule["expr"]))
        ]
    return yaml.dump(document, sort_keys=False)


RULES = rules()
NAMES = "|".join(sorted(set(re.findall(r"redline_\w+", RULES)), key=len, reverse=True))
BOUNDS = "|".join(map(re.escape, set(re.findall(r'le="[^"]+"', RULES))))
WANTED = re.compile(rf"(?:{NAMES})(?<!_bucket)\{{|(?:{NAMES})\{{.*(?:{BOUNDS})")


class Run:
    """Every version's plan carried out, and what both say of it after each second."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = {f"v{i}": _by_second(plan) for i, plan in enumerate(plans)}
        names = list(self._plans)
        self.planes = [
            Traffic(LINES, names[i : i + MOST_VERSIONS])
            for i in range(0, len(names), MOST_VERSIONS)
        ]
        self.evaluators = [Evaluator(POLICY) for _ in self.planes]
        self._lost = dict.fromkeys(names, 0)  # for how many seconds each engine has been away
        self.scrapes: list[Scrape | None] = []
        self.ours: list[set[Labels]] = []

    def second(self, *, readable: bool = True, as_prometheus: bool = True) -> None:
        """One more second; then a scrape and a look, where the data plane can be reached."""
        at = len(self.scrapes)
        scrape, looked = dict[str, float](), set[Labels]()
        for plane, evaluator in zip(self.planes, self.evaluators, strict=True):
            if at:
                plane.step({version: self._plans[version][at] for version in plane.versions})
            scrape |= scraped(plane.scrape(), WANTED)
            tables = self._known(plane.tables(), at) if as_prometheus else plane.tables()
            seen = evaluator.tick(tables if readable else None, None, float(at), float(at))
            looked |= _told(seen)
        self.scrapes.append(scrape if readable else None)
        self.ours.append(looked)

    def _known(self, tables: Tables, at: int) -> Tables:
        """Without the hit rate that Prometheus learns a step later.

        It needs two samples within the window to know what a counter gained, and has one when an
        engine is back that was away for all of it. The table knows what the last one left.
        """
        unknown = {version for version in self._lost if self._is_back(version, at)}
        rows = [
            msgspec.structs.replace(row, hit_rate=None) if row.version in unknown else row
            for row in tables.cache_summary
        ]
        return msgspec.structs.replace(tables, cache_summary=tuple(rows))

    def _is_back(self, version: str, at: int) -> bool:
        plan, before = self._plans[version], at - 1
        if at == 0 or plan[at].happens is Happens.ENGINE_LOST:
            return False
        while before > 0 and plan[before].happens is Happens.ENGINE_LOST:
            before -= 1
        return at - before >= LINES.cache.hold_s + 1

    def theirs(self) -> list[set[Labels]]:
        """What `ALERTS` has after each second."""
        with TemporaryDirectory() as folder:
            return alerts_at_each_second(Path(folder), RULES, self.scrapes)


def _by_second(plan: Plan) -> Plan:
    """The segment of each second; the last one goes on."""
    each = [segment for segment in plan for _ in range(segment.seconds)]
    return [*each, *[plan[-1]] * SECONDS][:SECONDS]


def _told(seen: Evaluation) -> set[Labels]:
    def labels(alerts: Iterable[Firing], state: str) -> set[Labels]:
        return {frozenset({**each.labels, "alertstate": state}.items()) for each in alerts}

    compared = labels(seen.firing, "firing") | labels(seen.pending, "pending")
    return {each for each in compared if ("alertname", AlertName.DATA_PLANE_DOWN) not in each}


def differences(run: Run, blind: range = range(0)) -> list[str]:
    """Each alert that only one of them has after a second, in words; but not while `blind`."""
    return [
        f"after {at} s {who}: {sorted(alert)}"
        for at, (ours, theirs) in enumerate(zip(run.ours, run.theirs(), strict=True))
        if at not in blind
        for who, alerts in (("here", ours - theirs), ("Prometheus", theirs - ours))
        for alert in alerts
    ]


# ---------------------------------------------------------------- the same at every step
def same_alerts(plans: Sequence[Plan]) -> None:
    run = Run(plans)
    for _ in range(SECONDS):
        run.second()
    assert differences(run) == []


@ONCE
@given(plans)
def test_both_say_the_same_of_each_alert_after_every_second(plans: list[Plan]):
    same_alerts(plans)


@pytest.mark.slow
@OFTEN
@given(plans)
def test_both_say_the_same_over_many_more_series(plans: list[Plan]):
    same_alerts(plans)


def test_a_breach_that_hovers_about_its_line_exhausts_the_ladder_for_both():
    """A burst of late answers now and then: the rule ends after each, for a second to eight."""
    quiet = Segment(
        seconds=0, fast=20, slow=0, late=0, hung=0, lookups=16, hits=8, live_gb=1.0, finished=0,
        faulted=0,
    )  # fmt: skip
    plans = [
        [replace(quiet, seconds=1, late=30), replace(quiet, seconds=s)] * SECONDS
        for s in range(9, 9 + VERSIONS)
    ]
    run = Run(plans)
    for _ in range(SECONDS):
        run.second()
    assert differences(run) == []
    degraded = seconds_of(run, AlertName.LATENCY_DEGRADE)
    exhausted = seconds_of(run, AlertName.LADDER_EXHAUSTED)
    assert max(degraded.values()) <= 54, "it pauses on every version"
    through = {version for version, seconds in exhausted.items() if seconds > 40}
    assert through == {"v0", "v1", "v2", "v3", "v4"}, "those that pause for 5 s at most"


def seconds_of(run: Run, name: AlertName) -> dict[str, int]:
    """For how many seconds an alert fires here, by version; whichever first output it is of."""
    return Counter(
        version
        for looked in run.ours
        for version in {
            labels["version"]
            for labels in map(dict, looked)
            if (labels["alertname"], labels["alertstate"]) == (name, "firing")
        }
    )


# ---------------------------------------------------------------- where they see different pasts
# Prometheus remembers what a data plane counted that is gone, and looks at old samples while it
# cannot scrape; the evaluator has the tables as they are now, or nothing. A window later they see
# the same, and what began meanwhile has then its `for` to wait, and the ladder's end its own.
LONGEST_WINDOW_S = max(LINES.cache.hold_s, LINES.latency.window_s, LINES.faults.recent_s)
LONGEST_FOR_S = max(rule.for_s + rule.keep_firing_s for rule in POLICY.rules)
EXHAUSTED_S = LINES.latency.window_s + LINES.ladder.dwell_s * len(MediaRung)
BLIND_S = round(LONGEST_WINDOW_S + LONGEST_FOR_S + EXHAUSTED_S) + 1


@ONCE
@given(plans, st.integers(2, 30))
def test_a_data_plane_that_starts_again_parts_them_for_a_window(plans: list[Plan], at: int):
    run = Run(plans)
    for second in range(SECONDS):
        if second == at:
            for plane in run.planes:
                plane.start_again()
        run.second()
    assert differences(run, range(at, at + BLIND_S)) == []


@ONCE
@given(plans, st.integers(2, 25), st.integers(1, 10))
def test_a_data_plane_out_of_reach_parts_them_until_a_window_later(
    plans: list[Plan], at: int, seconds: int
):
    run = Run(plans)
    for second in range(SECONDS):
        run.second(readable=not at <= second < at + seconds)
        if at <= second < at + seconds:
            assert run.ours[-1] == set(), "what cannot be read is unknown, and does not fire"
    assert differences(run, range(at, at + seconds + BLIND_S)) == []
