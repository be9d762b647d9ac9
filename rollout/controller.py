"""The rollout controller: reads evidence, decides by `phases`, acts, and survives its own death.

One event loop, no locks: each decision is taken, journalled and made the state without a pause
in between; only talking to the data plane is awaited. Evidence is decided on as it arrives, so
the way from a breach to a weight of 0 waits for no tick.
"""

import logging
import time
from collections.abc import Awaitable, Callable

import msgspec

from monitors.contract import Observed
from monitors.journal import JournalUnwritable, StaleLeader
from monitors.labels import Phase
from monitors.redlines import RedLines
from rollout import commands, phases, rollback, store
from rollout.absence import Absence
from rollout.acting import Hand
from rollout.capacity import NOTHING_SHOWN, Capacity, capacity
from rollout.commands import ModelNotLoaded
from rollout.dataplane import Conflict, DataPlane, DataPlaneError, Refused
from rollout.detectable import Detectable
from rollout.ledger import JournalFile, Ledger
from rollout.plan import Cause, RolloutPlan
from rollout.preparing import Preparation
from rollout.proposal import Wishes, detectable_at, proposed
from rollout.reading import Reading
from rollout.saving import Saving
from rollout.state import Decision, RolloutState, Signals, is_routed, left_to_a_hand, signals
from rollout.status import RolloutStatus

_NO_WISHES = Wishes()

log = logging.getLogger(__name__)


class RolloutController:
    """One leader's hand on the rollout. Its state is what the journal says, from the start on.

    `poll`, `tick` and `renew` are to be called over and over (`rollout.runner` does); none of
    them raises for a data plane that is away or a journal that cannot be written. `on_change`
    hears of every change. `clock`: monotonic seconds.
    """

    def __init__(
        self,
        *,
        journal: JournalFile,
        plane: DataPlane,
        lines: RedLines,
        leader_epoch: int,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[RolloutStatus], None] = lambda _: None,
    ) -> None:
        self.lines = lines
        self._plane = plane
        self._ledger = Ledger(journal, leader_epoch)
        self._clock = clock
        self._on_change = on_change
        found = store.recover(self._ledger)
        self._state = found.state
        self._entered = clock() - found.phase_s
        self._reading = Reading(found, lines.latency.window_s, clock)
        self._hand = Hand(
            plane, self._ledger, lines.rollout, found.progress, told=self._tell, clock=clock
        )
        self._preparation = Preparation(plane, self._ledger, lines.rollout, self._reading)
        self._observed: Observed | None = None
        self._absence = Absence(clock)
        self._staying: tuple[str, ...] = ()  # why it stays where it is, by the last look
        self._saving = Saving(self._ledger, clock)
        self._deposed = False
        self._be(found.state, self._entered)

    # ------------------------------------------------------------ called over and over
    async def poll(self, wait_s: float) -> bool:
        """One long poll of the evidence and whatever follows from it; whether it was answered."""
        try:
            batch = await self._plane.evidence(self._reading.cursor, wait_s)
        except DataPlaneError as err:
            log.warning("no evidence: %s", err)
            return False
        died = self._reading.take(batch, serves=self._state.serves)
        await self._as_leader(lambda: self._go_on(canary_died=died))
        return True

    async def tick(self) -> None:
        """See what is so, compare with what should be, and make it so."""
        await self._as_leader(self._tick)

    async def renew(self) -> None:
        """Renew the canary's lease: the same route under the same epoch."""
        if self._state.phase is not Phase.ROLLING_BACK:
            await self._as_leader(self._act)

    # ------------------------------------------------------------ commands
    async def propose(self, wishes: Wishes = _NO_WISHES) -> tuple[RolloutPlan, Detectable | None]:
        """The plan that these wishes make, and what it can detect at today's traffic.

        Raises `CommandRefused`, `PlanError` and `DataPlaneError`.
        """
        plan = proposed(self.lines, await self._plane.observe(), wishes)
        return plan, self._detectable(plan)

    async def start(self, plan: RolloutPlan, actor: str) -> RolloutStatus:
        """Begin a rollout. Commands raise `CommandRefused`, `JournalUnwritable`, `StaleLeader`."""
        observed = await self._plane.observe()
        self._see(observed)
        self._enter(commands.start(self._state, plan, observed), actor, urgent=False)
        status = await self._commanded()  # orders A's model, if it has one to load
        if status.phase is Phase.IDLE:
            raise ModelNotLoaded("; ".join(status.reasons))
        return status

    async def promote(self, actor: str) -> RolloutStatus:
        """Give A its next share before the time for it, on evidence."""
        await self._look_now()
        move = commands.promote(self._state, self._signals(), self._reading.canary)
        self._move(move, actor)
        return await self._commanded()

    async def hold(self, actor: str) -> RolloutStatus:
        """Stay; a breach still rolls back."""
        self._move(commands.hold(self._state), actor)
        return await self._commanded()

    async def resume(self, actor: str) -> RolloutStatus:
        """End a hold."""
        await self._look_now()
        self._move(commands.resume(self._state, self._signals()), actor)
        return await self._commanded()

    async def rollback(
        self, actor: str, reason: str, cause: Cause = Cause.OPERATOR
    ) -> RolloutStatus:
        """Take A out now, or try again. Answers when an attempt ended, at once while one runs.

        An operator's decision puts A under quarantine; another cause only where A is to blame.
        """
        if self._state.phase is not Phase.ROLLING_BACK:
            blamed = cause is Cause.OPERATOR or self._reading.blames_canary(cause)
            move = commands.roll_back(self._state, cause, reason, quarantine=blamed)
            self._move(move, actor)
        return await self._commanded()

    async def freeze(self, actor: str) -> RolloutStatus:
        """From here on only moves toward the stable version."""
        self._enter(msgspec.structs.replace(self._state, frozen=True), actor, urgent=True)
        return await self._commanded()

    async def unfreeze(self, actor: str) -> RolloutStatus:
        """End a freeze."""
        self._enter(msgspec.structs.replace(self._state, frozen=False), actor, urgent=False)
        return await self._commanded()

    async def clear_quarantine(self, identity: str, actor: str) -> RolloutStatus:
        """Let a version serve again."""
        self._enter(commands.clear_quarantine(self._state, identity), actor, urgent=False)
        return await self._commanded()

    def status(self) -> RolloutStatus:
        """All there is to show."""
        state, reading, progress = self._state, self._reading, self._hand.progress
        seen = self._signals()
        rolling_back = state.phase is Phase.ROLLING_BACK
        failed = progress is not None and progress.failure is not None
        return RolloutStatus(
            phase=state.shown,
            phase_s=self._clock() - self._entered,
            frozen=state.frozen,
            covered=None if state.shown is state.phase else state.phase,
            reasons=self._staying or state.reasons,
            plan=state.plan,
            weight=state.weight,
            capacity=self._capacity(),
            loading=seen.loading,
            way_back=seen.way_back,
            alarm=state.alarm,
            promoted=state.promoted,
            serves=state.has_traffic,
            route_epoch=state.route_epoch,
            verdict=None if reading.fold is None else reading.judgement.verdict,
            canary=reading.canary,
            stable=reading.stable,
            requests_per_s=reading.traffic.per_second(),
            detectable=None if state.plan is None else self._detectable(state.plan),
            evidence_age_s=reading.age_s,
            rollback=progress,
            rollback_incomplete=rolling_back and failed,
            quarantined=state.quarantined,
            unjournalled=self._ledger.behind,
            deposed=self._deposed,
        )

    @property
    def way_back(self) -> bool | None:
        """Whether B, that a rollback would give everybody, can serve; None: it does, or unknown."""
        return self._signals().way_back

    # ------------------------------------------------------------ seeing
    async def _as_leader(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do it unless another leads by now; the journal and the data plane both would know."""
        if self._deposed:
            return
        try:
            await work()
        except StaleLeader:
            self._depose()

    async def _tick(self) -> None:
        await self._look_now()
        self._reading.look_for_rehearsal()
        await self._go_on()
        await self._prepare()
        if self._is_due():
            await self._act()
        self._ledger.try_to_catch_up()
        if self._state.under_way or self._state.has_traffic:
            self._saving.go_on(self._reading, self._clock() - self._entered)

    async def _look_now(self) -> None:
        observed = await self._look()
        if observed is not None:
            self._see(observed)

    async def _look(self) -> Observed | None:
        try:
            return await self._plane.observe()
        except DataPlaneError as err:
            log.warning("the data plane cannot be seen: %s", err)
            return None

    def _is_due(self) -> bool:
        """Whether the data plane is not what the state says, and it is time to try again."""
        if self._state.phase is Phase.ROLLING_BACK:
            return self._hand.may_try_again
        return not is_routed(self._state, self._observed)

    def _see(self, observed: Observed) -> None:
        """Take note of what is so."""
        self._observed = observed
        if observed.leader_epoch > self._ledger.leader_epoch:
            self._depose()
        elif self._state.route is not None and observed.route_epoch > self._state.route_epoch:
            self._yield_to(observed, f"route epoch {observed.route_epoch} was set by somebody else")
        elif self._state.overruled_by(observed.stable):
            self._yield_to(observed, f"{observed.stable!r} was made the stable one by hand")

    def _yield_to(self, observed: Observed, reason: str) -> None:
        """Another route holds, set by hand or lost with a journal: A waits at 0 for a person.

        Where that route has made A the stable one it is left as it is: to take A out would move
        everybody, and against somebody's word. A breach still does.
        """
        plan, epoch = self._state.plan, max(observed.route_epoch, self._state.route_epoch)
        if self._deposed or plan is None:
            return
        if observed.stable == plan.canary:
            words = f"A is left the stable one: {reason}"
            held = self._after(Decision(phase=Phase.HOLD, weight=0, reasons=(words,)), store.ACTOR)
            held = left_to_a_hand(held, epoch)
        else:
            words = f"A is held at 0: {reason}"
            held = self._after(Decision(phase=Phase.HOLD, weight=0, reasons=(words,)), store.ACTOR)
            held = msgspec.structs.replace(held, route_epoch=epoch + 1)
        self._enter(held, store.ACTOR, urgent=True)

    def _depose(self) -> None:
        if not self._deposed:
            self._deposed = True
            log.warning("another control plane leads: this one acts no more")
            self._tell()

    def _signals(self, *, canary_died: bool = False) -> Signals:
        found = signals(
            self._state,
            self._observed,
            judgement=self._reading.judgement,
            capacity=self._capacity() or NOTHING_SHOWN,
            alarm=self._reading.alarm,
            alarm_lack=self._reading.alarm_lack,
            fresh=self._reading.silence_s <= self.lines.rollout.evidence_stale_s,
            canary_died=canary_died,
        )
        away_s = self._absence.seconds(found.canary_ready)
        return msgspec.structs.replace(found, canary_away_s=away_s)

    def _capacity(self) -> Capacity | None:
        plan = self._state.plan
        if plan is None:
            return None
        return capacity(plan, self._observed, self._reading.traffic.of(plan.stable))

    def _detectable(self, plan: RolloutPlan) -> Detectable | None:
        return detectable_at(plan, self._reading.traffic.per_second())

    # ------------------------------------------------------------ deciding
    async def _go_on(self, *, canary_died: bool = False) -> None:
        """Decide, and act at once on whatever was decided; again, until there is nothing new."""
        while self._think(canary_died=canary_died):
            await self._act()
            canary_died = False

    def _think(self, *, canary_died: bool) -> bool:
        """Take the next decision, if there is one; whether the state moved."""
        phase_s = self._clock() - self._entered
        decision = phases.decide(self._state, self._signals(canary_died=canary_died), phase_s)
        stays = (decision.phase, decision.weight) == (self._state.phase, self._state.weight)
        if stays:
            self._staying = decision.reasons
        if stays and not (decision.noted and decision.reasons != self._state.reasons):
            return False
        try:
            self._move(decision, store.ACTOR)
        except JournalUnwritable as err:
            log.warning("%s is refused: %s", decision.phase, err)
            return False
        return not stays

    def _move(self, decision: Decision, actor: str) -> None:
        self._enter(self._after(decision, actor), actor, urgent=not decision.forward)

    def _after(self, decision: Decision, actor: str) -> RolloutState:
        seen = 0 if self._observed is None else self._observed.route_epoch
        return phases.apply(
            self._state,
            decision,
            next_epoch=max(seen, self._state.route_epoch) + 1,
            identity=self._signals().identity,
            actor=actor,
            requests=self._reading.judgement.requests,
        )

    def _enter(self, state: RolloutState, actor: str, *, urgent: bool) -> None:
        """Journal a state, then be in it."""
        here = (state.phase, state.weight) == (self._state.phase, self._state.weight)
        entered = self._entered if here else self._clock()
        phase_s = self._clock() - entered
        store.save_state(
            self._ledger, state, phase_s, actor, urgent=urgent, seen=self._reading.fold
        )
        if state.order is not None and state.order != self._state.order:
            self._hand.begin_rollback(state.order)
        self._be(state, entered)
        self._tell()

    def _be(self, state: RolloutState, entered: float) -> None:
        if state.phase is Phase.PREPARE and self._state.phase is not Phase.PREPARE:
            self._reading.forget_rehearsal()
        self._state, self._entered, self._staying = state, entered, ()
        self._reading.follow(state)

    def _tell(self) -> None:
        self._on_change(self.status())

    # ------------------------------------------------------------ acting
    async def _commanded(self) -> RolloutStatus:
        await self._act()
        await self._go_on()
        await self._prepare()
        return self.status()

    async def _prepare(self) -> None:
        given_up = await self._preparation.go_on(self._state, self._signals())
        if given_up is not None and self._state.phase is Phase.PREPARE:
            self._move(given_up, store.ACTOR)

    async def _act(self) -> None:
        """Make the data plane what the state says."""
        if self._deposed:
            return
        if self._state.phase is not Phase.ROLLING_BACK:
            await self._set_route()
        elif (done := await self._hand.roll_back()) is not None:
            self._enter(phases.settled(self._state, done), store.ACTOR, urgent=True)

    async def _set_route(self) -> None:
        epoch = self._state.route_epoch
        try:
            seen = await self._hand.set_route(self._state)
            if seen is not None:
                self._see(seen)
        except DataPlaneError as err:
            log.warning("the route is not set: %s", err)
            await self._learn_from(err, epoch)

    async def _learn_from(self, error: DataPlaneError, epoch: int) -> None:
        """A refusal tells of a newer leader, or that our epoch is another's or serves no longer."""
        if isinstance(error, Refused) and rollback.deposed(error, self._ledger.leader_epoch):
            self._depose()
        held = error.route_epoch if isinstance(error, Conflict) else None
        if held is None or held < epoch:
            return
        observed = await self._look()
        wanted = self._state.route is not None and epoch == self._state.route_epoch
        if observed is not None and wanted:  # else a newer order went past it
            self._yield_to(observed, str(error))
