"""The control plane of one process: leads or stands by, and owns everything a leader needs."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable

import httpx

from alerts.firing import Firing, Source
from alerts.ladder import Move
from alerts.receiver import AlertBook, Received
from monitors import catalog
from monitors.cardinality import OPEN
from monitors.exposition import Exposition
from monitors.journal import Journal, JournalUnwritable, LeaderLease, StaleLeader
from monitors.labels import Action, Phase
from monitors.metric import CLOSED, Label
from redline.control.alert_watch import AlertWatch
from redline.control.api import ControlStatus, level_words
from redline.control.ladder_keeper import LadderKeeper
from redline.control.notifier import Notifier
from redline.control.rounds import Rounds, TableReader
from redline.control.settings import ControlSettings
from rollout.commands import CommandRefused
from rollout.controller import RolloutController
from rollout.dataplane import DataPlaneError, HttpDataPlane
from rollout.plan import Cause
from rollout.rollback import Progress
from rollout.runner import RolloutRunner
from rollout.status import RolloutStatus

# Idle connections to the data plane, which closes them after 5 s: an order on one that it is just
# closing has no answer.
_KEEP_S = 2.0

log = logging.getLogger(__name__)


class ControlPlane:
    """`run` until cancelled. While another process holds the lease this one only answers.

    Raises `JournalUnwritable` where the journal cannot be opened, and `JournalUrlError`.
    """

    def __init__(self, settings: ControlSettings, *, deposed: Callable[[], None]) -> None:
        where = settings.journal_url or settings.state_dir / "journal.db"
        holder = f"{socket.gethostname()}:{settings.port}"  # one process at a time: it has the port
        self.settings = settings
        self.journal = Journal(where)
        self.book = AlertBook(settings.lines.alerts)
        self.exposition = Exposition(settings.lines, catalog.CONTROL_PLANE)
        self._lease = LeaderLease(where, holder, settings.leader_ttl_s)
        self._deposed = deposed
        # No proxy of the environment's: it would be shown the token, and loopback is not there.
        self._client = httpx.AsyncClient(
            base_url=settings.runtime_url,
            trust_env=False,
            limits=httpx.Limits(keepalive_expiry=_KEEP_S),
        )
        self._dataplane = HttpDataPlane(self._client, settings.token)
        self._phases_shown: set[Phase] = set()
        self._counted: Progress | None = None
        self._counted_of: list[str] = []  # versions whose moves are shown, the latest last
        self._rolling: asyncio.Task[None] | None = None
        self.leader_epoch: int | None = None
        self.watch: AlertWatch | None = None
        self.keeper: LadderKeeper | None = None
        self.rounds: Rounds | None = None
        self.controller: RolloutController | None = None
        self.notifier: Notifier | None = None

    async def run(self) -> None:
        """Wait for the lease, lead while it is kept, and call `deposed` when it is lost."""
        settings = self.settings
        rounds, controller = self._take_office(await self._acquire())
        notifying = self._notify()
        try:
            async with asyncio.TaskGroup() as group:
                work = (
                    group.create_task(self._roll_out(controller)),
                    group.create_task(rounds.run(settings.tick_s, settings.evaluation_s)),
                    group.create_task(rounds.watch.keep_telling()),
                )
                await self._renew()
                for task in work:
                    task.cancel()
        finally:
            notifying.cancel()
            self.rounds = self.watch = self.keeper = self.notifier = None
            self.controller = self.leader_epoch = None
        log.critical("the lease is lost: this control plane ends")
        self._deposed()

    def _take_office(self, epoch: int) -> tuple[Rounds, RolloutController]:
        """Everything as the journal has it, shown at once."""
        log.info("leading under epoch %d", epoch)
        lines = self.settings.lines
        policy, prometheus = self.settings.policy, self.settings.prometheus
        watch = AlertWatch(self.journal, self.book, policy, epoch, prometheus=prometheus)
        keeper = LadderKeeper(self.journal, self._dataplane, lines, epoch, on_move=self._moved)
        tables = TableReader(self._client, self.settings.token).read
        rounds = Rounds(self._dataplane, tables, watch, keeper, self._saw)
        controller = RolloutController(
            journal=self.journal,
            plane=self._dataplane,
            lines=lines,
            leader_epoch=epoch,
            on_change=self._changed,
        )
        notices = self.exposition.counter(catalog.NOTICES)
        for result in CLOSED[Label.RESULT]:
            notices.start(result)
        self.notifier = Notifier(self.journal, self.settings.notify, epoch, notices)
        self.rounds, self.watch, self.keeper = rounds, watch, keeper
        self.leader_epoch, self.controller = epoch, controller
        self.exposition.gauge(catalog.LEADER_EPOCH).set(epoch)
        self.exposition.counter(catalog.ROLLBACKS).start()  # a rate must see the first one
        found = controller.status()
        self._counted = found.rollback  # what is done was counted by who did it
        self._changed(found)
        return rounds, controller

    async def _roll_out(self, controller: RolloutController) -> None:
        runner = RolloutRunner(controller, self.settings.tick_s)
        await runner.open()
        try:
            await runner.watch()
        finally:
            await runner.close()

    def _notify(self) -> "asyncio.Task[None]":
        """Beside all else, and outside of its group: an error there ends no decision."""

        def ended(task: "asyncio.Task[None]") -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.critical("nobody is told of rollouts any more", exc_info=error)

        assert self.notifier is not None
        task = asyncio.create_task(self.notifier.run(), name="notices")
        task.add_done_callback(ended)
        return task

    def ended(self, task: "asyncio.Task[None]") -> None:
        """A plane that stops by an error must not go on answering as if it led: end the process."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("the control plane ends", exc_info=error)
            self._deposed()

    async def close(self) -> None:
        """Step down, so that a successor need not wait for the lease to run out."""
        if self._rolling is not None:
            self._rolling.cancel()
            await asyncio.gather(self._rolling, return_exceptions=True)
        try:
            await asyncio.to_thread(self._lease.release)
        except JournalUnwritable as err:
            log.warning("the lease is left to expire: %s", err)
        self._lease.close()
        self.journal.close()
        await self._client.aclose()

    def receive(self, body: bytes) -> Received:
        """Take a webhook body; the control loop acts on news at once. Raises `WebhookError`."""
        received = self.book.receive(body, time.monotonic())
        if received.taken and self.watch is not None:
            self.watch.wake.set()
        return received

    async def status(self) -> ControlStatus:
        """What is so now, as far as can be told."""
        keeper, rounds, watch = self.keeper, self.rounds, self.watch
        observed = None if rounds is None else rounds.observed
        return ControlStatus(
            wall=time.time(),
            pid=os.getpid(),
            leader_epoch=self.leader_epoch,
            rule_source="nobody here" if watch is None else watch.rule_source,
            ladder_mode=None if keeper is None else keeper.mode,
            watchdog_age_s=self.book.heartbeat_age(time.monotonic()),
            firing=None if watch is None else watch.firing,
            pending=() if watch is None else watch.pending,
            watched=watch is not None and watch.watched,
            data_plane=observed,
            rollout=None if self.controller is None else self.controller.status(),
            ladders=() if keeper is None else keeper.status(),
            levels={} if observed is None else {r.name: level_words(r) for r in observed.residents},
        )

    def render_metrics(self, accept: str | None) -> tuple[bytes, str]:
        """The body of `/metrics`."""
        age = self.book.heartbeat_age(time.monotonic())
        self.exposition.gauge(catalog.HEARTBEAT_AGE).set(age)
        if self.watch is not None:
            embedded = self.watch.rule_source is Source.EMBEDDED
            self.exposition.gauge(catalog.RULES_EMBEDDED).set(float(embedded))
        way_back = None if self.controller is None else self.controller.way_back
        self.exposition.gauge(catalog.WAY_BACK).set(None if way_back is None else float(way_back))
        return self.exposition.render(accept)

    async def _acquire(self) -> int:
        while True:
            try:
                epoch = await asyncio.to_thread(self._lease.acquire, await self._newest_leader())
            except JournalUnwritable as err:
                log.error("cannot lead: %s", err)
                self._wrote(False)
                epoch = None
            if epoch is not None:
                self._wrote(True)
                return epoch
            await asyncio.sleep(self.settings.leader_ttl_s / 5)

    async def _newest_leader(self) -> int:
        """The newest leader epoch that the data plane has seen; 0 where it does not say."""
        try:
            return (await self._dataplane.observe()).leader_epoch
        except DataPlaneError as err:
            log.info("the data plane cannot be asked who led it: %s", err)
            return 0

    async def _renew(self) -> None:
        """Renew the lease, and return when it is lost.

        While a disk takes no renewal nobody else can take over on it either: then this one
        leads on, for moves toward B must go ahead, until the file says that another does. So it
        does while a server is out of reach: whoever reaches it and takes over is known to the data
        plane, which then refuses this one. A disk that does not even answer for the length of the
        lease loses it.
        """
        ttl_s = self.settings.leader_ttl_s
        kept = True
        while kept:
            await asyncio.sleep(ttl_s / 5)
            try:
                async with asyncio.timeout(ttl_s * 4 / 5):
                    kept = await self._renewed()
            except TimeoutError:
                log.critical("the journal's disk has not answered for the length of the lease")
                return

    async def _renewed(self) -> bool:
        """Whether this one still leads."""
        try:
            kept = await asyncio.to_thread(self._lease.renew)
        except JournalUnwritable as err:
            log.error("the lease is not renewed: %s", err)
            self._wrote(False)
            return await self._still_held()
        self._wrote(True)
        return kept

    async def _still_held(self) -> bool:
        """Whether nobody is known to have taken over."""
        try:
            return await asyncio.to_thread(self._lease.is_held)
        except JournalUnwritable as err:
            log.error("nobody can tell who leads: %s", err)
            return True

    def _wrote(self, well: bool) -> None:
        self.exposition.gauge(catalog.JOURNAL_WRITABLE).set(float(well))

    def _saw(self, firing: tuple[Firing, ...] | None) -> None:
        for alert in firing or ():
            if alert.action is Action.ROLL_BACK:
                self._answer_with_rollback(alert)

    def _answer_with_rollback(self, alert: Firing) -> None:
        """The slow way to a rollback, for what the evidence log did not show (S4.3)."""
        controller = self.controller
        if controller is None or not _serves(controller.status(), alert.version):
            return
        if self._rolling is None or self._rolling.done():
            task = asyncio.create_task(self._roll_back(controller, alert))
            self._rolling = task  # a task that nobody holds may be collected before it ends

    async def _roll_back(self, controller: RolloutController, alert: Firing) -> None:
        try:
            await controller.rollback(alert.alert, alert.summary, Cause.FAULTS)
        except (CommandRefused, StaleLeader) as err:
            log.warning("%s asks for a rollback: %s", alert.alert, err)

    def _moved(self, move: Move) -> None:
        """Count it. Of more versions than may be shown, the ones that moved last are."""
        counter = self.exposition.counter(catalog.TRANSITIONS)
        self._counted_of = [v for v in self._counted_of if v != move.version] + [move.version]
        while len(self._counted_of) > OPEN[Label.VERSION]:
            counter.forget(self._counted_of.pop(0))
        counter.inc(move.version, move.part)

    def _changed(self, status: RolloutStatus) -> None:
        if self.notifier is not None:
            self.notifier.wake()
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


def _serves(status: RolloutStatus, version: str | None) -> bool:
    """Whether a rollout has given this version traffic and may still take it back."""
    return status.serves and status.plan is not None and status.plan.version == version
