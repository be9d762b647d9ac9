"""What fires, and who says so: Prometheus by webhook, or the evaluator here while it is silent."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

from alerts.evaluator import Evaluator
from alerts.firing import NEWS, SOURCE, AlertNews, Firing, Source, SourceChanged
from alerts.handover import Handover, takes_s
from alerts.news import News
from alerts.policy import Policy
from alerts.receiver import AlertBook
from monitors.contract import Observed
from monitors.journal import Journal, JournalUnwritable, StaleLeader
from monitors.tables import Tables
from rollout.ledger import Ledger

WATCH = "alerts"  # who journals
RETRY_S = 1.0  # until a journal that could not be written is tried again
MOST_NEWS = 10_000  # that wait for the journal: the newest

log = logging.getLogger(__name__)


class AlertWatch:
    """One instance per leadership (`leader_epoch`). `wake` is set when there is news to act on."""

    def __init__(
        self,
        journal: Journal,
        book: AlertBook,
        policy: Policy,
        leader_epoch: int,
        *,
        prometheus: bool,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.wake = asyncio.Event()
        self.firing: tuple[Firing, ...] | None = None  # as far as known; None: before any look
        self.pending: tuple[Firing, ...] = ()  # as the evaluator here has it
        self.watched = False  # whether anybody could see the lines over the tables
        self._ledger = Ledger(journal, leader_epoch)
        self._evaluator = Evaluator(policy)
        self._of_tables = frozenset(rule.name for rule in policy.rules)
        needed = takes_s(self._evaluator.watched, policy.lines)
        self._handover = Handover(book, needed, policy.lines.alerts, prometheus=prometheus)
        self._source = self._handover.source(clock())
        self._news = News()
        self._untold = deque[AlertNews | SourceChanged](maxlen=MOST_NEWS)
        self._has_news = asyncio.Event()
        self._due: float | None = None
        self._clock = clock
        self._wall = wall

    @property
    def rule_source(self) -> Source:
        """Who evaluates the rules now: `embedded` where Prometheus is absent or silent."""
        return self._handover.source(self._clock())

    async def tick(
        self, tables: Tables | None, observed: Observed | None
    ) -> tuple[Firing, ...] | None:
        """What fires by now, or None where nobody can tell. None for an argument: not readable."""
        now, wall = self._clock(), self._wall()
        evaluation = self._evaluator.tick(tables, observed, now, wall)
        self._note_source(self._handover.source(now))
        self.watched = evaluation.watched or self._source is Source.PROMETHEUS
        self.firing = self._handover.settle(evaluation, now)
        fires = {each.identity for each in self.firing}
        self.pending = tuple(each for each in evaluation.pending if each.identity not in fires)
        self._due = evaluation.due
        # Of the rules over tables alone: an idle stack has no traffic pending most of the time.
        waits = [each for each in self.pending if each.alert in self._of_tables]
        self._keep(*self._news.of(self.firing, waits, wall, known=self.watched))
        return self.firing if self.watched else None

    def pause_s(self, began: float, slow_s: float, fast_s: float) -> float:
        """How long after `began` (monotonic seconds) the next look should be. Soon where the
        evaluator here decides, and no later than an alert is due that is pending there."""
        if self._source is Source.PROMETHEUS or not self.watched:
            return slow_s
        soon_s = min(slow_s, fast_s)
        return soon_s if self._due is None else max(0.0, min(soon_s, self._due - began))

    async def tell(self) -> None:
        """Journal what is new. What cannot be written now is kept for the next time.

        Raises `StaleLeader` when another leads.
        """
        self._has_news.clear()
        while self._untold:
            news = self._untold[0]
            kind = NEWS if isinstance(news, AlertNews) else SOURCE
            await asyncio.to_thread(self._ledger.write, kind, WATCH, news)
            self._untold.popleft()

    async def keep_telling(self) -> None:
        """For ever, beside the rounds: no action waits for the disk to take what is only told."""
        while True:
            await self._has_news.wait()
            try:
                await self.tell()
            except JournalUnwritable as err:
                log.error("news of alerts is not journalled yet: %s", err)
                await asyncio.sleep(RETRY_S)
                self._has_news.set()
            except StaleLeader as err:
                log.warning("no more news is journalled here: %s", err)
                return  # who leads is for the lease to say

    def _keep(self, *news: AlertNews | SourceChanged) -> None:
        """Until it is journalled."""
        too_many = len(self._untold) + len(news) - MOST_NEWS
        if too_many > 0:
            log.error("the oldest %d news of alerts are never journalled: too many wait", too_many)
        self._untold.extend(news)
        if self._untold:
            self._has_news.set()

    def _note_source(self, source: Source) -> None:
        if source is not self._source:
            log.warning("the rules are evaluated by %s now, by %s no longer", source, self._source)
            self._keep(SourceChanged(source=source, before=self._source))
        self._source = source
