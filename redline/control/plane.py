"""The control plane of one process: leads or stands by, and owns everything a leader needs."""

import asyncio
import logging
import os
import time
from collections.abc import Callable

import httpx
from prometheus_client import CollectorRegistry

from alerts.firing import Firing
from alerts.ladder import Move
from alerts.receiver import AlertBook, Received
from monitors import catalog
from monitors.exposition import Exposition
from monitors.journal import Journal, JournalUnwritable, LeaderLease
from monitors.labels import Action, Phase
from redline.control.api import ControlStatus
from redline.control.ladder_keeper import LadderKeeper, TableReader
from redline.control.ladder_keeper import run as run_ladder
from redline.control.settings import ControlSettings
from rollout.commands import CommandRefused
from rollout.controller import RolloutController
from rollout.dataplane import HttpDataPlane
from rollout.plan import Cause
from rollout.rollback import Progress
from rollout.runner import RolloutRunner
from rollout.status import RolloutStatus

log = logging.getLogger(__name__)

_SERVES = frozenset({Phase.WARMUP, Phase.CANARY, Phase.PROMOTING, Phase.BAKE, Phase.HOLD})


class ControlPlane:
    """`run` until cancelled. While another process holds the lease this one only answers."""

    def __init__(self, settings: ControlSettings, *, deposed: Callable[[], None]) -> None:
        path = settings.state_dir / "journal.db"
        self.settings = settings
        self.journal = Journal(path)
        self.book = AlertBook(settings.lines.alerts)
        self.exposition = Exposition(CollectorRegistry(), settings.lines, catalog.CONTROL_PLANE)
        self._lease = LeaderLease(path, f"{settings.host}:{settings.port}", settings.leader_ttl_s)
        self._deposed = deposed
        self._client = httpx.AsyncClient(base_url=settings.runtime_url)
        self._dataplane = HttpDataPlane(self._client, settings.token)
        self._firing: tuple[Firing, ...] | None = None
        self._phases_shown: set[Phase] = set()
        self._counted: Progress | None = None
        self._rolling: asyncio.Task[None] | None = None
        self.leader_epoch: int | None = None
        self.keeper: LadderKeeper | None = None
        self.controller: RolloutController | None = None

    async def run(self) -> None:
        """Wait for the lease, lead, and call `deposed` when the lease is lost."""
        self.exposition.gauge(catalog.ROLLBACK_INCOMPLETE).set(0)
        epoch = await self._acquire()
        self.leader_epoch = epoch
        self.exposition.gauge(catalog.LEADER_EPOCH).set(epoch)
        log.info("leading under epoch %d", epoch)
        lines = self.settings.lines
        self.keeper = LadderKeeper(
            self.journal,
            self._dataplane,
            TableReader(self._client, self.settings.token).read,
            self.book,
            lines,
            epoch,
            prometheus=self.settings.prometheus,
            on_move=self._moved,
        )
        self.controller = RolloutController(
            journal=self.journal,
            plane=self._dataplane,
            lines=lines,
            leader_epoch=epoch,
            on_change=self._changed,
        )
        runner = RolloutRunner(self.controller, self.settings.tick_s)
        await runner.open()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._renew())
                group.create_task(run_ladder(self.keeper, self.settings.tick_s, self._saw))
        finally:
            await runner.close()

    def ended(self, task: "asyncio.Task[None]") -> None:
        """A plane that stops by an error must not go on answering as if it led: end the process."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("the control plane ends", exc_info=error)
            self._deposed()

    async def close(self) -> None:
        """Step down, so that a successor need not wait for the lease to run out."""
        try:
            await asyncio.to_thread(self._lease.release)
        except JournalUnwritable as err:
            log.warning("the lease is left to expire: %s", err)
        self._lease.close()
        self.journal.close()
        await self._client.aclose()

    def receive(self, body: bytes) -> Received:
        """Take a webhook body. Raises `WebhookError`."""
        return self.book.receive(body, time.monotonic())

    async def status(self) -> ControlStatus:
        """What is so now, as far as can be told."""
        keeper = self.keeper
        return ControlStatus(
            wall=time.time(),
            pid=os.getpid(),
            leader_epoch=self.leader_epoch,
            rule_source="nobody here" if keeper is None else keeper.rule_source,
            ladder_mode=None if keeper is None else keeper.mode,
            watchdog_age_s=self.book.heartbeat_age(time.monotonic()),
            firing=self._firing,
            data_plane=None if keeper is None else keeper.observed,
            rollout=None if self.controller is None else self.controller.status(),
        )

    def render_metrics(self, accept: str | None) -> tuple[bytes, str]:
        """The body of `/metrics`."""
        age = self.book.heartbeat_age(time.monotonic())
        self.exposition.gauge(catalog.HEARTBEAT_AGE).set(age)
        return self.exposition.render(accept)

    async def _acquire(self) -> int:
        while True:
            try:
                epoch = await asyncio.to_thread(self._lease.acquire)
            except JournalUnwritable as err:
                log.error("cannot lead: %s", err)
                epoch = None
            if epoch is not None:
                return epoch
            await asyncio.sleep(self.settings.leader_ttl_s / 5)

    async def _renew(self) -> None:
        """A lease that cannot be renewed is lost when its time is up: then another may lead."""
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(self.settings.leader_ttl_s / 5)
            try:
                kept = await asyncio.to_thread(self._lease.renew)
            except JournalUnwritable as err:
                log.error("the lease is not renewed: %s", err)
                kept = time.monotonic() - renewed < self.settings.leader_ttl_s
            else:
                renewed = time.monotonic()
            if not kept:
                log.critical("another control plane leads: this one ends")
                self._deposed()
                return

    def _saw(self, firing: tuple[Firing, ...] | None) -> None:
        self._firing = firing
        for alert in firing or ():
            if alert.action is Action.ROLL_BACK:
                self._answer_with_rollback(alert)

    def _answer_with_rollback(self, alert: Firing) -> None:
        """The slow way to a rollback, for what the evidence log did not show (S4.3)."""
        controller = self.controller
        if controller is None:
            return
        status = controller.status()
        plan = status.plan
        if plan is None or plan.version != alert.version or status.phase not in _SERVES:
            return
        task = asyncio.get_running_loop().create_task(self._roll_back(controller, alert))
        self._rolling = task  # a task that nobody holds may be collected before it ends

    async def _roll_back(self, controller: RolloutController, alert: Firing) -> None:
        try:
            await controller.rollback(alert.alert, alert.summary, Cause.FAULTS)
        except CommandRefused as err:
            log.warning("%s asks for a rollback: %s", alert.alert, err)

    def _moved(self, move: Move) -> None:
        self.exposition.counter(catalog.TRANSITIONS).inc(move.version, move.part)

    def _changed(self, status: RolloutStatus) -> None:
        shown = self.exposition.gauge(catalog.ROLLOUT_PHASE)
        self._phases_shown.add(status.phase)
        for phase in self._phases_shown:
            shown.set(float(phase is status.phase), phase)
        self.exposition.gauge(catalog.ROLLBACK_INCOMPLETE).set(float(status.rollback_incomplete))
        done = status.rollback is not None and status.rollback.done
        if done and status.rollback != self._counted:
            self.exposition.counter(catalog.ROLLBACKS).inc()
        self._counted = status.rollback if done else self._counted
        if status.deposed:
            self._deposed()
