"""Error budgets: the three red lines as objectives of the whole service, and how fast they burn.

Multi-window, multi-burn-rate alerts after Google's SRE workbook, chapter 5 (ADR 29). Fed by
increments of one minute: three days of raw samples, one a second, would be read each minute.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from alerts.alert import Alert
from alerts.figures import in_words
from alerts.names import AlertName
from alerts.promql import increase, or_zero, parse_duration, percent, select
from alerts.records import Record
from monitors import catalog
from monitors.labels import Action, Milestone, Severity
from monitors.metric import Label, Table
from monitors.recorded import Recorded
from monitors.redlines import RedLines

INTERVAL_S = 60.0  # of the group: what one increment is of
SLO = "slo"  # the label that tells the objectives' alerts apart


class Objective(StrEnum):
    """A red line as what the service promises; its error budget is the share that may miss."""

    CACHE = "cache_hit_rate"
    FIRST_PACKET = "first_packet"
    FAULTS = "faults"


@dataclass(frozen=True)
class Pair:
    """Burning `factor` times as fast as the budget lasts, over both windows: the long one says
    that it matters, the short one that it still goes on."""

    short: str
    long: str
    factor: float
    severity: Severity


# Of a month's budget: 2 % in an hour, 5 % in six, 10 % in a day, 10 % in three days.
PAIRS = (
    Pair("5m", "1h", 14.4, Severity.PAGE),
    Pair("30m", "6h", 6.0, Severity.PAGE),
    Pair("2h", "1d", 3.0, Severity.TICKET),
    Pair("6h", "3d", 1.0, Severity.TICKET),
)
LONGEST_S = max(parse_duration(pair.long) for pair in PAIRS)


@dataclass(frozen=True)
class Budget:
    """One objective. `bad` and `total` are PromQL: what a minute brought, service-wide.

    `min_count`: of so many events at least in the long window. None: of a mass, not of events.
    """

    objective: Objective
    table: Table
    share: float
    bad: str
    total: str
    min_count: int | None
    what: str

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Those that can fire: no share of errors is above 1, so of a budget of 10 % none burns
        14.4 times as fast."""
        return tuple(pair for pair in PAIRS if pair.factor * self.share < 1.0)

    @property
    def bad_minutes(self) -> str:
        """The recorded series of `bad`."""
        return f"service:redline_{self.objective}_bad:increase1m"

    @property
    def minutes(self) -> str:
        """The recorded series of `total`."""
        return f"service:redline_{self.objective}_all:increase1m"

    def ratio(self, window: str) -> str:
        """The recorded share of errors over a window."""
        return f"service:redline_{self.objective}_bad:ratio{window}"


def budgets(lines: RedLines) -> tuple[Budget, ...]:
    """The three objectives at these red lines; one without any budget has no rate."""
    every = (_cache(lines), _first_packet(lines), _faults(lines))
    return tuple(budget for budget in every if budget.share > 0.0)


def _cache(lines: RedLines) -> Budget:
    looked_up = f"sum({increase(select(catalog.RESIDENCY_LOOKUP_MASS), INTERVAL_S)})"
    hit = f"sum({increase(select(catalog.RESIDENCY_HIT_MASS), INTERVAL_S)})"
    return Budget(
        objective=Objective.CACHE,
        table=Table.CACHE,
        share=round(1.0 - lines.cache.hit_rate_floor, 9),
        bad=f"clamp_min({looked_up} - {hit}, 0)",
        total=looked_up,
        min_count=None,
        what="of the attention mass is not found in the cache",
    )


def _first_packet(lines: RedLines) -> Budget:
    """As table 2 counts: each request once, in time or as it crosses the degrade line."""
    latency = lines.latency
    audio = f'{Label.MILESTONE}="{Milestone.FIRST_AUDIO_PACKET}"'

    def answered_by(seconds: float) -> str:
        bound = f'le="{catalog.bound_label(seconds)}"'
        bucket = select(catalog.FIRST_OUTPUT, audio, bound, suffix="_bucket")
        return f"sum({increase(bucket, INTERVAL_S)})"

    in_time = answered_by(latency.degrade_s)
    overdue = f"sum({increase(select(catalog.OVERDUE, audio), INTERVAL_S)})"
    line = in_words(latency.first_packet_s)
    total = f"{or_zero(in_time, overdue)}\n+ {or_zero(overdue, in_time)}"
    fast = or_zero(answered_by(latency.first_packet_s), overdue)
    return Budget(
        objective=Objective.FIRST_PACKET,
        table=Table.LATENCY,
        share=latency.first_packet_exceedance,
        bad=f"clamp_min({total}\n- {fast}, 0)",
        total=total,
        min_count=latency.min_count,
        what=f"of the spoken answers have no first packet within {line}",
    )


def _faults(lines: RedLines) -> Budget:
    return Budget(
        objective=Objective.FAULTS,
        table=Table.FAULTS,
        share=lines.faults.rate,
        bad=f"sum({increase(select(catalog.FAULTED_REQUESTS), INTERVAL_S)})",
        total=f"sum({increase(select(catalog.SERVED_REQUESTS), INTERVAL_S)})",
        min_count=lines.faults.min_count,
        what="of the finished requests are faulted",
    )


# ---------------------------------------------------------------- what is recorded
def records(lines: RedLines) -> tuple[Record, ...]:
    """Each minute's increments, and their shares over every window that a pair has."""
    return tuple(record for budget in budgets(lines) for record in _records(budget))


def _records(budget: Budget) -> Iterator[Record]:
    def series(name: str, meaning: str) -> Recorded:
        return Recorded(name, meaning, (), budget.table, "")

    yield Record(series(budget.bad_minutes, "What a minute brought that was bad."), budget.bad)
    yield Record(series(budget.minutes, "What a minute brought in all."), budget.total)
    for window in _windows(budget):
        bad = f"sum_over_time({budget.bad_minutes}[{window}])"
        # No traffic is not health: a window without any has no share.
        share = f"{bad}\n/ (sum_over_time({budget.minutes}[{window}]) > 0)"
        yield Record(series(budget.ratio(window), f"Share {budget.what}, of {window}."), share)


def _windows(budget: Budget) -> list[str]:
    used = {window for pair in budget.pairs for window in (pair.short, pair.long)}
    return sorted(used, key=parse_duration)


# ---------------------------------------------------------------- what is alerted on
def alerts(lines: RedLines) -> tuple[Alert, ...]:
    """One alert for each objective and severity, so that a ticket is no second page."""
    return tuple(
        _alert(budget, severity, pairs)
        for budget in budgets(lines)
        for severity in (Severity.PAGE, Severity.TICKET)
        if (pairs := [pair for pair in budget.pairs if pair.severity is severity])
    )


def _alert(budget: Budget, severity: Severity, pairs: list[Pair]) -> Alert:
    said = [
        f"above {percent(_limit(budget, pair))} over {pair.short} and {pair.long}" for pair in pairs
    ]
    least = "" if budget.min_count is None else f", of at least {budget.min_count:,} in the longer"
    return Alert(
        name=AlertName.ERROR_BUDGET_BURN,
        when=f"The share of the whole service that {_clause(budget)} is {', or '.join(said)}"
        f"{least} (budget {percent(budget.share)}).",
        expr="\nor ".join(_burns(budget, pair) for pair in pairs),
        for_s=0.0,
        severity=severity,
        action=Action.NONE,
        summary=f"{{{{ $value | humanizePercentage }}}} {budget.what}, with a budget of "
        f"{percent(budget.share)}",
        runbook=AlertName.ERROR_BUDGET_BURN.page,
        table=budget.table,
        labels=((SLO, budget.objective.value),),
    )


def _clause(budget: Budget) -> str:
    return {
        Objective.CACHE: "misses the cache, by attention mass,",
        Objective.FIRST_PACKET: "has no first packet in time",
        Objective.FAULTS: "is faulted",
    }[budget.objective]


def _burns(budget: Budget, pair: Pair) -> str:
    limit = f"{_limit(budget, pair):.6g}"
    both = f"{budget.ratio(pair.short)} > {limit} and {budget.ratio(pair.long)} > {limit}"
    if budget.min_count is None:
        return f"({both})"
    return f"({both} and sum_over_time({budget.minutes}[{pair.long}]) >= {budget.min_count})"


def _limit(budget: Budget, pair: Pair) -> float:
    return pair.factor * budget.share
