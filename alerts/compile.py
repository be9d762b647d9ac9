"""The policy compiled: every alert that Prometheus evaluates, in order."""

from dataclasses import replace

from alerts import burn
from alerts.alert import Alert, of_rule
from alerts.machinery import machinery
from alerts.policy import Policy


def alerts(policy: Policy) -> tuple[Alert, ...]:
    """All alerts, those of error budgets last. Each reads only alerts before it."""
    lines = policy.lines
    return (
        *(of_rule(rule, lines) for rule in policy.rules),
        *_as_told(machinery(lines), policy),
        *budget_alerts(policy),
    )


def budget_alerts(policy: Policy) -> tuple[Alert, ...]:
    """Those of the error budgets, which have a group and an interval of their own."""
    return _as_told(burn.alerts(policy.lines), policy)


def _as_told(found: tuple[Alert, ...], policy: Policy) -> tuple[Alert, ...]:
    """Without those that are switched off, at the severities that were given."""
    return tuple(
        alert if text is None or text.severity is None else replace(alert, severity=text.severity)
        for alert in found
        if (text := policy.machinery.get(alert.name)) is None or text.enabled
    )
