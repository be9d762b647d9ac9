"""The policy: what ships, what a redline.yaml may change of it, and what it may not."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from alerts import alert, wording
from alerts.columns import COLUMNS
from alerts.compile import alerts
from alerts.names import AlertName
from alerts.policy import DISPENSABLE, Policy, PolicyError, load, make
from alerts.rule import BACKED
from alerts.rule_text import RuleText
from alerts.thresholds import others, thresholds
from dashboards.build import build_all
from monitors.labels import Action, Milestone, Severity
from monitors.metric import Table
from monitors.redlines import CacheLines, LatencyLines, RedLines, RedLinesError

LINES = RedLines()
SOFT: dict[str, Any] = {
    "table": "faults",
    "when": ["soft > 50", "rate_low > 0.001"],
    "min_count": 1000,
    "for": "5m",
    "keep_firing_for": "10m",
    "severity": "ticket",
    "action": "none",
    "runbook": "https://wiki.example/soft",
    "summary": "{value} soft on {version}, more than {limit} of {faults.window_requests}",
}


def refused(rules: object, maintenance: object = ()) -> str:
    with pytest.raises(PolicyError) as refusal:
        make(LINES, rules, maintenance)
    return str(refusal.value)


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "redline.yaml"
    path.write_text(text)
    return path


# ---------------------------------------------------------------- what ships
def test_each_part_of_the_ladder_has_one_shipped_action_and_a_rollback_is_there():
    found = {rule.name: rule.action for rule in make(LINES).rules}
    assert found == {
        AlertName.CACHE_BELOW_FLOOR: Action.QUANTISE_KV,
        AlertName.LATENCY_DEGRADE: Action.DEGRADE_MEDIA,
        AlertName.FAULT_RATE: Action.ROLL_BACK,
        AlertName.FIRST_PACKET_SHED: Action.SHED,
        AlertName.FIRST_PACKET_SLOW: Action.NONE,
    }
    assert {each.name for each in alerts(make(LINES))} == set(AlertName)


def test_what_ships_names_figures_and_repeats_none():
    """S4.1 to S4.5: a figure has one home."""
    text = yaml.safe_load((Path(alert.__file__).parent / "redline.yaml").read_text())
    told = [
        str(part)
        for rule in text["rules"].values()
        for said in [*rule["when"], rule["for"], rule.get("min_count", "0s")]
        for part in str(said).split()
        if part[:1].isdigit()
    ]
    assert set(told) == {"0s"}


def test_a_changed_figure_moves_rule_words_and_panels():
    other = RedLines(
        cache=CacheLines(hit_rate_floor=0.8, gpu_mem_gb=60, hold_s=20),
        latency=LatencyLines(degrade_s=0.5),
    )
    policy = make(other)
    cache = policy.rule(AlertName.CACHE_BELOW_FLOOR)
    assert cache is not None
    assert [condition.limit for condition in cache.conditions] == [0.8, 60.0]
    assert cache.for_s == 20.0
    degrade = next(a for a in alerts(policy) if a.name == AlertName.LATENCY_DEGRADE)
    assert "past 500 ms" in degrade.when
    assert "past 500 ms" in degrade.summary
    assert thresholds(policy) == other


# ---------------------------------------------------------------- what a file may change
def test_single_fields_of_a_rule_are_changed_and_the_rest_stays(tmp_path: Path):
    path = file(
        tmp_path,
        "cache: {hit_rate_floor: 0.85}\n"
        "rules:\n"
        "  RedlineCacheBelowFloor: {for: 90s, when: [hit_rate < 0.7, gpu_mem_gb > 40]}\n"
        "  RedlineFirstPacketSlow: {severity: ticket}\n"
        "  RedlineNoTraffic: {severity: page}\n"
        "  RedlineErrorBudgetBurn: {enabled: false}\n",
    )
    policy = load(path)
    cache = policy.rule(AlertName.CACHE_BELOW_FLOOR)
    assert cache is not None
    assert (cache.for_s, cache.action) == (90.0, Action.QUANTISE_KV)
    found = {each.name: each.severity for each in alerts(policy)}
    assert found[AlertName.NO_TRAFFIC] is Severity.PAGE
    assert found[AlertName.FIRST_PACKET_SLOW] is Severity.TICKET
    assert AlertName.ERROR_BUDGET_BURN not in found
    drawn = thresholds(policy)
    assert (drawn.cache.hit_rate_floor, drawn.cache.gpu_mem_gb) == (0.7, 40.0)
    assert policy.lines.cache.hit_rate_floor == 0.85  # what verdicts go by


def test_the_limits_of_further_rules_on_a_column_are_known_to_panels():
    notice = {**SOFT, "when": ["rate > 0.002", "rate < faults.rate"]}
    policy = make(LINES, {"FaultsRise": notice})
    assert others(make(LINES)) == {}
    assert others(policy) == {"faults.rate": (0.002,)}
    assert thresholds(policy) == LINES


def test_a_limit_that_is_no_red_line_is_drawn_and_one_of_the_other_side_is_not():
    """A red line of 0 GB cannot be, a rule that asks for any KV at all can."""
    change = {"RedlineCacheBelowFloor": {"when": ["hit_rate < 0.8", "gpu_mem_gb > 0"]}}
    calm = {**SOFT, "when": ["rate < 0.001", "requests > 5"]}
    policy = make(LINES, {**change, "FaultsAreFew": calm})
    assert thresholds(policy).cache.gpu_mem_gb == 0.0
    assert thresholds(policy).cache.hit_rate_floor == 0.8
    assert others(policy) == {}
    assert "oncall" in build_all(thresholds(policy), others(policy))


def test_a_rule_of_ones_own_is_compiled_like_those_that_ship():
    policy = make(LINES, {"ManySoftFaults": SOFT})
    own = policy.rules[-1]
    assert (own.for_s, own.keep_firing_s, own.min_count) == (300.0, 600.0, 1000)
    compiled = alert.of_rule(own, LINES)
    assert compiled.expr.splitlines() == [
        'sum by (version) (redline_fault_window_faulted{mark="soft"}) > 50.0',
        'and sum by (version) (redline_fault_window_bound_ratio{bound="low"}) > 0.001',
        "and sum by (version) (redline_fault_window_requests) >= 1000",
        "and sum by (version) (increase(redline_served_requests_total[60s])) > 0",
    ]
    assert compiled.summary == (
        "{{ $value | humanize }} soft on {{ $labels.version }}, more than 50 of 10,000"
    )
    assert compiled.when == (
        "Of a version: the count of the last 10,000 finished requests with a soft fault is above "
        "50 and the lower end of the fault rate's 95 % interval is above 0.1 %, of at least 1,000."
        " Requests still finish."
    )


def test_a_rule_of_one_first_output_asks_for_it_everywhere():
    of_tokens = {
        **SOFT,
        "table": "latency",
        "when": ["over_share >= 0.5"],
        "milestone": "first_token",
        "summary": "{milestone}",
    }
    [own] = [
        rule for rule in make(LINES, {"SlowTokens": of_tokens}).rules if rule.name == "SlowTokens"
    ]
    compiled = alert.of_rule(own, LINES)
    assert compiled.expr.count('{milestone="first_token"}') == 2
    assert own.milestone is Milestone.FIRST_TOKEN
    assert "to first_token" in wording.describe(own, LINES)


def test_rules_of_ones_own_stay_in_the_order_they_are_written():
    own = [f"{letter}anySoftFaults" for letter in "MADCB"]
    assert [rule.name for rule in make(LINES, dict.fromkeys(own, SOFT)).rules[-5:]] == own


def test_figures_of_a_file_lie_over_a_base(tmp_path: Path):
    base = RedLines(cache=CacheLines(gpu_mem_gb=0.014))
    policy = load(file(tmp_path, "cache: {hit_rate_floor: 0.5}\n"), base)
    assert (policy.lines.cache.hit_rate_floor, policy.lines.cache.gpu_mem_gb) == (0.5, 0.014)
    assert load(None, base).lines == base


def test_what_was_given_makes_the_same_policy_again():
    """It travels to the control plane as JSON."""
    policy = make(LINES, {"ManySoftFaults": SOFT, "RedlineNoTraffic": {"enabled": False}})
    again = make(LINES, yaml.safe_load(yaml.safe_dump(dict(policy.given))))
    assert again == policy


# ---------------------------------------------------------------- what stops the process
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tabel": "faults"}, "rules.ManySoftFaults.tabel: Extra inputs"),
        ({"table": "tokens"}, "rules.ManySoftFaults.table: Input should be"),
        ({"when": ["hit_rate < 0.9"]}, "when.0: table faults has no column hit_rate"),
        ({"when": ["soft > 50", "rate"]}, "when.1: 'rate' is no condition; write a column"),
        ({"when": ["soft > faults.rat"]}, "nor a red line; there are: faults.rate"),
        ({"when": ["rate > 1"]}, "when.0: rate > 1 can never hold: the column goes from 0 to 1"),
        ({"when": ["rate >= 0"]}, "when.0: rate >= 0 always holds"),
        ({"when": ["soft > -1"]}, "when.0: soft > -1 always holds: the column goes from 0 up"),
        ({"when": []}, "rules.ManySoftFaults.when"),
        ({"when": "rate > 0.1"}, "when: write a list, as `when: [rate > 0.1]`"),
        ({"for": "30"}, "for: 30 of what? write 30s"),
        ({"for": 30}, "ManySoftFaults.for: 30 of what? write 30s"),
        ({"keep_firing_for": 1.5}, "keep_firing_for: 1.5 of what? write 1.5s"),
        ({"for": "soon"}, "for: 'soon' is not a duration"),
        ({"for": "faults.rate"}, "for: faults.rate is no duration"),
        ({"min_count": 20_000}, "min_count: table faults holds 10,000 requests"),
        ({"min_count": "faults.rate"}, "min_count: faults.rate is 0.005: a count is a whole"),
        ({"min_count": 0}, "min_count is at least 1"),
        ({"milestone": "first_token"}, "only table latency knows first outputs"),
        ({"severity": "action"}, "with action none it needs severity page or ticket"),
        ({"severity": "action", "action": "limit_admission"}, "limit_admission it needs severity"),
        ({"severity": "heartbeat"}, "only the Watchdog is a heartbeat"),
        ({"action": "reboot"}, "rules.ManySoftFaults.action: Input should be"),
        ({"runbook": "../etc/passwd"}, "runbook: '../etc/passwd' is no page"),
        ({"summary": "{milestone}"}, "summary: table faults knows no {milestone}"),
        ({"summary": "{what}"}, "summary: what is neither a number nor a red line"),
    ],
)  # fmt: skip
def test_a_rule_that_cannot_be_stops_with_where_and_what(change: dict[str, Any], says: str):
    assert says in refused({"ManySoftFaults": {**SOFT, **change}})


@pytest.mark.parametrize("quantile", ["p50_s", "p95_s", "p99_s"])
def test_a_quantile_is_never_compared(quantile: str):
    said = refused({"RedlineLatencyDegrade": {"when": [f"{quantile} > 0.4"]}})
    assert "quantile" in said
    assert "_share" in said


def test_a_name_is_pascal_case():
    assert "PascalCase" in refused({"many_soft_faults": SOFT})


def test_a_minimum_count_needs_a_table_that_counts():
    assert "counts no requests" in refused({"RedlineCacheBelowFloor": {"min_count": 5}})


@pytest.mark.parametrize("change", [{"for": "20s"}, {"min_count": 5}, {}])
def test_a_misspelt_rule_is_not_taken_for_a_new_one(change: dict[str, Any]):
    said = refused({"RedlineCacheBelowFlor": change})
    assert "did you mean RedlineCacheBelowFloor?" in said
    assert "Field required" not in said
    assert len(said.splitlines()) == 2


def test_every_wrong_rule_is_named_at_once():
    said = refused({"A": {}, "ManySoftFaults": {**SOFT, "for": "x"}, "RedlineNoData": 3})
    assert {line.split(".")[1].split(":")[0] for line in said.splitlines()[1:]} == {
        "A", "ManySoftFaults", "RedlineNoData",
    }  # fmt: skip


@pytest.mark.parametrize("name", AlertName)
def test_only_notices_that_hide_nothing_can_be_switched_off(name: AlertName):
    if name in DISPENSABLE:
        policy = make(LINES, {name.value: {"enabled": False}})
        assert name not in {each.name for each in alerts(policy)}
    else:
        assert "switched off" in refused({name.value: {"enabled": False}})


def test_a_shipped_rule_keeps_its_action_and_its_table():
    assert "action: stays roll_back" in refused({"RedlineFaultRate": {"action": "none"}})
    assert "table: stays cache" in refused(
        {"RedlineCacheBelowFloor": {"table": "faults", "when": ["rate > 0.1"]}}
    )


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("RedlineFaultRate", {"for": "9999d"}, "for: at most 600s"),
        ("RedlineFirstPacketSlow", {"for": "601s"}, "for: at most 600s"),
        ("RedlineLatencyDegrade", {"min_count": 100_001}, "table latency holds 100,000 requests"),
        ("RedlineFaultRate", {"when": ["soft > 9000"]}, "when: goes on comparing rate >: only"),
        ("RedlineFaultRate", {"when": ["rate < 0.5"]}, "when: goes on comparing rate >"),
        ("RedlineCacheBelowFloor", {"when": ["hit_rate < 0.9"]}, "hit_rate < and gpu_mem_gb >"),
        ("RedlineLatencyDegrade", {"milestone": "first_video_frame"}, "milestone: stays unsaid"),
        ("RedlineFirstPacketShed", {"milestone": None}, "milestone: stays first_audio_packet"),
    ],
)
def test_a_shipped_rule_is_not_switched_off_by_its_numbers(
    name: str, change: dict[str, Any], says: str
):
    assert says in refused({name: change})


def test_a_shipped_rule_may_wait_as_long_as_a_rollout_bakes():
    policy = make(LINES, {"RedlineFaultRate": {"for": "600s"}})
    assert [rule.for_s for rule in policy.rules if rule.name == "RedlineFaultRate"] == [600.0]
    slow = RedLines(cache=CacheLines(hold_s=900.0))
    assert make(slow).rules[0].for_s == 900.0


def test_a_rollback_is_never_silent():
    said = refused({"RedlineFaultRate": {"severity": "action"}})
    assert "with action roll_back it needs severity page or ticket" in said


def test_of_the_machinery_only_severity_and_absence_can_be_said():
    assert "its `for` is a red line" in refused({"RedlineNoTraffic": {"for": "20s"}})
    assert "heartbeat" in refused({"RedlineWatchdog": {"severity": "page"}})
    assert "severity" in refused({"RedlineNoTraffic": {"severity": "heartbeat"}})


@pytest.mark.parametrize(
    "text",
    [
        "- a\n",
        "cache: {a: 1}\n",
        "cache: {}\ncache: {}\n",
        "rules: 3\n",
        "rules: []\n",
        "rules: 0\n",
        "maintenance: 0\n",
        "maintenance: {}\n",
        "maintenance: ''\n",
        "maintenance: soon\n",
        "notify: soon\n",
        "notify: [{name: a}]\n",
        "notify: [{name: a, url: 'https://hooks.example/x'}]\n",
        "notify: [{name: a, url_env: A, url_file: a}]\n",
        "notify: [{name: a, url_env: A, tell: [everything]}]\n",
        "notify: [{name: a, url_env: A, tell: []}]\n",
        "notify: [{name: a, url_env: A}, {name: a, url_env: B}]\n",
        "rules: {A: 1}\n",
        "{",
        "caches: {}\n",
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str):
    with pytest.raises(RedLinesError, match=r"redline\.yaml"):
        load(file(tmp_path, text))


_SCALARS = st.none() | st.integers() | st.text() | st.booleans()
_NESTED = st.recursive(
    _SCALARS, lambda each: st.lists(each) | st.dictionaries(st.text(), each), max_leaves=6
)


@given(st.dictionaries(st.text(), _NESTED, max_size=4))
def test_whatever_is_written_is_a_policy_or_a_refusal_that_says_so(rules: dict[str, Any]):
    try:
        policy = make(LINES, rules)
    except PolicyError:
        assert "please mend" in refused(rules)
    else:
        assert isinstance(policy, Policy)


_KEYS = st.sampled_from([*SOFT, "milestone", "enabled"])
_VALUES = st.sampled_from(
    ["faults", "latency", "cache", [], ["rate > 0.1"], ["hit_rate < 1"], ["requests > 1e3"], "0s",
     "faults.recent_s", 3, -1, None, "page", "shed", "none", "first_token", "{limit", "x.md", True]
)  # fmt: skip


@given(st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_whatever_is_changed_of_a_rule_it_is_whole_or_refused(change: dict[str, Any]):
    try:
        policy = make(LINES, {"ManySoftFaults": {**SOFT, **change}})
    except PolicyError:
        return
    for rule in policy.rules:
        compiled = alert.of_rule(rule, LINES)
        assert compiled.expr.count("(") == compiled.expr.count(")")
        assert rule.action in BACKED or rule.severity is not Severity.ACTION
        assert all(condition.column.table is rule.table for condition in rule.conditions)
        assert rule.table in Table


# ---------------------------------------------------------------- its document
DOCUMENT = (Path(alert.__file__).parents[1] / "docs/policy.md").read_text()


def test_every_example_of_the_document_is_a_policy(tmp_path: Path):
    examples = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.S)
    assert len(examples) == 4
    policy = load(file(tmp_path, "".join(examples)))
    assert policy.rule("ManySoftFaults") is not None
    assert len(policy.maintenance) == 1
    assert policy.lines.cache.gpu_mem_gb == 60


def test_the_document_tells_of_every_key_and_every_column():
    keys = {field.alias or name for name, field in RuleText.model_fields.items()}
    told = set(re.findall(r"`(\w+)`", DOCUMENT))
    assert keys - told == set()
    assert {column.name for column in COLUMNS} - told == set()
    assert {str(action) for action in Action} - told == set()
