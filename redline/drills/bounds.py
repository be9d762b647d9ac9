"""How long each answer may take: by the red lines, the machinery's periods, and one margin."""

from dataclasses import dataclass

from alerts.rules import SCRAPE_S
from monitors.redlines import RedLines

MARGIN_S = 6.0
"""For a busy machine and for our own looking. Far more than is usual, less than anybody would
take for an answer."""

_TICK_S = 1.0  # of the control plane
_GROUP_S = 1.0  # Alertmanager's group_interval
_RESTART_S = 20.0  # a control plane: back-off, start, and the lease of the one that was killed


@dataclass(frozen=True)
class Bounds:
    """Seconds, each from the step that its property names first."""

    lines: RedLines

    def breach_s(self) -> float:
        """From the injection: traffic must fill the window and be seen to be slow."""
        latency = self.lines.latency
        return latency.window_s + latency.degrade_s + 2 * MARGIN_S

    def pending_s(self) -> float:
        """From the breach: a scrape and an evaluation."""
        return 2 * SCRAPE_S + MARGIN_S

    def firing_s(self, for_s: float) -> float:
        """From the breach to a firing alert that must hold for `for_s`."""
        return self.pending_s() + for_s

    def webhook_s(self) -> float:
        """From firing to the control plane's knowing it."""
        return _GROUP_S + MARGIN_S

    def action_s(self) -> float:
        """From what the control plane heard to its journalled move."""
        return 2 * _TICK_S + MARGIN_S

    def effect_s(self) -> float:
        """From the move to the data plane's level."""
        return MARGIN_S

    def proof_s(self) -> float:
        """From the level to a client's answer that shows it, or to pages that are smaller."""
        return 2 * MARGIN_S

    def quiet_s(self) -> float:
        """From the end of the injection: what was slow must leave the window first."""
        windows = max(self.lines.latency.window_s, self.lines.cache.hold_s)
        return windows + self.lines.latency.degrade_s + 2 * MARGIN_S

    def eased_s(self, dwell_s: float) -> float:
        """From the alert's end: the dwell, and a tick of both planes."""
        return dwell_s + 2 * MARGIN_S

    def embedded_s(self) -> float:
        """From the last heartbeat: the silence that is allowed, after the Watchdog ended in
        Alertmanager, which lasts four resend delays of a quarter of a heartbeat."""
        alerts = self.lines.alerts
        return alerts.heartbeat_silence_s + 2 * alerts.heartbeat_s + MARGIN_S

    def heard_again_s(self) -> float:
        """From the process's going on to the next heartbeat at the control plane."""
        return 2 * self.lines.alerts.heartbeat_s + 2 * SCRAPE_S + 2 * MARGIN_S

    def called_s(self) -> float:
        """From the first fault that A's traffic shows to the verdict: it takes requests."""
        return self.lines.rollout.warmup_s + 5 * MARGIN_S

    def cut_over_s(self) -> float:
        """From the verdict."""
        return 1.0 + MARGIN_S

    def drained_s(self) -> float:
        """From the cut over."""
        return self.lines.rollout.drain_s + MARGIN_S

    def flushed_s(self) -> float:
        """From one step of a rollback to the next."""
        return 2 * MARGIN_S

    def served_s(self) -> float:
        """From the end of a control plane to the answer of a request that was sent after it."""
        return 2 * MARGIN_S

    def led_again_s(self) -> float:
        """From the end of a control plane to the next that leads."""
        return _RESTART_S + 2 * MARGIN_S
