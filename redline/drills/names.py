"""The drills, what each of them exercises, and which page says how the system must answer."""

from enum import StrEnum


class DrillName(StrEnum):
    """What is broken."""

    CACHE = "cache"
    LATENCY = "latency"
    FAULT = "fault"
    PROMETHEUS_DOWN = "prometheus-down"
    ALERTMANAGER_DOWN = "alertmanager-down"
    CONTROL_DOWN = "control-down"

    @property
    def runbook(self) -> str:
        """The page that the drill is judged by."""
        return f"docs/runbooks/{_PAGE[self]}.md"


_PAGE = {
    DrillName.CACHE: "redline-cache-below-floor",
    DrillName.LATENCY: "redline-latency-degrade",
    DrillName.FAULT: "rollback",
    DrillName.PROMETHEUS_DOWN: "redline-watchdog",
    DrillName.ALERTMANAGER_DOWN: "redline-watchdog",
    DrillName.CONTROL_DOWN: "redline-control-plane-down",
}
