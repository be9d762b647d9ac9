"""Compiles the policy to Prometheus rules, and writes Prometheus' own configuration."""

from typing import Any, ClassVar

import yaml

from alerts import burn
from alerts.alert import Alert
from alerts.compile import alerts, budget_alerts
from alerts.machinery import CONTROL_JOB, RUNTIME_JOB
from alerts.policy import Policy
from alerts.promql import duration
from alerts.records import Record, records
from monitors.redlines import AlertLines

HEADER = "# generated: redline generate\n"
RUNBOOKS = "docs/runbooks"
RETENTION_S = burn.LONGEST_S + 86_400.0
SCRAPE_S = 1.0  # the whole path from a breach to the webhook is about one scrape


def render_rules(policy: Policy, runbooks: str = RUNBOOKS) -> str:
    """The rule file. `runbooks` is what runbook links start with: a folder or a URL."""
    budgets = budget_alerts(policy)
    others = [alert for alert in alerts(policy) if alert not in budgets]
    slo = [
        *map(_record, burn.records(policy.lines)),
        *(_alert(alert, runbooks) for alert in budgets),
    ]
    # The rules of a group run in this order, so alerts see what was recorded a moment before.
    rules = [
        *map(_record, records(policy.lines)),
        *(_alert(alert, runbooks) for alert in others),
    ]
    every = duration(burn.INTERVAL_S)
    return to_yaml(
        {
            "groups": [
                {"name": "redline", "rules": rules},
                {"name": "redline-slo", "interval": every, "rules": slo},
            ]
        }
    )


def _record(record: Record) -> dict[str, Any]:
    return {"record": record.series.name, "expr": record.expr}


def _alert(alert: Alert, runbooks: str) -> dict[str, Any]:
    labels = {"severity": alert.severity.value, "action": alert.action.value}
    if alert.table is not None:
        labels["table"] = alert.table.value
    held = {"for": duration(alert.for_s)}
    if alert.keep_firing_s:
        held["keep_firing_for"] = duration(alert.keep_firing_s)
    return {
        "alert": str(alert.name),
        "expr": alert.expr,
        **held,
        "labels": {**labels, **dict(alert.labels)},
        "annotations": {
            "summary": alert.summary,
            "description": alert.when,
            "runbook_url": runbook_of(alert, runbooks),
            "dashboard": "On-call" if alert.table is None else f"On-call, {alert.table} table",
        },
    }


def runbook_of(alert: Alert, runbooks: str = RUNBOOKS) -> str:
    """Where its runbook is: below the folder or URL of ours, or a URL of its own."""
    return f"{runbooks}/{alert.runbook}" if alert.has_page else alert.runbook


def render_prometheus(*, runtime: str, control: str, alertmanager: str, rule_file: str) -> str:
    """Prometheus' configuration. Addresses are `host:port`."""
    scrape = duration(SCRAPE_S)
    return to_yaml(
        {
            "global": {
                "scrape_interval": scrape,
                "scrape_timeout": scrape,
                "evaluation_interval": scrape,
            },
            "rule_files": [rule_file],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
            "scrape_configs": [
                {"job_name": RUNTIME_JOB, "static_configs": [{"targets": [runtime]}]},
                {"job_name": CONTROL_JOB, "static_configs": [{"targets": [control]}]},
            ],
        }
    )


def prometheus_flags(lines: AlertLines) -> tuple[str, ...]:
    """Flags Prometheus must be started with.

    Alertmanager takes an alert for resolved four resend delays after its last news of it; at
    the default of a minute the Watchdog would go on beating four minutes after Prometheus died.
    """
    return (f"--rules.alert.resend-delay={duration(lines.heartbeat_s / 4)}",)


def retention() -> str:
    """The flag for the least that Prometheus must remember: what the longest window looks at."""
    return f"--storage.tsdb.retention.time={duration(RETENTION_S)}"


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """Texts of several lines become blocks, so that a rule reads as PromQL."""
    style = "|" if "\n" in text else None
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, style=style)


class _Dumper(yaml.SafeDumper):
    yaml_representers: ClassVar[dict[Any, Any]] = {**yaml.SafeDumper.yaml_representers, str: _text}


def to_yaml(document: dict[str, Any]) -> str:
    """A generated YAML file: its header, then the document in the order given."""
    return HEADER + yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, width=1_000, allow_unicode=True
    )
