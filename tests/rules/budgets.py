"""Scenarios of the error budgets: each pair of windows, both of which it needs.

Windows of days are fed with counters as they stand each minute, as the first rules of the group
copy them; that those do is tried by itself, in minutes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from alerts.burn import PAIRS, Budget, Pair, budgets
from alerts.names import AlertName
from alerts.promql import parse_duration
from monitors.labels import Severity
from tests.rules.near_misses import FAST, HIT, LOOKUP, SERVED, SPOKEN
from tests.rules.scenarios import FEW, Rule, Run, Scenario, needed

BUDGETS = budgets(FEW.lines)
_BURN = AlertName.ERROR_BUDGET_BURN
_STEP = {Severity.PAGE: 1, Severity.TICKET: 20}  # minutes between evaluations
_BUSY, _USUAL = 10_000, 1_000  # events a minute
_LONGEST = 4_500  # minutes: more than three days
FAULTED = SERVED.replace("served", "faulted")
Part = tuple[float, int]  # events a minute, for so many minutes


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
        """The first evaluation at which the long window holds enough of it."""
        least = math.floor(round(self.limit * self.long / self.share, 6)) + 1
        return _up(self.begins + least, self.step)

    @property
    def over(self) -> int:
        """The first evaluation at which the short window has forgotten enough of it."""
        forgotten = math.ceil(round(self.short * (1 - self.limit / self.share), 6))
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
        for severity, step in _STEP.items():
            made.append(_run(budget, [_begins(budget, severity)], step, [severity]))
        made.append(_run(budget, [*_quiet(budget)], 60, [*_STEP]))
    return [*made, *_from_counters()]


def _run(
    budget: Budget, scenarios: list[Scenario], step: int, severities: Sequence[Severity]
) -> Run:
    def chosen(rules: Sequence[Rule]) -> list[Rule]:
        derived = [rule for rule in rules if not rule.get("record", "").endswith(":minutely")]
        labels = [{"slo": budget.objective, "severity": severity} for severity in severities]
        return needed([r for r in derived if _has(r, labels)], derived)

    return Run(scenarios, every=f"{step}m", group="redline-slo", chosen=chosen)


def _has(rule: Rule, any_of: list[dict[str, Any]]) -> bool:
    return any(labels.items() <= rule.get("labels", {}).items() for labels in any_of)


# ---------------------------------------------------------------- one pair
def _pair(burn: Burn) -> Scenario:
    """Fires once both windows are over the limit: the short one was long before. Over when the
    short one is not: the long one is for hours after."""
    bad, after = burn.fires - burn.begins, burn.short + 200
    budget = burn.budget
    series = _copies(
        budget,
        total=[(_BUSY, burn.busy), (_USUAL, burn.long + bad + after)],
        bad=[(0, burn.begins), (_USUAL * burn.share, bad), (0, after)],
    )
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


def _copies(
    budget: Budget, total: Sequence[Part], bad: Sequence[Part] | None = None
) -> dict[str, str]:
    """The copies of an objective's counters, from what each minute brought; `bad` is of `total`."""
    every, lost = _minutes_of(total), _minutes_of(total if bad is None else bad)
    good = [each - one for each, one in zip(every, lost, strict=True)]
    served = [_USUAL] * len(every)
    return {
        budget.events.name: _counter(served),
        budget.total.name: _counter(every),
        budget.good.name: _counter(good),
    }


def _minutes_of(parts: Sequence[Part]) -> list[float]:
    return [each for each, minutes in parts for _ in range(minutes)]


def _counter(gains: Sequence[float]) -> str:
    """From 0, in promtool's notation."""
    words, count = ["0"], 0.0
    for gain, group in groupby(gains):
        times = len([*group])
        words.append(f"{count + gain:.12g}+{gain:.12g}x{times - 1}")
        count += gain * times
    return " ".join(words)


def _begins(budget: Budget, severity: Severity) -> Scenario:
    """All is bad from the first request on: that is told once the short window is full of it."""
    pairs = [pair for pair in budget.pairs if pair.severity is severity]
    first = Burn(budget, min(pairs, key=lambda pair: _minutes(pair.short)))
    long = first.short + 2 * first.step
    asked = [
        _ask(f"count({first.budget.ratio(first.pair.short)} == 1)", first.step, True),
        _firing(first, first.short, False),
        _firing(first, first.short + first.step, True),
    ]
    return _named("short", f"{severity}, traffic begins", _copies(budget, [(_USUAL, long)]), asked)


# ---------------------------------------------------------------- what is no burning
def _quiet(budget: Budget) -> Iterator[Scenario]:
    long = _LONGEST
    served = _copies(budget, [(_USUAL, long)])
    for gone, text in ((budget.total, "what came is unknown"), (budget.good, "what was bad is")):
        rest = {name: values for name, values in served.items() if name != gone.name}
        yield _never("missing", text, rest)
    no_share = _ask(f'count({{__name__=~"service:redline_{budget.objective}_bad:ratio.*"}})', long)
    idle = _never("missing", "no traffic", dict.fromkeys(served, f"7x{long}"))
    yield {**idle, "promql_expr_test": [*idle["promql_expr_test"], no_share]}
    limit = min(pair.factor for pair in budget.pairs) * budget.share
    on_it = _copies(budget, [(1000, long)], [(1000 * limit, long)])
    yield _never("on the line", "the budget itself, for days", on_it)
    yield _stale(budget)
    few = _counter([0.9 * budget.min_count / (_minutes("3d") + 1)] * long)
    all_bad = {**served, budget.good.name: f"0x{long}", budget.events.name: few}
    yield _never("few", "all of few", all_bad)


def _stale(budget: Budget) -> Scenario:
    """All is bad for a day, and then nothing is known any more."""
    series = {name: f"{v} stale" for name, v in _copies(budget, [(_USUAL, 1440)]).items()}
    pages = [pair for pair in PAIRS if pair.severity is Severity.PAGE and pair in budget.pairs]
    longest = max(_minutes(pair.short) for pair in pages)
    page = f'count(ALERTS{{alertname="{_BURN}",severity="page",alertstate="firing"}})'
    asked = [_ask(page, 1440, True), _ask(page, _up(1440 + longest + 1, 60))]
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
    well = _never("restart", "counters from 0, all well", restarted, 10)
    # 6,000 a minute; the step down at 310 s loses a thousand, and is none back to before 0.
    counted = _value("service:redline_faults_all:increase5m", "9m", 29_000)
    made = [
        _slowly({**well, "promql_expr_test": [*well["promql_expr_test"], counted]}),
        _slowly(_never("missing", "no counter at all", {}, 10)),
        _slowly(_begins_to_fault(healthy)),
        _slowly(_unseen()),
        _slowly(_leaves()),
    ]
    return [Run(made, every="1m", group="redline-slo")]


def _begins_to_fault(healthy: dict[str, str]) -> Scenario:
    """Each objective that a page of minutes is about."""
    bad = {HIT: "0+5x60", FAST: "0+5x60", FAULTED: "0+900x60"}
    pages = {b.objective for b in BUDGETS if any(pair.short == "5m" for pair in b.pairs)}
    firing = f"count by (slo) (ALERTS{{{_pages()}}})"
    every = [{"labels": f'{{slo="{slo}"}}', "value": 1} for slo in sorted(pages)]
    asked = [
        {"expr": firing, "eval_time": "5m", "exp_samples": list[Any]()},
        {"expr": firing, "eval_time": "6m", "exp_samples": every},
    ]
    return _named("on time", "from counters", {**healthy, **bad}, asked)


def _unseen() -> Scenario:
    """Every third minute nobody can scrape, and all of its requests are faulted."""
    scrapes = range(15 * 6)
    unseen = [scrape // 6 % 3 == 2 for scrape in scrapes]
    faulted = [100 * sum(unseen[:scrape]) for scrape in scrapes]
    series = {
        name: " ".join("stale" if gone else str(n) for gone, n in zip(unseen, counts, strict=True))
        for name, counts in ((SERVED, [100 * n for n in scrapes]), (FAULTED, faulted))
    }
    third = "count(service:redline_faults_bad:ratio1h > 0.3 < 0.36)"
    asked = [_ask(third, 12, True), _ask(f"count(ALERTS{{{_pages()}}})", 12, True)]
    return _named("on time", "faults come while nobody can scrape", series, asked)


def _leaves() -> Scenario:
    """A version whose every request is faulted leaves; what it did counts on beside the next."""
    there, next_one = "0+100x60 stale", "_x60 0+100x60"
    series = {
        SERVED: there, FAULTED: there,
        SERVED.replace('"a"', '"b"'): next_one, FAULTED.replace('"a"', '"b"'): "_x60 0x60",
    }  # fmt: skip
    half = "count(service:redline_faults_bad:ratio1h > 0.45 < 0.6)"
    asked = [_ask(half, 23, True), _ask(f"count(ALERTS{{{_pages()}}})", 23)]
    return _named("short", "a faulty version has left", series, asked)


def _pages() -> str:
    return f'alertname="{_BURN}",severity="page",alertstate="firing"'


def _value(series: str, at: str, value: float) -> dict[str, Any]:
    return {"expr": series, "eval_time": at, "exp_samples": [{"labels": series, "value": value}]}


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
