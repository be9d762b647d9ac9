"""Bodies as Alertmanager posts them."""

import json

from alerts.compile import alerts
from alerts.policy import make
from monitors.redlines import RedLines

ACTIONS = {str(alert.name): alert.action.value for alert in alerts(make(RedLines()))}


def webhook(name: str, version: str | None = "v1", status: str = "firing") -> bytes:
    """One of Redline's alerts, with its own action."""
    labels = {"alertname": name, "action": ACTIONS[name]}
    if version is not None:
        labels["version"] = version
    alert = {
        "status": status,
        "labels": labels,
        "annotations": {"summary": f"{name} of {version}"},
        "startsAt": "2026-01-01T00:00:00Z",
    }
    return json.dumps({"version": "4", "alerts": [alert]}).encode()
