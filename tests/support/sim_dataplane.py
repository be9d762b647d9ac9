"""A data plane in memory, on a clock that only moves when told: the protocol's other side.

It keeps the contract (fences, leases, refusals) and breaks on demand: lost acknowledgements,
outages, engines that die, hang or lie about their flushes.
"""

import math
from enum import Enum

import msgspec

from monitors.contract import (
    ALL_CLASSES,
    DrainMode,
    DrainOrder,
    DrainReport,
    DrillOrder,
    DrillReport,
    EvidenceBatch,
    EvidenceBody,
    FaultFound,
    FlushOrder,
    FlushReceipt,
    LadderOrder,
    Level,
    MilestoneReached,
    Observed,
    ProbeOrder,
    ProbeReport,
    Refusal,
    RequestFinished,
    ResidentChanged,
    ResidentStatus,
    Route,
)
from monitors.evidence import Cursor, EvidenceLog
from monitors.labels import Detector, Fault, Grade, Origin, Outcome, ResidentState
from monitors.preparing import (
    Loading,
    LoadOrder,
    LoadStage,
    RehearsalOrder,
    RehearsalReport,
)
from monitors.redlines import RedLines
from monitors.rungs import name_of
from rollout.dataplane import Conflict, Invalid, Refused, UnknownResident, Unreachable
from runtime.levels import Levels
from runtime.router import OrderRefused

LINES = RedLines()
_CUT = FaultFound(
    fault=Fault.SPEECH_TRUNCATED,
    grade=Grade.HARD,
    origin=Origin.OUTPUT,
    detector=Detector.SPEECH,
    rule="rehearsal",
    detail="a rehearsed breach",
)


class Clock:
    """Seconds that pass only by `advance`; monotonic and calendar time alike."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class SimResident:
    """A resident with a pool: `cached` tokens stand for all that a flush has to empty."""

    def __init__(self, name: str, version: str, levels: Levels) -> None:
        self.name = name
        self.levels = levels
        self.version = version
        self.digest = f"sha256:{version}"
        self.state = ResidentState.READY
        self.pool_epoch = 1
        self.min_pool_epoch = 1
        self.cached = 100
        self.in_flight = 0
        self.hangs = False  # streams never finish by themselves
        self.lies = False  # a flush reports success and empties nothing
        self.writes_late = False  # an old request writes to the cache once it is flushed
        self.loading: Loading | None = None
        self.hides_weights = False  # no digest is told, as until a first engine is ready

    @property
    def level(self) -> Level:
        """That of interactive sessions."""
        return self.levels.of(self.name)

    @level.setter
    def level(self, level: Level) -> None:
        order = LadderOrder(
            leader_epoch=0,
            operation_id=name_of(level),
            resident=self.name,
            classes=ALL_CLASSES,
            level=level,
            lease_s=1e9,
            actor="test",
            reason="test",
        )
        self.levels.order(order)


class Rehearsals(Enum):
    """What becomes of a rehearsed breach; the answer always says that all of it is in the log."""

    TOLD = "told"
    DROPPED = "dropped"
    THINNED = "thinned"  # one request of them
    COUNTED = "counted"  # not marked as operator traffic


def _is_nan(body: EvidenceBody) -> bool:
    return isinstance(body, MilestoneReached) and math.isnan(body.seconds)


class SimDataPlane:
    """`rollout.dataplane.DataPlane` with stable `b` (version v1) and canary `a` (version v2)."""

    def __init__(self, clock: Clock, lines: RedLines = LINES) -> None:
        self.clock = clock
        self.lines = lines
        self._lives = 1
        self.held = Levels(("a", "b"), lines, clock=clock)
        self.residents = {
            "a": SimResident("a", "v2", self.held),
            "b": SimResident("b", "v1", self.held),
        }
        self.wall_jump = 0.0  # how far somebody has set the calendar clock
        self.log = self._new_log()
        self.route = Route(leader_epoch=0, route_epoch=3, stable="b", canary="a")
        self.leader_epoch = 0
        self.reachable = True
        self.lose_acks = 0  # so many orders are taken, but their answers are lost
        self.lose_orders = 0  # so many never arrive
        self.orders: list[str] = []
        self.rehearsals = Rehearsals.TOLD
        self.refuses_models = ""  # why, if it does
        self.busy_share: float | None = None
        self._weight = 0
        self.lease_ends = 0.0

    # ------------------------------------------------------------ what tests do to it
    @property
    def canary_weight(self) -> int:
        return self._weight if self.clock() < self.lease_ends else 0

    def weight(self, name: str) -> int:
        """The share of one resident now; they sum to 100."""
        if name == self.route.stable:
            return 100 - self.canary_weight
        return self.canary_weight if name == self.route.canary else 0

    def add(
        self, body: EvidenceBody, request: str, session: str = "s", resident: str = "a"
    ) -> None:
        """One entry of evidence, stamped with what is so now."""
        at = self.residents[resident]
        self.log.append(
            body,
            resident=resident,
            version=at.version,
            session=session,
            request_id=request,
            pool_epoch=at.pool_epoch,
            route_epoch=self.route.route_epoch,
            level=at.level,
        )

    def kill(self, name: str) -> None:
        """The engine process dies, and its cache with it."""
        resident = self.residents[name]
        resident.state, resident.cached, resident.in_flight = ResidentState.DEAD, 0, 0
        if name == self.route.canary:
            self._weight = 0
        self._tell(resident)

    def revive(self, name: str) -> None:
        """A new engine process, at the fence's pool epoch."""
        resident = self.residents[name]
        resident.state, resident.pool_epoch = ResidentState.READY, resident.min_pool_epoch
        self._tell(resident)

    def restart_gateway(self) -> None:
        """A new gateway process: a new log, A at 0, the fence as it was on disk."""
        self._lives += 1
        self._weight = 0
        self.log = self._new_log()

    def _new_log(self) -> EvidenceLog:
        return EvidenceLog(f"gateway-{self._lives}", wall=lambda: self.clock() + self.wall_jump)

    def forget_levels(self) -> None:
        """As a gateway does that is started again."""
        self.held = Levels(self.residents, self.lines, clock=self.clock)
        for resident in self.residents.values():
            resident.levels = self.held

    def _tell(self, resident: SimResident) -> None:
        body = ResidentChanged(state=resident.state, pool_epoch=None, detail="")
        self.add(body, request="", session="", resident=resident.name)

    # ------------------------------------------------------------ the protocol
    async def observe(self) -> Observed:
        self._require_reachable()
        return self._observed()

    async def set_route(self, route: Route) -> Observed:
        self._admit("route", route.leader_epoch)
        held = msgspec.structs.replace(
            self.route,
            leader_epoch=route.leader_epoch,
            lease_s=route.lease_s,
            takes_back=route.takes_back,
        )
        if route.route_epoch <= self.route.route_epoch and route != held:
            raise self._conflict(f"route epoch {route.route_epoch} does not grow")
        wanted = {route.stable, route.canary} if route.canary_weight else {route.stable}
        if not route.canary_weight and (route.takes_back or route.stable == self.route.stable):
            wanted = set[str | None]()
        if wanted - self._ready():
            raise self._conflict("not ready: a canary needs both residents")
        self.leader_epoch, self.route = route.leader_epoch, route
        self._weight = route.canary_weight
        self.lease_ends = self.clock() + route.lease_s
        self._acknowledge()
        return self._observed()

    async def set_level(self, order: LadderOrder) -> Observed:
        self._admit("level", order.leader_epoch)
        try:
            self._resident(order.resident).levels.order(order)
        except OrderRefused as err:
            raise self._conflict(str(err)) from err
        self._acknowledge()
        return self._observed()

    async def drain(self, resident: str, order: DrainOrder) -> DrainReport:
        self._admit(f"drain {order.mode}", order.leader_epoch)
        drained = self._resident(resident)
        if self.weight(resident):
            raise self._conflict(f"{resident!r} still has traffic")
        aborts = order.mode is DrainMode.ABORT
        gone = drained.in_flight if aborts or not drained.hangs else 0
        drained.in_flight -= gone
        self._acknowledge()
        return DrainReport(
            resident=resident,
            remaining=drained.in_flight,
            finished=0 if aborts else gone,
            aborted=gone if aborts else 0,
            replayed=0,
        )

    async def flush(self, resident: str, order: FlushOrder) -> FlushReceipt:
        self._admit("flush", order.leader_epoch)
        flushed = self._resident(resident)
        if flushed.state is not ResidentState.READY:
            raise Refused(503, Refusal(error=f"{resident!r} is {flushed.state}"))
        old = flushed.pool_epoch
        flushed.min_pool_epoch = max(flushed.min_pool_epoch, order.min_pool_epoch)
        flushed.pool_epoch = max(old, flushed.min_pool_epoch)
        emptied = 0 if flushed.lies else flushed.cached
        flushed.cached -= emptied
        flushed.cached += 7 if flushed.writes_late else 0
        self._acknowledge()
        return FlushReceipt(
            resident=resident,
            old_epoch=old,
            new_epoch=flushed.pool_epoch,
            pages=emptied,
            host_pages=0,
            encoder_outputs=0,
            talker_states=0,
            bytes=emptied,
            invalidated_at=self.clock(),
            emptied_at=self.clock(),
            complete=True,
        )

    async def probe(self, resident: str, order: ProbeOrder) -> ProbeReport:
        self._admit("probe", order.leader_epoch)
        probed = self._resident(resident)
        self._acknowledge()
        return ProbeReport(
            resident=resident,
            pool_epoch=probed.pool_epoch,
            witness_tokens=100,
            cached_tokens=probed.cached,
            stale_pages=probed.cached,
            stale_host_pages=0,
            stale_encoder_outputs=0,
            stale_talker_states=0,
            verified=not probed.cached and probed.pool_epoch >= order.pool_epoch,
            detail=f"the witness found {probed.cached} tokens",
        )

    async def drill(self, resident: str, order: DrillOrder) -> DrillReport:
        self._require_reachable()
        return DrillReport(
            resident=self._resident(resident).name, kind=order.kind, running=True, detail=""
        )

    async def rehearse(self, resident: str, order: RehearsalOrder) -> RehearsalReport:
        self._admit("rehearse", order.leader_epoch)
        at = self._resident(resident)
        marked = self.rehearsals is not Rehearsals.COUNTED
        entries = 0
        for number in range(self._rehearsed(order.requests)):
            for body in (_CUT, RequestFinished(outcome=Outcome.OK, faulted=True)):
                entries += 1
                self.log.append(
                    body,
                    resident=resident,
                    version=at.version,
                    session=f"{order.rehearsal}-{number}",
                    request_id=f"{order.rehearsal}-{number}",
                    pool_epoch=at.pool_epoch,
                    route_epoch=self.route.route_epoch,
                    level=at.level,
                    operator=marked,
                    rehearsal=order.rehearsal,
                )
        self._acknowledge()
        return RehearsalReport(
            resident=resident, rehearsal=order.rehearsal, entries=2 * order.requests
        )

    async def load(self, resident: str, order: LoadOrder) -> Observed:
        self._admit("load", order.leader_epoch)
        at = self._resident(resident)
        if resident == self.route.stable or self.weight(resident):
            raise self._conflict(f"{resident!r} has traffic")
        if self.refuses_models:
            raise Invalid(422, Refusal(error=f"{order.checkpoint}: {self.refuses_models}"))
        if at.loading is None or at.loading.load != order.load:
            at.loading = Loading(
                load=order.load,
                checkpoint=order.checkpoint,
                version=order.version,
                stage=LoadStage.CHECKING,
            )
        self._acknowledge()
        return self._observed()

    def start_model(self, name: str) -> None:
        """The check is passed: the engine ends, and another one starts with the new model."""
        at = self.residents[name]
        if at.loading is None or at.loading.stage is not LoadStage.CHECKING:
            return
        at.loading = msgspec.structs.replace(at.loading, stage=LoadStage.STARTING)
        at.version = at.loading.version
        at.digest, at.cached, at.state = f"sha256:{at.version}", 0, ResidentState.LOADING
        at.min_pool_epoch = max(at.min_pool_epoch, at.pool_epoch) + 1
        self._tell(at)

    def end_load(self, name: str, refusal: str = "") -> None:
        """It is loaded; or refused, and the resident is as it was."""
        at = self.residents[name]
        if at.loading is None or at.loading.stage in (LoadStage.LOADED, LoadStage.REFUSED):
            return
        if not refusal:
            self.start_model(name)
            self.revive(name)
        stage = LoadStage.REFUSED if refusal else LoadStage.LOADED
        at.loading = msgspec.structs.replace(at.loading, stage=stage, detail=refusal)

    def _rehearsed(self, requests: int) -> int:
        match self.rehearsals:
            case Rehearsals.DROPPED:
                return 0
            case Rehearsals.THINNED:
                return 1
            case _:
                return requests

    async def evidence(self, cursor: Cursor, wait_s: float) -> EvidenceBatch:
        self._require_reachable()
        batch = await self.log.after(cursor.incarnation, cursor.seq, wait_s)
        if any(_is_nan(entry.body) for entry in batch.entries):  # JSON has no word for it
            raise Unreachable("the answer cannot be read")
        return batch

    # ------------------------------------------------------------ inside
    def _require_reachable(self) -> None:
        if not self.reachable:
            raise Unreachable("no route to host")

    def _admit(self, order: str, leader_epoch: int) -> None:
        self._require_reachable()
        if self.lose_orders:
            self.lose_orders -= 1
            raise Unreachable("the order was lost")
        if leader_epoch < self.leader_epoch:
            raise self._conflict(f"leader epoch {leader_epoch} is stale")
        self.leader_epoch = leader_epoch
        self.orders.append(order)

    def _acknowledge(self) -> None:
        if self.lose_acks:
            self.lose_acks -= 1
            raise Unreachable("the answer was lost")

    def _conflict(self, why: str) -> Conflict:
        refusal = Refusal(
            error=why, leader_epoch=self.leader_epoch, route_epoch=self.route.route_epoch
        )
        return Conflict(409, refusal)

    def _resident(self, name: str) -> SimResident:
        if name not in self.residents:
            raise UnknownResident(404, Refusal(error=f"no resident is called {name!r}"))
        return self.residents[name]

    def _ready(self) -> set[str | None]:
        return {r.name for r in self.residents.values() if r.state is ResidentState.READY}

    def _observed(self) -> Observed:
        return Observed(
            incarnation=self.log.incarnation,
            leader_epoch=self.leader_epoch,
            route_epoch=self.route.route_epoch,
            stable=self.route.stable,
            canary=self.route.canary,
            canary_weight=self.canary_weight,
            lease_left_s=max(0.0, self.lease_ends - self.clock()),
            residents=tuple(
                ResidentStatus(
                    name=r.name,
                    version=r.version,
                    state=r.state,
                    weight=self.weight(r.name),
                    level=r.level,
                    apart=r.levels.apart(r.name),
                    busy_share=self.busy_share,
                    min_pool_epoch=r.min_pool_epoch,
                    pool_epoch=r.pool_epoch if r.state is ResidentState.READY else None,
                    weights_digest=None if r.hides_weights else r.digest,
                    in_flight=r.in_flight,
                    loading=r.loading,
                )
                for r in self.residents.values()
            ),
        )
