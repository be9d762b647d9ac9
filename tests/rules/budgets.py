"""Scenarios of the error budgets: each pair of windows, both of which it needs.

Windows of days are fed with what a minute brought, as the first two rules of an objective record
it; that those two record it from counters is tried by itself, in minutes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from alerts.burn import PAIRS, Budget, Pair, budgets
from alerts.names import AlertName
from alerts.promql import parse_duration
from monitors.labels import Severity
from tests.rules.near_misses import FAST, HIT, LOOKUP, SERVED, SPOKEN
from tests.rules.scenarios import FEW, Rule, Run, Scenario, needed

BUDGETS = budgets(FEW.lines)
_BURN = AlertName.ERROR_BUDGET_BURN
_STEP = {Severity.PAGE: 1, Severity.TICKET: 10}  # minutes between evaluations
_BUSY, _USUAL = 10_000, 1_000  # events a minute
_LONGEST = 4_500  # minutes: more than three days
FAULTED = SERVED.replace("served", "faulted")


@dataclass(frozen=True)
class Burn:
    """One pair of one objective, and errors that burn it and no other of its severity.

    A shorter pair is told apart by busy hours before its long window, which thin out the longer
    one's; a longer pair by a share of errors that is too small for the shorter one.
    """

    budget: Budget
    pair: Pair

    @property
    def short(self) -> int:
        return _minutes(self.pair.short)

    @property
    def long(self) -> int:
        return _minutes(self.pair.long)

    @property
    def limit(self) -> float:
        return self.pair.factor * self.budget.share

    @property
    def others(self) -> list[Pair]:
        same = [p for p in self.budget.pairs if p.severity is self.pair.severity]
        return [p for p in same if p is not self.pair]

    @property
    def share(self) -> float:
        """Of events that are bad, while they are."""
        shorter = [
            p.factor * self.budget.share for p in self.others if _minutes(p.long) < self.long
        ]
        return (self.limit + min(shorter)) / 2 if shorter else 1.0

    @property
    def busy(self) -> int:
        """Minutes of busy health at first."""
        return max([0, *(_minutes(p.long) - self.long for p in self.others)])

    @property
    def begins(self) -> int:
        return self.busy + self.long

    @property
    def fires(self) -> int:
        """The first evaluation at which the long window holds enough of it. Both ends of a window
        belong to it, so it holds a sample more than minutes."""
        least = math.floor(self.limit * (self.long + 1) / self.share) + 1
        return _up(self.begins + least, self.step)

    @property
    def over(self) -> int:
        """The first evaluation at which the short window has forgotten enough of it."""
        forgotten = math.ceil((self.short + 1) * (1 - self.limit / self.share))
        return _up(self.fires + max(forgotten, 1), self.step)

    @property
    def step(self) -> int:
        return _STEP[self.pair.severity]


def _minutes(window: str) -> int:
    return round(parse_duration(window) / 60)


def _up(minute: int, step: int) -> int:
    return math.ceil(minute / step) * step


def runs() -> list[Run]:
    """Every pair by itself, and what no pair may fire on."""
    made: list[Run] = []
    for budget in BUDGETS:
        for pair in budget.pairs:
            burn = Burn(budget, pair)
            made.append(_run(budget, [_pair(burn)], burn.step, [pair.severity]))
        made.append(_run(budget, [*_quiet(budget)], 30, [*_STEP]))
    return [*made, *_from_counters()]


def _run(
    budget: Budget, scenarios: list[Scenario], step: int, severities: Sequence[Severity]
) -> Run:
    def chosen(rules: Sequence[Rule]) -> list[Rule]:
        derived = [rule for rule in rules if not rule.get("record", "").endswith(":increase1m")]
        labels = [{"slo": budget.objective, "severity": severity} for severity in severities]
        return needed([r for r in derived if _has(r, labels)], derived)

    return Run(scenarios, every=f"{step}m", group="redline-slo", chosen=chosen)


def _has(rule: Rule, any_of: list[dict[str, Any]]) -> bool:
    return any(labels.items() <= rule.get("labels", {}).items() for labels in any_of)


# ---------------------------------------------------------------- one pair
def _pair(burn: Burn) -> Scenario:
    """Fires once both windows are over the limit: the short one was long before. Over when the
    short one is not: the long one is for hours after."""
    bad = burn.fires - burn.begins
    budget = burn.budget
    after = burn.short + 200
    series = {
        budget.minutes: f"{_BUSY}x{burn.busy} {_USUAL}x{burn.long + bad + after}",
        # `0x3` is four values.
        budget.bad_minutes: f"0x{burn.begins} {_USUAL * burn.share:g}x{bad - 1} 0x{after}",
    }
    before = burn.fires - burn.step
    asked = [
        _firing(burn, before, False),
        _is_over(burn, burn.pair.short, before),
        _firing(burn, burn.fires, True),
        _firing(burn, burn.over - burn.step, True),
        _firing(burn, burn.over, False),
        _is_over(burn, burn.pair.long, burn.over),
    ]
    return _named("on time, resolves", f"{budget.objective} {burn.pair.long}", series, asked)


def _firing(burn: Burn, minute: int, whether: bool) -> dict[str, Any]:
    of = f'alertname="{_BURN}",slo="{burn.budget.objective}",severity="{burn.pair.severity}"'
    return _ask(f'count(ALERTS{{{of},alertstate="firing"}})', minute, whether)


def _is_over(burn: Burn, window: str, minute: int) -> dict[str, Any]:
    return _ask(f"count({burn.budget.ratio(window)} > {burn.limit:.6g})", minute, True)


# ---------------------------------------------------------------- what is no burning
def _quiet(budget: Budget) -> Iterator[Scenario]:
    bad, total = budget.bad_minutes, budget.minutes
    long = _LONGEST
    yield _never("missing", "what came is unknown", {bad: f"5x{long}"})
    yield _never("missing", "what was bad is unknown", {total: f"5x{long}"})
    no_share = _ask(f'count({{__name__=~"service:redline_{budget.objective}_bad:ratio.*"}})', long)
    idle = _never("missing", "no traffic", {bad: f"0x{long}", total: f"0x{long}"})
    yield {**idle, "promql_expr_test": [*idle["promql_expr_test"], no_share]}
    limit = min(pair.factor for pair in budget.pairs) * budget.share
    on_it = {bad: f"{1000 * limit:g}x{long}", total: f"1000x{long}"}
    yield _never("on the line", "the budget itself, for days", on_it)
    yield _stale(budget)
    if budget.min_count is not None:
        few = 0.9 * budget.min_count / (_minutes("3d") + 1)
        yield _never("few", "all of few", {bad: f"{few:.6g}x{long}", total: f"{few:.6g}x{long}"})


def _stale(budget: Budget) -> Scenario:
    """All is bad for a day, and then nothing is known any more."""
    series = {budget.bad_minutes: "9x1440 stale", budget.minutes: "9x1440 stale"}
    pages = [pair for pair in PAIRS if pair.severity is Severity.PAGE and pair in budget.pairs]
    longest = max(_minutes(pair.short) for pair in pages)
    page = f'count(ALERTS{{alertname="{_BURN}",severity="page",alertstate="firing"}})'
    asked = [_ask(page, 1440, True), _ask(page, _up(1440 + longest + 1, 30))]
    return _named("stale", f"{budget.objective}", series, asked)


def _never(kind: str, text: str, series: dict[str, str], minutes: int = _LONGEST) -> Scenario:
    ever = f'count_over_time(ALERTS{{alertname="{_BURN}",alertstate="firing"}}[{minutes}m])'
    return _named(kind, text, series, [_ask(f"count({ever})", minutes)])


# ---------------------------------------------------------------- from counters
def _from_counters() -> list[Run]:
    """Each objective's counters, scraped every 10 s, evaluated every minute with all rules."""
    healthy = {
        HIT: "0+95x60", LOOKUP: "0+100x60", FAST: "0+99x60", SPOKEN: "0+100x60",
        SERVED: "0+1000x60", FAULTED: "0+1x60",
    }  # fmt: skip
    restarted = {
        name: f"{values.replace('x60', 'x30')} {values.replace('x60', 'x28')}"
        for name, values in healthy.items()
    }
    bad = {HIT: "0+5x60", FAST: "0+5x60", FAULTED: "0+900x60"}
    counted = [  # six a minute; the step down at 310 s loses one, and is none back to before 0
        {"expr": "service:redline_faults_bad:increase1m", "eval_time": minute, "exp_samples": [
            {"labels": "service:redline_faults_bad:increase1m", "value": count},
        ]}
        for minute, count in (("3m", 6), ("6m", 5))
    ]  # fmt: skip
    well = _never("restart", "counters from 0, all well", restarted, 10)
    made = [
        _slowly({**well, "promql_expr_test": [*well["promql_expr_test"], *counted]}),
        _slowly(_never("missing", "no counter at all", {}, 10)),
    ]
    pages = {
        budget.objective: budget
        for budget in BUDGETS
        if any(pair.severity is Severity.PAGE for pair in budget.pairs)
    }
    pages_of = f'alertname="{_BURN}",severity="page",alertstate="firing"'
    firing = f"count by (slo) (ALERTS{{{pages_of}}})"
    every = [{"labels": f'{{slo="{slo}"}}', "value": 1} for slo in pages]
    asked = [
        {"expr": firing, "eval_time": "0m", "exp_samples": list[Any]()},
        {"expr": firing, "eval_time": "2m", "exp_samples": every},
    ]
    made.append(_slowly(_named("on time", "from counters", {**healthy, **bad}, asked)))
    return [Run(made, every="1m", group="redline-slo")]


def _slowly(scenario: Scenario) -> Scenario:
    return {**scenario, "interval": "10s"}


def _ask(expr: str, minute: int, whether: bool = False) -> dict[str, Any]:
    samples = [{"labels": "{}", "value": 1}] if whether else []
    return {"expr": expr, "eval_time": f"{minute}m", "exp_samples": samples}


def _named(kind: str, text: str, series: dict[str, str], asked: list[dict[str, Any]]) -> Scenario:
    return {
        "name": f"{_BURN} | {kind} | {text}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": asked,
    }
