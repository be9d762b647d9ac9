"""What fires, and who says so: Prometheus by webhook, or the evaluator here while it is silent."""

import asyncio
import time
from collections.abc import Callable

from alerts.evaluator import Evaluator, prometheus_is_silent
from alerts.firing import Firing
from alerts.receiver import AlertBook
from monitors.contract import Observed
from monitors.journal import Journal
from monitors.redlines import RedLines
from monitors.tables import Tables
from rollout.ledger import Ledger


class AlertWatch:
    """One instance per leadership (`leader_epoch`). `wake` is set when there is news to act on."""

    def __init__(
        self,
        journal: Journal,
        book: AlertBook,
        lines: RedLines,
        leader_epoch: int,
        *,
        prometheus: bool,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.wake = asyncio.Event()
        self.book = book
        self._ledger = Ledger(journal, leader_epoch)
        self._evaluator = Evaluator(lines)
        self._lines = lines
        self._prometheus = prometheus
        self._clock = clock
        self._wall = wall

    @property
    def rule_source(self) -> str:
        """Who evaluates the rules now: `prometheus`, or `embedded` while it is silent."""
        age = self.book.heartbeat_age(self._clock())
        silent = prometheus_is_silent(age, self._lines.alerts)
        return "embedded" if silent or not self._prometheus else "prometheus"

    async def tick(
        self, tables: Tables | None, observed: Observed | None
    ) -> tuple[Firing, ...] | None:
        """What fires by now, or None where nobody can tell. None for an argument: not readable."""
        del observed  # the rules over the machinery read it
        now = self._clock()
        embedded = self._evaluator.tick(tables, now, self._wall())
        return self.book.firing(now) if self.rule_source == "prometheus" else embedded
