"""Bodies as Alertmanager sends them."""

import json
from datetime import UTC, datetime
from typing import Any

from alerts.names import AlertName
from monitors.labels import Action
from monitors.redlines import AlertLines

LINES = AlertLines()


def entry(
    status: str = "firing",
    start_s: int = 0,
    name: str = AlertName.LATENCY_DEGRADE,
    action: str = Action.DEGRADE_MEDIA,
    **labels: str,
) -> dict[str, Any]:
    """One alert as Alertmanager 0.25 sends it."""
    starts_at = datetime.fromtimestamp(1_800_000_000 + start_s, UTC)
    return {
        "status": status,
        "labels": {"alertname": name, "action": action, "version": "v1", **labels},
        "annotations": {"summary": "too slow", "runbook_url": "https://w.example/slow"},
        "startsAt": starts_at.strftime("%Y-%m-%dT%H:%M:%S.123456789Z"),
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://p/graph",
        "fingerprint": "2bf8e5c0a3b1d5f0",
    }


def body(*alerts: Any) -> bytes:
    return json.dumps(
        {
            "receiver": "control-plane",
            "status": "firing",
            "alerts": list(alerts),
            "groupLabels": {},
            "commonLabels": {},
            "commonAnnotations": {},
            "externalURL": "http://a",
            "version": "4",
            "groupKey": "{}:{}",
            "truncatedAlerts": 0,
        }
    ).encode()


def beat() -> bytes:
    return body(entry(name=AlertName.WATCHDOG, action=Action.NONE))
