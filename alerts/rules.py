"""Compiles the policy to Prometheus rules, and writes Prometheus' own configuration."""

from typing import Any, ClassVar

import yaml

from alerts.policy import CONTROL_JOB, RUNTIME_JOB, Alert, policy
from alerts.promql import duration
from alerts.records import Record, records
from monitors.redlines import AlertLines, RedLines

HEADER = "# generated: redline generate\n"
RUNBOOKS = "docs/runbooks"
SCRAPE_S = 1.0  # the whole path from a breach to the webhook is about one scrape


def render_rules(lines: RedLines, runbooks: str = RUNBOOKS) -> str:
    """The rule file. `runbooks` is what runbook links start with: a folder or a URL."""
    # One group: its rules run in this order, so alerts see what was recorded a moment before.
    recorded = [_record(record) for record in records(lines)]
    alerts = [_alert(alert, runbooks) for alert in policy(lines)]
    return to_yaml({"groups": [{"name": "redline", "rules": recorded + alerts}]})


def _record(record: Record) -> dict[str, Any]:
    return {"record": record.series.name, "expr": record.expr}


def _alert(alert: Alert, runbooks: str) -> dict[str, Any]:
    labels = {"severity": alert.severity.value, "action": alert.action.value}
    if alert.table is not None:
        labels["table"] = alert.table.value
    return {
        "alert": alert.name.value,
        "expr": alert.expr,
        "for": duration(alert.for_s),
        "labels": labels,
        "annotations": {
            "summary": alert.summary,
            "description": alert.when,
            "runbook_url": f"{runbooks}/{alert.name.slug}.md",
            "dashboard": "On-call" if alert.table is None else f"On-call, {alert.table} table",
        },
    }


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
