"""Alertmanager's configuration: every alert to the control plane, some to people as well."""

from typing import Any

from alerts.policy import AlertName
from alerts.promql import duration
from alerts.rules import to_yaml
from monitors.labels import Severity
from monitors.metric import Label
from monitors.redlines import AlertLines

CONTROL_PLANE, ON_CALL = "control-plane", "on-call"

# (source, what it makes superfluous, labels that must agree). Only notices to people are muted:
# Alertmanager mutes an alert for every receiver, so an action must never be a target here.
MUTES: tuple[tuple[AlertName, tuple[AlertName, ...], tuple[str, ...]], ...] = (
    (AlertName.FAULT_RATE, (AlertName.FIRST_PACKET_SLOW,), (Label.VERSION,)),
    (AlertName.LATENCY_DEGRADE, (AlertName.FIRST_PACKET_SLOW,), (Label.VERSION,)),
    (AlertName.DATA_PLANE_DOWN, (AlertName.NO_DATA, AlertName.NO_TRAFFIC), ()),
    (AlertName.RESIDENT_DOWN, (AlertName.NO_DATA, AlertName.NO_TRAFFIC), (Label.VERSION,)),
)


def render_alertmanager(
    *,
    webhook_url: str,
    credentials_file: str,
    oncall_url: str | None = None,
    lines: AlertLines | None = None,
) -> str:
    """Alertmanager's configuration.

    `credentials_file` holds the bearer token of `webhook_url`. `oncall_url` is a webhook that
    wakes people; without one, alerts for them show in Alertmanager only. `lines` None: the
    default ones.
    """
    beats = lines or AlertLines()
    return to_yaml(
        {
            "route": _routes(beats),
            "inhibit_rules": [_inhibit(source, targets, equal) for source, targets, equal in MUTES],
            "receivers": [
                {
                    "name": CONTROL_PLANE,
                    "webhook_configs": [_control_webhook(webhook_url, credentials_file)],
                },
                {
                    "name": ON_CALL,
                    "webhook_configs": [{"url": oncall_url}] if oncall_url else [],
                },
            ],
        }
    )


def _routes(beats: AlertLines) -> dict[str, Any]:
    """The root catches what nothing else does, so that no alert is lost."""
    return {
        "receiver": ON_CALL,
        "group_by": ["..."],
        "group_wait": "0s",
        "group_interval": "1s",
        "repeat_interval": "4h",
        "routes": [
            {
                "receiver": CONTROL_PLANE,
                "matchers": [f'alertname="{AlertName.WATCHDOG}"'],
                "repeat_interval": duration(beats.heartbeat_s),
            },
            {
                "receiver": CONTROL_PLANE,
                "matchers": ['alertname=~"Redline.+"'],
                "repeat_interval": duration(beats.repeat_s),
                "continue": True,  # to the next sibling, which must therefore exist
            },
            {
                "receiver": ON_CALL,
                "matchers": [f'severity=~"{Severity.PAGE}|{Severity.TICKET}"'],
            },
        ],
    }


def _control_webhook(url: str, credentials_file: str) -> dict[str, Any]:
    return {
        "url": url,
        "send_resolved": True,
        "http_config": {"authorization": {"type": "Bearer", "credentials_file": credentials_file}},
    }


def _inhibit(
    source: AlertName, targets: tuple[AlertName, ...], equal: tuple[str, ...]
) -> dict[str, Any]:
    return {
        "source_matchers": [f'alertname="{source}"'],
        "target_matchers": [f'alertname=~"{"|".join(targets)}"'],
        "equal": [str(label) for label in equal],
    }
