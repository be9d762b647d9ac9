"""The alerts that ship, by name, and the names of their runbook pages."""

import re
from enum import StrEnum


class AlertName(StrEnum):
    """Every alert that ships. A `redline.yaml` may add rules of its own names."""

    CACHE_BELOW_FLOOR = "RedlineCacheBelowFloor"
    LATENCY_DEGRADE = "RedlineLatencyDegrade"
    FAULT_RATE = "RedlineFaultRate"
    FIRST_PACKET_SHED = "RedlineFirstPacketShed"
    FIRST_PACKET_SLOW = "RedlineFirstPacketSlow"
    ERROR_BUDGET_BURN = "RedlineErrorBudgetBurn"
    LADDER_EXHAUSTED = "RedlineLadderExhausted"
    NO_DATA = "RedlineNoData"
    NO_TRAFFIC = "RedlineNoTraffic"
    DETECTOR_BROKEN = "RedlineDetectorBroken"
    RESIDENT_DOWN = "RedlineResidentDown"
    DATA_PLANE_DOWN = "RedlineDataPlaneDown"
    CONTROL_PLANE_DOWN = "RedlineControlPlaneDown"
    NO_WAY_BACK = "RedlineNoWayBack"
    ROLLBACK_INCOMPLETE = "RedlineRollbackIncomplete"
    JOURNAL_UNWRITABLE = "RedlineJournalUnwritable"
    WATCHDOG = "RedlineWatchdog"

    @property
    def page(self) -> str:
        """The runbook's file name: `redline-cache-below-floor.md`."""
        return f"{slug(self.value)}.md"


def slug(alert: str) -> str:
    """`RedlineCacheBelowFloor` as a file name: `redline-cache-below-floor`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", alert).lower()
