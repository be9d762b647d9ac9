"""A rule, its columns and its comparisons: what can be said, and what cannot."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.columns import COLUMNS, Row, UnknownColumn, column, count_column, rows_of
from alerts.rule import Comparison, Condition, Rule, RuleError, holds
from monitors.cache_table import CacheSummary
from monitors.fault_table import FaultRow
from monitors.labels import Action, Fault, Milestone, Severity
from monitors.latency_table import LatencyRow
from monitors.metric import Table
from monitors.redlines import RedLines
from monitors.tables import Tables, lines_shown, windows

CACHE = CacheSummary(version="v1", hit_rate=0.8, gpu_mem_gb=26.0)
LATENCY = LatencyRow(
    version="v1",
    milestone=Milestone.FIRST_TOKEN,
    count=500,
    over=7,
    requests=100,
    p50_s=0.1,
    p95_s=0.2,
    p99_s=0.3,
    over_share=0.02,
    slow_share=0.06,
)
FAULTS = FaultRow(
    version="v1",
    fault=None,
    finished=300,
    answered=299,
    requests=200,
    faulted=4,
    rate=0.02,
    rate_low=0.01,
    rate_high=0.05,
    soft=3,
    input_only=1,
)
ROW: dict[Table, Row] = {Table.CACHE: CACHE, Table.LATENCY: LATENCY, Table.FAULTS: FAULTS}
RULE = Rule(
    name="RedlineLatencyDegrade",
    table=Table.LATENCY,
    conditions=(Condition(column(Table.LATENCY, "over_share"), Comparison.ABOVE, 0.01),),
    min_count=100,
    milestone=None,
    for_s=0.0,
    keep_firing_s=0.0,
    severity=Severity.ACTION,
    action=Action.DEGRADE_MEDIA,
    runbook="redline-latency-degrade.md",
    summary="late",
)


# ---------------------------------------------------------------- comparisons
@pytest.mark.parametrize("comparison", Comparison)
def test_what_is_unknown_never_holds(comparison: Comparison):
    assert not holds(None, comparison, 0.0)
    assert not holds(math.nan, comparison, 0.0)


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_a_comparison_and_its_opposite_never_agree(value: float, limit: float):
    assert holds(value, Comparison.BELOW, limit) != holds(value, Comparison.AT_LEAST, limit)
    assert holds(value, Comparison.ABOVE, limit) != holds(value, Comparison.AT_MOST, limit)
    assert holds(value, Comparison.ABOVE, limit) == (value > limit)


# ---------------------------------------------------------------- columns
@pytest.mark.parametrize("each", COLUMNS, ids=lambda c: f"{c.table}-{c.name}")
def test_each_column_is_read_from_a_row_of_its_table(each):
    row = ROW[each.table]
    assert each.read(row) == getattr(row, each.name)


def test_an_unknown_value_is_read_as_unknown():
    unknown = CacheSummary(version="v1", hit_rate=None, gpu_mem_gb=None)
    assert column(Table.CACHE, "hit_rate").read(unknown) is None


def test_rules_read_rows_of_a_version_and_not_of_one_fault():
    of_one = FaultRow(**{**{f: getattr(FAULTS, f) for f in FAULTS.__struct_fields__},
                         "fault": Fault.LIP_DESYNC})  # fmt: skip
    tables = Tables(
        wall=0.0,
        windows=windows(RedLines()),
        lines=lines_shown(RedLines()),
        cache=(),
        cache_summary=(CACHE,),
        latency=(LATENCY,),
        faults=(FAULTS, of_one),
    )
    assert {table: rows_of(tables, table) for table in Table} == {
        table: (row,) for table, row in ROW.items()
    }


@pytest.mark.parametrize(
    ("quantile", "instead"), [("p99_s", "over_share"), ("p95_s", "slow_share")]
)
def test_a_quantile_is_refused_with_the_column_to_use(quantile: str, instead: str):
    with pytest.raises(UnknownColumn, match=f"quantile.*compare {instead}"):
        column(Table.LATENCY, quantile)


def test_another_tables_column_is_refused_with_those_there_are():
    with pytest.raises(UnknownColumn, match=r"cache has no column rate .* hit_rate, gpu_mem_gb"):
        column(Table.CACHE, "rate")


def test_the_cache_table_counts_no_requests():
    assert count_column(Table.CACHE) is None
    assert count_column(Table.LATENCY) is column(Table.LATENCY, "requests")


# ---------------------------------------------------------------- rules
def test_a_rule_holds_where_all_its_conditions_and_its_count_do():
    slow = Condition(column(Table.LATENCY, "slow_share"), Comparison.AT_LEAST, 0.06)
    assert RULE.holds(LATENCY)
    assert replace(RULE, conditions=(*RULE.conditions, slow)).holds(LATENCY)
    assert not replace(RULE, conditions=(*RULE.conditions, replace(slow, limit=0.07))).holds(
        LATENCY
    )
    assert not replace(RULE, min_count=101).holds(LATENCY)
    assert replace(RULE, min_count=None).holds(LATENCY)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": "latency_degrade"}, "PascalCase"),
        ({"conditions": ()}, "at least one condition"),
        ({"table": Table.FAULTS}, "over_share: of another table than faults"),
        ({"min_count": 0}, "at least 1"),
        ({"for_s": -1.0}, "from 0 up"),
        ({"for_s": math.inf}, "from 0 up"),
        ({"keep_firing_s": math.nan}, "from 0 up"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_what_to_do(wrong, says: str):
    with pytest.raises(RuleError, match=says):
        replace(RULE, **wrong)


def test_a_count_and_a_first_output_only_where_the_table_has_them():
    of_cache = Condition(column(Table.CACHE, "hit_rate"), Comparison.BELOW, 0.9)
    cache = replace(RULE, table=Table.CACHE, conditions=(of_cache,), min_count=None)
    with pytest.raises(RuleError, match="counts no requests"):
        replace(cache, min_count=5)
    with pytest.raises(RuleError, match="only table latency knows first outputs"):
        replace(cache, milestone=Milestone.FIRST_TOKEN)


def test_a_limit_is_a_number():
    with pytest.raises(RuleError, match="give a number"):
        Condition(column(Table.CACHE, "hit_rate"), Comparison.BELOW, math.nan)
