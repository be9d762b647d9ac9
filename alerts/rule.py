"""One rule of the policy: which table columns cross which limits, for how long, and what then."""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from alerts.columns import Column, Row, count_column
from monitors.labels import Action, Milestone, Severity
from monitors.metric import Table

# What the ladder answers by degrading; its last rung is what `RedlineLadderExhausted` asks for.
# Not shedding: a slow first packet alone must turn nobody away before any media is given up.
DEGRADING = (Action.DEGRADE_MEDIA, Action.QUANTISE_KV)
# Actions that may wake nobody, for a page of its own tells where they were no help (ADR 12):
# `RedlineLadderExhausted` and `RedlineFirstPacketSlow`.
BACKED = (*DEGRADING, Action.SHED)
_NAME = re.compile(r"(?:[A-Z][a-z0-9]+)+")


class RuleError(ValueError):
    """A rule that cannot be; the message says what to do."""


class Comparison(StrEnum):
    """How a column is compared with its limit."""

    BELOW = "<"
    AT_MOST = "<="
    ABOVE = ">"
    AT_LEAST = ">="


_OPERATOR: dict[Comparison, Callable[[float, float], bool]] = {
    Comparison.BELOW: operator.lt,
    Comparison.AT_MOST: operator.le,
    Comparison.ABOVE: operator.gt,
    Comparison.AT_LEAST: operator.ge,
}


def holds(value: float | None, comparison: Comparison, limit: float) -> bool:
    """Whether `value` stands so to `limit`. What is unknown never does."""
    return value is not None and _OPERATOR[comparison](value, limit)


@dataclass(frozen=True)
class Condition:
    """One comparison; `limit` is in the column's unit."""

    column: Column
    comparison: Comparison
    limit: float

    def __post_init__(self) -> None:
        told = f"{self.column.name} {self.comparison} {self.limit:g}"
        if not math.isfinite(self.limit):
            raise RuleError(f"{told}: give a number")
        least, most = 0.0, math.inf if self.column.most is None else self.column.most
        possible = {holds(value, self.comparison, self.limit) for value in (least, most)}
        if len(possible) == 1:
            span = "0 up" if self.column.most is None else f"0 to {most:g}"
            never = "always holds" if possible == {True} else "can never hold"
            raise RuleError(f"{told} {never}: the column goes from {span}")

    def holds(self, row: Row) -> bool:
        """Whether a row of the column's table fulfils it."""
        return holds(self.column.read(row), self.comparison, self.limit)


@dataclass(frozen=True)
class Rule:
    """Fires once all `conditions` held at once, without a break, for `for_s`; goes on firing for
    `keep_firing_s` after. Each version, and of table 2 each first output, by itself.

    `min_count`: with fewer requests it does not hold (None: at any count). `milestone`: of this
    first output only. A rule on the fault table holds only while requests finish: the ring
    stands still without traffic, and what it holds is then no news (`faults.recent_s`).
    """

    name: str
    table: Table
    conditions: tuple[Condition, ...]
    min_count: int | None
    milestone: Milestone | None
    for_s: float
    keep_firing_s: float
    severity: Severity
    action: Action
    runbook: str  # the page's file name in docs/runbooks
    summary: str  # a Prometheus template: $labels and $value, of the first condition's series

    def __post_init__(self) -> None:
        for wrong, what in self._faults():
            if wrong:
                raise RuleError(what)

    def holds(self, row: Row) -> bool:
        """Whether all conditions and the minimum count hold in a row of the rule's table. Whether
        requests finish, of table 3, the caller must know."""
        count = count_column(self.table)
        enough = self.min_count is None or (
            count is not None and holds(count.read(row), Comparison.AT_LEAST, self.min_count)
        )
        return enough and all(condition.holds(row) for condition in self.conditions)

    def _faults(self) -> tuple[tuple[bool, str], ...]:
        others = [c.column.name for c in self.conditions if c.column.table is not self.table]
        return (
            (not _NAME.fullmatch(self.name), "a rule's name is in PascalCase, as MyQueueTooLong"),
            (not self.conditions, "a rule needs at least one condition"),
            (
                self.severity is Severity.ACTION and self.action not in BACKED,
                f"with action {self.action} it needs severity page or ticket: no page backs it up",
            ),
            (
                self.severity is Severity.HEARTBEAT,
                "only the Watchdog is a heartbeat: choose page, ticket or action",
            ),
            (bool(others), f"{', '.join(others)}: of another table than {self.table}"),
            (
                self.min_count is not None and count_column(self.table) is None,
                f"table {self.table} counts no requests: leave min_count out",
            ),
            (self.min_count is not None and self.min_count < 1, "min_count is at least 1"),
            (
                self.milestone is not None and self.table is not Table.LATENCY,
                f"only table {Table.LATENCY} knows first outputs: leave milestone out",
            ),
            (not _is_duration(self.for_s), "`for` is a duration from 0 up"),
            (not _is_duration(self.keep_firing_s), "keep_firing_for is a duration from 0 up"),
        )


def _is_duration(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds >= 0.0
