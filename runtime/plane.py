"""The data plane: residents, router, levels and measurements, and its reflexes (DESIGN 1)."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from itertools import product
from pathlib import Path
from uuid import uuid4

from monitors import catalog, tracing
from monitors.contract import (
    ALL_CLASSES,
    KvRung,
    Level,
    MirrorStatus,
    Name,
    Observed,
    ResidentChanged,
    ResidentStatus,
    Route,
    SessionClass,
)
from monitors.detectors.speech import SpeechAudit
from monitors.labels import ResidentState, Role
from monitors.preparing import Loading
from monitors.rungs import name_of, shown
from runtime.book import Book
from runtime.fence import FenceFile
from runtime.inputs import KeptInputs
from runtime.levels import Levels
from runtime.load import BusyShare
from runtime.models import ModelsFile
from runtime.openai_answer import SPEECH_HZ
from runtime.requests import Requests
from runtime.residents.local import WORKER, LocalResident
from runtime.residents.port import Ready, ResidentError, Snapshot
from runtime.router import Fence, Router
from runtime.settings import ResidentSpec, RuntimeSettings
from runtime.stamp import Stamp
from runtime.supervisor import Life, NotReady, Supervisor
from runtime.verdicts import Verdicts
from runtime.witness import Witnesses

TEND_EVERY_S = 0.25
_LINES_FILE = "lines.json"

log = logging.getLogger(__name__)


class DataPlane:
    """Everything one gateway process holds. Build, `start` and `stop` it on one event loop.

    Raises `FenceError` where the fence on disk cannot be used. `worker`: the engine's command.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        worker: Sequence[str] = WORKER,
    ) -> None:
        self.models = ModelsFile(settings.state_dir)
        self.specs = self.models.specs(settings.residents)
        names = list(self.specs)
        first = Route(leader_epoch=0, route_epoch=0, stable=settings.stable, canary=settings.canary)
        self.settings = settings
        self.clock = clock
        self.wall = wall
        self.incarnation = uuid4().hex
        self.versions = {name: spec.version for name, spec in self.specs.items()}
        self.lines_file = _prepare(settings)
        self.fence_file = FenceFile(settings.state_dir)
        fence = self.fence_file.load(
            Fence(leader_epoch=0, route=first, min_pool_epochs={}), residents=names
        )
        self.router = Router(fence, self.versions, clock=clock)
        self.levels = Levels(names, settings.lines, clock=clock)
        self._busy = {name: BusyShare(settings.lines.latency.window_s) for name in names}
        self.witnesses = Witnesses()
        self.tracing = tracing.configure(
            settings.trace.endpoint, "redline-runtime", settings.trace.sample_ratio
        )
        capture = settings.trace.capture_content
        self.requests = Requests(self.tracing, clock=clock, wall=wall, capture_content=capture)
        self.book = Book(
            settings.lines,
            self.incarnation,
            clock=clock,
            wall=wall,
            requests=self.requests,
        )
        self.inputs = KeptInputs(settings.limits.replay_bytes)
        self.decoders = ThreadPoolExecutor(max(2, os.cpu_count() or 2), "decode")
        self.verdicts = Verdicts()
        self.fence_writer = ThreadPoolExecutor(1, "fence")  # it never queues behind other work
        self.in_flight: Callable[[Name], int] = lambda _: 0
        self.mirror_status: Callable[[], MirrorStatus] = MirrorStatus
        self.stopping = asyncio.Event()
        self.loading: Callable[[Name], Loading | None] = lambda _: None
        self.withheld: set[Name] = set()  # given no work: their model is about to be another
        self.throttled: set[Name] = set()  # their engine loads in the background
        self.work: set[asyncio.Task[None]] = set()  # that ends with the plane
        self.worker = worker
        self.supervisors = {name: self._supervise(name) for name in self.specs}
        self.snapshots: dict[Name, Snapshot] = {}  # the last one of each engine process
        self._pool_epochs: dict[Name, int] = {}
        self._applied: dict[Name, Level | None] = {}  # None: some of it may have failed
        self._trouble: dict[Name, str] = {}
        self._tending: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------ life
    def start(self) -> None:
        """Start every engine, and the reflexes. Returns before the engines are ready."""
        if self.settings.trace.capture_content:
            log.warning("trace.capture_content is on: traces carry what users ask and are told")
        build = metadata.version("redline-omni")
        self.book.exposition.info(catalog.BUILD_INFO).set(build)
        for name, supervisor in self.supervisors.items():
            self.book.open(self.versions[name])
            supervisor.start()
            self._tending.append(asyncio.create_task(self._tend(name), name=f"tend {name}"))

    async def stop(self) -> None:
        """End every engine, reap it, and send the last traces."""
        self.stopping.set()
        tasks = [*self._tending, *self.work]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(s.stop() for s in self.supervisors.values()))
        await self.verdicts.stop()
        for pool in (self.decoders, self.fence_writer):
            pool.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self.tracing.shutdown)

    def _supervise(self, name: Name) -> Supervisor:
        def begin() -> Life:
            return LocalResident(
                self.specs[name],
                state_dir=self.settings.state_dir,
                lines=self.lines_file,
                min_epoch=self.min_pool_epoch(name),
                on_snapshot=lambda snapshot: self._took_snapshot(name, snapshot),
                worker=self.worker,
                clock=self.clock,
                log_dir=self.settings.log_dir,
                throttled=name in self.throttled,
            )

        return Supervisor(name, begin=begin, changed=self._state_changed, clock=self.clock)

    def respec(self, name: Name, spec: ResidentSpec) -> None:
        """The next life of a resident that is given no work is another model's."""
        old = self.versions[name]
        self.specs[name], self.versions[name] = spec, spec.version
        self.supervisors[name].forget()
        self.snapshots.pop(name, None)
        self.witnesses.forget(name)
        if old != spec.version:
            self.book.close(old)
            self.book.open(spec.version)

    # ------------------------------------------------------------ what is so now
    def is_ready(self, name: Name) -> bool:
        """Whether the resident can be given work."""
        return self.supervisors[name].state is ResidentState.READY and name not in self.withheld

    def ready(self) -> frozenset[Name]:
        """The residents that can be given work."""
        return frozenset(name for name in self.supervisors if self.is_ready(name))

    def min_pool_epoch(self, name: Name) -> int:
        """The epoch below which nothing may be served, as it is on disk."""
        return self.router.fence.min_pool_epochs.get(name, 0)

    def pool_epoch(self, name: Name) -> int | None:
        """The engine's pool epoch; None while it is not ready."""
        return self._pool_epochs.get(name)

    def saw_pool_epoch(self, name: Name, epoch: int) -> None:
        """Take note of an engine's pool epoch; a new one starts a segment of evidence."""
        if self._pool_epochs.get(name) != epoch:
            self._pool_epochs[name] = epoch
            self.note_change(name, f"pool epoch {epoch}")

    def stamp(
        self,
        name: Name,
        session: str,
        request_id: str,
        operator: bool = False,
        session_class: SessionClass = SessionClass.INTERACTIVE,
        mirror: bool = False,
    ) -> Stamp:
        """What a measurement made now carries."""
        return Stamp(
            resident=name,
            version=self.versions[name],
            session=session,
            request_id=request_id,
            pool_epoch=self.pool_epoch(name),
            route_epoch=self.router.route.route_epoch,
            level=self.levels.of(name, session_class),
            operator=operator,
            session_class=session_class,
            mirror=mirror,
            by_hand=self.levels.by_hand(name, session_class),
        )

    def busy_share(self, name: Name) -> float | None:
        """Of the latency window, how much a ready engine worked; None: not known."""
        return self._busy[name].value if self.is_ready(name) else None

    def kv_in_use(self, name: Name) -> KvRung | None:
        """The format that the engine last said it writes; None: it has not said yet."""
        snapshot = self.snapshots.get(name)
        return snapshot.kv if snapshot is not None and self.is_ready(name) else None

    def _live_native_bytes(self, name: Name) -> int | None:
        snapshot = self.snapshots.get(name)
        return snapshot.live_native_bytes if snapshot is not None and self.is_ready(name) else None

    def speech_audit(self, name: Name, voice: str) -> SpeechAudit:
        """For an answer of a ready resident in one of its voices. Raises `NotReady`."""
        ready = self.supervisors[name].ready
        if ready is None:
            raise NotReady(f"resident {name!r} has not said yet what it is")
        voice_model = ready.voices.get(voice.lower())
        return SpeechAudit(ready.samples_per_frame, SPEECH_HZ, voice_model)

    def observed(self) -> Observed:
        """The answer to `GET /control` and to every order."""
        route = self.router.route
        return Observed(
            incarnation=self.incarnation,
            leader_epoch=self.router.fence.leader_epoch,
            route_epoch=route.route_epoch,
            stable=route.stable,
            canary=route.canary,
            canary_weight=self.router.canary_weight,
            lease_left_s=self.router.lease_left_s,
            residents=tuple(self._status(name) for name in self.supervisors),
            mirror_weight=self.router.mirror_weight,
            mirror=self.mirror_status(),
        )

    def _status(self, name: Name) -> ResidentStatus:
        supervisor = self.supervisors[name]
        return ResidentStatus(
            name=name,
            version=self.versions[name],
            state=supervisor.state,
            weight=self.router.weight(name),
            level=self.levels.of(name),
            min_pool_epoch=self.min_pool_epoch(name),
            pool_epoch=self.pool_epoch(name),
            weights_digest=None if supervisor.ready is None else supervisor.ready.weights_digest,
            in_flight=self.in_flight(name),
            restarts=supervisor.restarts,
            pid=supervisor.pid,
            detail=supervisor.detail or self._trouble.get(name, ""),
            apart=self.levels.apart(name),
            busy_share=self.busy_share(name),
            live_native_bytes=self._live_native_bytes(name),
            checkpoint=str(self.specs[name].checkpoint),
            loading=self.loading(name),
        )

    def note_change(self, name: Name, detail: str) -> None:
        """Evidence that a resident is no longer what it was: a new segment begins, at a level for
        each class of sessions."""
        body = ResidentChanged(
            state=self.supervisors[name].state, pool_epoch=self.pool_epoch(name), detail=detail
        )
        for each in ALL_CLASSES:
            self.book.note(self.stamp(name, "", "", session_class=each), body)

    def render_metrics(self, accept: str | None) -> tuple[bytes, str]:
        """(body, content type) of a scrape."""
        gauge = self.book.exposition.gauge
        route = self.router.route
        roles = {route.canary: Role.CANARY, route.stable: Role.STABLE}
        restarts = self.book.exposition.counter(catalog.RESIDENT_RESTARTS)
        info = self.book.exposition.info(catalog.RESIDENT_INFO)
        gauge(catalog.ROUTE_EPOCH).set(route.route_epoch)
        dropped = self.book.exposition.counter(catalog.TRACE_SPANS_DROPPED)
        dropped.follow(self.tracing.dropped_spans)
        for status in (self._status(name) for name in self.supervisors):
            version, level = status.version, status.level
            role = roles.get(status.name)
            gauge(catalog.RESIDENT_UP).set(float(self.is_ready(status.name)), version)
            gauge(catalog.WEIGHT).set(status.weight / 100, version)
            gauge(catalog.IN_FLIGHT).set(status.in_flight, version)
            for each, part in product(ALL_CLASSES, level.__struct_fields__):
                rung = getattr(status.level_of(each), part)
                gauge(catalog.LEVEL).set(int(rung), version, part, each)
            restarts.follow(status.restarts, version)
            if role is None or status.weights_digest is None:
                info.forget(version)  # it may have had a role before
            else:
                epoch = "" if status.pool_epoch is None else str(status.pool_epoch)
                info.set(version, status.name, role, status.weights_digest, epoch, name_of(level))
        return self.book.exposition.render(accept)

    # ------------------------------------------------------------ reflexes
    async def _tend(self, name: Name) -> None:
        """Recover the level when its lease is over, and see that the engine follows it."""
        while True:
            await asyncio.sleep(TEND_EVERY_S)
            if not self.levels.is_full(name):
                self._recover(name)
            await self._apply_level(name)

    def _recover(self, name: Name) -> None:
        p99 = self.book.latency.recent_p99(self.versions[name], self.clock())
        if self.levels.recover(name, p99):
            self.note_change(name, "level recovered a step: its lease was not renewed")

    async def _apply_level(self, name: Name) -> None:
        """Bring the engine to the level held; what fails shows, is said once, and tried again."""
        level = self.levels.of(name)
        wanted = Level(kv=level.kv, shed=level.shed)
        if not self.is_ready(name) or self._applied.get(name, Level()) == wanted:
            return
        try:
            resident = self.supervisors[name].resident
            await resident.set_shed(wanted.shed)
            await resident.set_kv(wanted.kv)
        except ResidentError as err:
            self._applied[name] = None
            trouble = f"the level {shown(wanted)} is not applied: {err}"
            if trouble != self._trouble.get(name):
                log.warning(trouble, extra={"resident": name})
            self._trouble[name] = trouble
        else:
            self._applied[name] = wanted
            self._trouble.pop(name, None)

    def _state_changed(self, name: Name) -> None:
        supervisor = self.supervisors[name]
        if supervisor.state is ResidentState.READY and supervisor.ready is not None:
            self._became_ready(name, supervisor.ready)
        else:
            if supervisor.state is ResidentState.LOADING:
                self.snapshots.pop(name, None)  # of the former life: a dead one still tells of it
            self._pool_epochs.pop(name, None)
            self.book.lost_sight(self.versions[name])
            if name == self.router.route.canary:
                self.router.drop_canary()
            self.note_change(name, supervisor.detail)

    def _became_ready(self, name: Name, ready: Ready) -> None:
        self._applied.pop(name, None)
        self._trouble.pop(name, None)
        self._busy[name] = BusyShare(self.settings.lines.latency.window_s)
        self._pool_epochs[name] = ready.pool_epoch
        self.book.shows(self.versions[name], ready.capabilities)
        self.note_change(name, f"ready with pool epoch {ready.pool_epoch}")

    def _took_snapshot(self, name: Name, snapshot: Snapshot) -> None:
        if self.supervisors[name].ready is None:
            return  # the last words of a model that gives its place to another
        self.snapshots[name] = snapshot
        self._busy[name].add(self.clock(), snapshot.busy_s)
        self.book.snapshot(self.versions[name], snapshot)
        if self.is_ready(name):
            self.saw_pool_epoch(name, snapshot.pool_epoch)
        for fault in snapshot.faults:
            log.error("a pool invariant is broken: %s", fault, extra={"resident": name})


def _prepare(settings: RuntimeSettings) -> Path:
    """A state folder to start from; the file in it with the red lines, for the engines.

    Raises `OSError`.
    """
    folder = settings.state_dir
    for made in (folder, settings.log_dir or folder):
        made.mkdir(parents=True, exist_ok=True)
    for socket in folder.glob("*.sock"):
        socket.unlink(
            missing_ok=True
        )  # of a data plane that was killed: each life of an engine has its own
    lines = folder / _LINES_FILE
    lines.write_text(settings.lines.model_dump_json(), encoding="utf-8")
    return lines
