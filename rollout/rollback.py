"""Taking A out of traffic, in an order that is safe to stop and to repeat at any point (S4.4).

Each step is journalled before and after. Whoever starts after a crash goes on at the first step
that was not proved. "Rolled back" is said when the data plane acknowledged the cut over and a
probe found the flushed pool empty: engines are known to lie about flushes, so they are not asked.
"""

import time
from collections.abc import Awaitable, Callable
from enum import StrEnum

import msgspec

from monitors.contract import (
    DrainMode,
    DrainOrder,
    DrainReport,
    Epoch,
    FlushOrder,
    FlushReceipt,
    Name,
    ProbeOrder,
    ProbeReport,
    ResidentStatus,
    Route,
    Wire,
)
from rollout.dataplane import Conflict, DataPlane, DataPlaneError, Refused
from rollout.ledger import Ledger
from rollout.plan import Cause

KIND = "rollback.step"
_ACTOR = "rollout"
_CUT_OVER_TRIES = 3
_ROUTE_LEASE_S = 10.0  # of a weight of 0, which has nothing to lose when it expires


class Step(StrEnum):
    """The steps, in their order."""

    INTENT = "intent"  # the order is in the journal
    CUT_OVER = "cut_over"  # weight 0 under a new route epoch, acknowledged
    DRAIN = "drain"  # no stream of A is in flight
    FLUSH = "flush"  # A's minimum pool epoch is raised and every tier swept
    VERIFY = "verify"  # a probe missed
    QUARANTINE = "quarantine"  # A's weights may not start again
    DONE = "done"


class Stage(StrEnum):
    BEGUN = "begun"
    PROVED = "proved"
    FAILED = "failed"


class RollbackOrder(Wire, frozen=True):
    """One rollback: who goes, who serves, and why. `route_epoch`: the first to try."""

    stable: Name
    canary: Name
    identity: str | None
    cause: Cause
    quarantine: bool
    actor: str
    reasons: tuple[str, ...]
    route_epoch: Epoch
    drain_s: float

    @property
    def drain_mode(self) -> DrainMode:
        """Bad output is stopped at once; late output is still worth its end."""
        return DrainMode.ABORT if self.cause is Cause.FAULTS else DrainMode.FINISH


class Progress(Wire, frozen=True):
    """How far a rollback got, with the proofs. One entry of the journal holds all of it.

    The intent needs no step of its own: the state that carries the order was journalled first.
    """

    order: RollbackOrder
    proved: tuple[Step, ...] = (Step.INTENT,)
    route_epoch: Epoch | None = None  # under which A was cut over
    drained: DrainReport | None = None
    receipt: FlushReceipt | None = None
    probe: ProbeReport | None = None
    failure: str | None = None  # of the newest attempt, while it could not go on

    @property
    def done(self) -> bool:
        return Step.DONE in self.proved

    @property
    def next_step(self) -> Step | None:
        """The first step that is not proved; None when all are."""
        return next((step for step in Step if step not in self.proved), None)


class Record(Wire, frozen=True):
    """One journal entry: a step begun, proved or failed, and the progress it left. `took_s`: this
    attempt at it, until then; an entry may be written later than what it tells of."""

    step: Step
    stage: Stage
    progress: Progress
    took_s: float | None = None


class Incomplete(RuntimeError):
    """A step could not be proved. A stays out of traffic; try again (ROLLBACK_INCOMPLETE)."""


def last(ledger: Ledger) -> Progress | None:
    """The newest rollback of the journal, finished or not; None when there was none."""
    entry = ledger.last(KIND)
    return None if entry is None else entry.read_as(Record).progress


def resume(ledger: Ledger, order: RollbackOrder) -> Progress:
    """How far `order` got by the journal; its beginning where no step of it was begun."""
    progress = last(ledger)
    return progress if progress is not None and progress.order == order else Progress(order=order)


class Rollback:
    """Runs one rollback's steps from wherever `progress` stands. `told` hears of each advance.
    `clock`: monotonic seconds."""

    def __init__(
        self,
        progress: Progress,
        plane: DataPlane,
        ledger: Ledger,
        told: Callable[[Progress], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.progress = progress
        self._plane = plane
        self._ledger = ledger
        self._told = told
        self._clock = clock
        self._began: float | None = None  # this attempt at this step
        self._do: dict[Step, Callable[[], Awaitable[Progress]]] = {
            Step.INTENT: self._entry_is_enough,
            Step.CUT_OVER: self._cut_over,
            Step.DRAIN: self._drain,
            Step.FLUSH: self._flush,
            Step.VERIFY: self._verify,
            Step.QUARANTINE: self._entry_is_enough,
            Step.DONE: self._entry_is_enough,
        }

    async def run(self) -> Progress:
        """All steps that are left. Raises `Incomplete` at the first that cannot be proved."""
        while (step := self.progress.next_step) is not None:
            self._began = None
            self._record(step, Stage.BEGUN, self.progress)
            self._began = self._clock()
            try:
                proof = await self._do[step]()
            except (DataPlaneError, Incomplete) as err:
                self._fail(step, str(err))
                raise Incomplete(f"{step}: {err}") from err
            proved = (*self.progress.proved, step)
            self._record(
                step, Stage.PROVED, msgspec.structs.replace(proof, proved=proved, failure=None)
            )
        return self.progress

    def _record(self, step: Step, stage: Stage, progress: Progress) -> None:
        self.progress = progress
        took_s = None if self._began is None else self._clock() - self._began
        record = Record(step=step, stage=stage, progress=progress, took_s=took_s)
        self._ledger.write_or_keep(KIND, _ACTOR, record)
        self._told(progress)

    def _fail(self, step: Step, why: str) -> None:
        """A flush that a probe refuted was none: the next attempt begins with it."""
        kept = tuple(s for s in self.progress.proved if step is not Step.VERIFY or s != Step.FLUSH)
        failure = f"{step}: {why}"
        self._record(
            step, Stage.FAILED, msgspec.structs.replace(self.progress, proved=kept, failure=failure)
        )

    async def _entry_is_enough(self) -> Progress:
        """The journal entry is the step."""
        return self.progress

    async def _cut_over(self) -> Progress:
        """Weight 0 under an epoch that grows, so that nothing older can bring A back."""
        epoch = self.progress.route_epoch or self.progress.order.route_epoch
        for _ in range(_CUT_OVER_TRIES):
            try:
                return await self._route_to_stable(epoch)
            except Conflict as refusal:
                held = refusal.route_epoch
                if held is None or held < epoch or deposed(refusal, self._ledger.leader_epoch):
                    raise
                epoch = held + 1
        raise Incomplete("somebody else keeps changing the route")

    async def _route_to_stable(self, epoch: Epoch) -> Progress:
        order = self.progress.order
        route = Route(
            leader_epoch=self._ledger.leader_epoch,
            route_epoch=epoch,
            stable=order.stable,
            canary=order.canary,
            canary_weight=0,
            lease_s=_ROUTE_LEASE_S,
            takes_back=True,
        )
        seen = await self._plane.set_route(route)
        if (seen.stable, seen.canary_weight) != (order.stable, 0) or seen.route_epoch < epoch:
            raise Incomplete(
                f"the data plane answered with {seen.stable!r} stable and {seen.canary_weight} % "
                f"for {seen.canary!r} under route epoch {seen.route_epoch}"
            )
        return msgspec.structs.replace(self.progress, route_epoch=seen.route_epoch)

    async def _drain(self) -> Progress:
        """By cause; streams that do not end in time are aborted, as a hung A never would."""
        mode = self.progress.order.drain_mode
        report = await self._drained(mode)
        if report.remaining and mode is not DrainMode.ABORT:
            report = await self._drained(DrainMode.ABORT)
        if report.remaining:
            raise Incomplete(f"{report.remaining} requests are still in flight")
        return msgspec.structs.replace(self.progress, drained=report)

    async def _drained(self, mode: DrainMode) -> DrainReport:
        order = self.progress.order
        return await self._plane.drain(
            order.canary,
            DrainOrder(leader_epoch=self._ledger.leader_epoch, mode=mode, timeout_s=order.drain_s),
        )

    async def _flush(self) -> Progress:
        """Always to an epoch above every one in use: repeating a flush must flush again."""
        status = await self._canary()
        target = max(status.min_pool_epoch, status.pool_epoch or 0) + 1
        receipt = await self._plane.flush(
            status.name,
            FlushOrder(leader_epoch=self._ledger.leader_epoch, min_pool_epoch=target),
        )
        if not receipt.complete or receipt.new_epoch < target:
            raise Incomplete(
                f"the flush to pool epoch {target} stands at {receipt.new_epoch}, "
                f"{'complete' if receipt.complete else 'not complete'}"
            )
        return msgspec.structs.replace(self.progress, receipt=receipt)

    async def _verify(self) -> Progress:
        receipt = self.progress.receipt
        if receipt is None:
            raise Incomplete("there is no receipt of a flush to verify")
        probe = await self._plane.probe(
            self.progress.order.canary,
            ProbeOrder(leader_epoch=self._ledger.leader_epoch, pool_epoch=receipt.new_epoch),
        )
        if not probe.verified:
            raise Incomplete(f"the probe refutes the flush: {probe.detail}")
        return msgspec.structs.replace(self.progress, probe=probe)

    async def _canary(self) -> ResidentStatus:
        name = self.progress.order.canary
        seen = await self._plane.observe()
        for resident in seen.residents:
            if resident.name == name:
                return resident
        raise Incomplete(f"the data plane has no resident called {name!r} any more")


def deposed(error: DataPlaneError, leader_epoch: Epoch) -> bool:
    """Whether an order was refused because a newer leader has been here."""
    newer = error.leader_epoch if isinstance(error, Refused) else None
    return newer is not None and newer > leader_epoch
