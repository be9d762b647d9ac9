"""Error budgets: the three red lines as objectives of the whole service, and how fast they burn.

Multi-window, multi-burn-rate alerts after Google's SRE workbook, chapter 5 (ADR 29). Fed by
copies of the counters, one a minute: three days of samples of each second are too many to read.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from alerts.alert import Alert
from alerts.figures import in_words
from alerts.names import AlertName
from alerts.promql import or_zero, parse_duration, percent, select
from alerts.records import Record
from monitors import catalog
from monitors.labels import Action, Milestone, Severity
from monitors.metric import Label, Metric, Table
from monitors.recorded import BURN_PAGES, Objective, Recorded, missed
from monitors.redlines import RedLines

INTERVAL_S = 60.0  # of the group: how far apart the copies are
SLO = "slo"  # the label that tells the objectives' alerts apart


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
    Pair("30m", "6h", BURN_PAGES, Severity.PAGE),
    Pair("2h", "1d", 3.0, Severity.TICKET),
    Pair("6h", "3d", 1.0, Severity.TICKET),
)
LONGEST_S = max(parse_duration(pair.long) for pair in PAIRS)


@dataclass(frozen=True)
class Copy:
    """Counters copied once a minute, summed by version and no further: a version that leaves, and
    one that starts again, is then no drop of the others' sum. `expr` never falls otherwise."""

    name: str
    expr: str

    def gained(self, window: str) -> str:
        """What it gained service-wide. What came while nobody could scrape is in the next copy."""
        return f"sum(increase({self.name}[{window}]))"


@dataclass(frozen=True)
class Budget:
    """One objective: of what `total` counts, `good` is what kept it.

    `events`: of so many, `min_count`, at least in the long window.
    """

    objective: Objective
    table: Table
    share: float
    good: Copy
    total: Copy
    events: Copy
    min_count: int
    what: str

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Those that can fire: no share of errors is above 1, so of a budget of 10 % none burns
        14.4 times as fast."""
        return tuple(pair for pair in PAIRS if pair.factor * self.share < 1.0)

    def all(self, window: str) -> str:
        """The recorded gain of `total`; none in a window without any."""
        return f"service:redline_{self.objective}_all:increase{window}"

    def ratio(self, window: str) -> str:
        """The recorded share of errors over a window."""
        return missed(self.objective, window).name


def budgets(lines: RedLines) -> tuple[Budget, ...]:
    """The three objectives at these red lines; one without any budget has no rate."""
    every = (_cache(lines), _first_packet(lines), _faults(lines))
    return tuple(budget for budget in every if budget.share > 0.0)


_SERVED = Copy("version:redline_served:minutely", select(catalog.SERVED_REQUESTS))


def _cache(lines: RedLines) -> Budget:
    """Masses are fractions, whose sums differ by their order: of whole thousandths they do not."""

    def mass(name: str, metric: Metric) -> Copy:
        cells = f"{Label.LAYER}, {Label.MODALITY}"
        return Copy(name, f"sum without ({cells}) (floor({select(metric)} * 1000))")

    return Budget(
        objective=Objective.CACHE,
        table=Table.CACHE,
        share=round(1.0 - lines.cache.hit_rate_floor, 9),
        good=mass("version:redline_mass_found:minutely", catalog.RESIDENCY_HIT_MASS),
        total=mass("version:redline_mass_looked_up:minutely", catalog.RESIDENCY_LOOKUP_MASS),
        events=_SERVED,
        min_count=lines.alerts.budget_min_count,
        what="of the attention mass is not found in the cache",
    )


def _first_packet(lines: RedLines) -> Budget:
    """As table 2 counts: each request once, in time or as it crosses the degrade line."""
    latency, line = lines.latency, in_words(lines.latency.first_packet_s)
    audio = f'{Label.MILESTONE}="{Milestone.FIRST_AUDIO_PACKET}"'

    def answered_by(seconds: float) -> str:
        bound = f'le="{catalog.bound_label(seconds)}"'
        return f"sum without (le) ({select(catalog.FIRST_OUTPUT, audio, bound, suffix='_bucket')})"

    in_time, overdue = answered_by(latency.degrade_s), select(catalog.OVERDUE, audio)
    spoken = Copy(
        "version:redline_spoken:minutely",
        f"{or_zero(in_time, overdue)}\n+ {or_zero(overdue, in_time)}",
    )
    fast = or_zero(answered_by(latency.first_packet_s), spoken.name)
    return Budget(
        objective=Objective.FIRST_PACKET,
        table=Table.LATENCY,
        share=latency.first_packet_exceedance,
        good=Copy("version:redline_spoken_in_time:minutely", fast),
        total=spoken,
        events=spoken,
        min_count=max(latency.min_count, lines.alerts.budget_min_count),
        what=f"of the spoken answers have no first packet within {line}",
    )


def _faults(lines: RedLines) -> Budget:
    faulted = select(catalog.FAULTED_REQUESTS)
    return Budget(
        objective=Objective.FAULTS,
        table=Table.FAULTS,
        share=lines.faults.rate,
        good=Copy("version:redline_unfaulted:minutely", f"{_SERVED.expr} - {faulted}"),
        total=_SERVED,
        events=_SERVED,
        min_count=max(lines.faults.min_count, lines.alerts.budget_min_count),
        what="of the finished requests are faulted",
    )


# ---------------------------------------------------------------- what is recorded
def records(lines: RedLines) -> tuple[Record, ...]:
    """The counters as they stand each minute, and of every window that a pair has its share."""
    every = budgets(lines)
    copies = {
        copy.name: _record(copy.name, "A counter, once a minute.", copy.expr, budget.table)
        for budget in every
        for copy in (budget.events, budget.total, budget.good)
    }
    return (*copies.values(), *(record for budget in every for record in _shares(budget)))


def _shares(budget: Budget) -> Iterator[Record]:
    for window in _windows(budget):
        total, good = budget.total.gained(window), budget.good.gained(window)
        all_, meaning = budget.all(window), f"Share {budget.what}, of {window}."
        # No traffic is not health: a window without any has no share.
        yield _record(all_, f"What counts in {window}.", f"{total} > 0", budget.table)
        share = f"clamp_min({all_} - {good}, 0)\n/ {all_}"
        yield _record(budget.ratio(window), meaning, share, budget.table)


def _record(name: str, meaning: str, expr: str, table: Table) -> Record:
    return Record(Recorded(name, meaning, (), table, ""), expr)


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
    least = (
        f"of at least {budget.min_count:,} requests in the longer and with some before the shorter"
    )
    return Alert(
        name=AlertName.ERROR_BUDGET_BURN,
        when=f"The share of the whole service that {_clause(budget)} is {', or '.join(said)}"
        f", {least} (budget {percent(budget.share)}).",
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
    own = budget.events is budget.total
    events = budget.all(pair.long) if own else budget.events.gained(pair.long)
    both = f"{budget.ratio(pair.short)} > {limit} and {budget.ratio(pair.long)} > {limit}"
    return f"({both} and {events} >= {budget.min_count} and {_is_full(budget, pair)})"


def _is_full(budget: Budget, pair: Pair) -> str:
    """That something came before the short window, too: the first bad minutes of all are no hours,
    though they are all that a window of hours holds."""
    return f"count_over_time({budget.all(pair.short)}[{pair.short}] offset {pair.short}) > 0"


def _limit(budget: Budget, pair: Pair) -> float:
    return pair.factor * budget.share
