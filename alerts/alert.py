"""One alert as Prometheus gets it: a rule of the policy, or one about the machinery."""

from dataclasses import dataclass

from alerts.columns import count_column
from alerts.promql import gained, select
from alerts.rule import Condition, Rule
from alerts.wording import describe
from monitors import catalog
from monitors.labels import Action, Severity
from monitors.metric import Label, Table
from monitors.redlines import RedLines


@dataclass(frozen=True)
class Alert:
    """One alert. `when` is the rule in words, `expr` the same in PromQL, held for `for_s`."""

    name: str
    when: str
    expr: str
    for_s: float
    severity: Severity
    action: Action
    summary: str  # a Prometheus template: $labels and $value
    runbook: str  # a file of docs/runbooks, or a URL
    table: Table | None = None
    keep_firing_s: float = 0.0
    labels: tuple[tuple[str, str], ...] = ()  # those that no series carries
    window_s: float = 0.0  # how far back its expression looks; unsaid of error budgets

    @property
    def has_page(self) -> bool:
        """Whether its runbook is a page of ours."""
        return "://" not in self.runbook


def of_rule(rule: Rule, lines: RedLines) -> Alert:
    """A rule compiled to PromQL."""
    operands = [_compare(rule, condition) for condition in rule.conditions]
    count = None if rule.min_count is None else count_column(rule.table)
    if count is not None:
        operands.append(f"{count.expr(rule.milestone)} >= {rule.min_count}")
    if rule.table is Table.FAULTS:
        operands.append(_requests_finish(lines))
    return Alert(
        name=rule.name,
        when=describe(rule, lines),
        expr="\nand ".join(operands),
        for_s=rule.for_s,
        severity=rule.severity,
        action=rule.action,
        summary=rule.summary,
        runbook=rule.runbook,
        table=rule.table,
        keep_firing_s=rule.keep_firing_s,
        window_s=_window_s(rule.table, lines),
    )


def _window_s(table: Table, lines: RedLines) -> float:
    match table:
        case Table.CACHE:
            return lines.cache.hold_s
        case Table.LATENCY:
            return lines.latency.window_s
        case Table.FAULTS:
            return lines.faults.recent_s


def _compare(rule: Rule, condition: Condition) -> str:
    column = condition.column
    limit = f"{condition.limit}" + (f" * {column.scale:g}" if column.scale != 1.0 else "")
    return f"{column.expr(rule.milestone)} {condition.comparison} {limit}"


def _requests_finish(lines: RedLines) -> str:
    """The ring moves with traffic only, so what it holds is news only while some comes: what goes
    into the ring, not what left before it reached the version."""
    return f"{gained(select(catalog.SERVED_REQUESTS), lines.faults.recent_s, Label.VERSION)} > 0"
