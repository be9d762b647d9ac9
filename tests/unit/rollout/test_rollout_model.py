"""Anything may happen in any order; what DESIGN 8 calls invariants holds throughout."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from monitors.contract import MilestoneReached
from monitors.journal import JournalUnwritable, StaleLeader
from monitors.labels import Milestone, Phase, ResidentState
from monitors.preparing import LoadStage
from rollout.capacity import UNPROVED
from rollout.commands import CommandRefused
from rollout.dataplane import Conflict, DataPlaneError
from rollout.phases import PATIENCE_S
from rollout.plan import Cause
from rollout.proposal import Wishes
from rollout.rollback import Step
from rollout.sequential import Verdict
from rollout.status import RolloutStatus
from tests.support.journals import ScratchJournal
from tests.support.sim_dataplane import Rehearsals
from tests.unit.rollout.world import QUICK, World

FORWARD = (Phase.WARMUP, Phase.CANARY, Phase.PROMOTING, Phase.BAKE, Phase.STABLE)
COMMANDS = ("promote", "hold", "resume", "freeze", "unfreeze", "rollback")
TROUBLES = (
    "kill a", "kill b", "gateway", "network", "answers", "orders", "nan",
    "lies", "hangs", "writes_late", "disk",
)  # fmt: skip
BUSY = (0.1, 0.6, None, float("nan"))


def share_of(status: RolloutStatus) -> int:
    """A's part of the traffic, as the controller wants it."""
    return 100 if status.promoted else status.weight


class AnyRollout(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.journal = ScratchJournal()
        self.phase = Phase.IDLE
        self.share = 0
        self.epochs = (0, 0, 0)
        self.barred: set[str] = set()
        self.known_load = ""
        self.world = World(self.journal, QUICK, witness=self.hears)

    def hears(self, status: RolloutStatus) -> None:
        """Each change as it is told."""
        if Phase.QUARANTINED in (status.phase, self.phase) and status.phase is not self.phase:
            self.is_proved(status)
        share = share_of(status)
        if share > self.share and status.phase in FORWARD:
            self.may_grow(status, share)
        event(f"A rollout was in {status.phase}, A at {share} %")
        self.phase, self.share = status.phase, share

    def is_proved(self, status: RolloutStatus) -> None:
        """Quarantine means acknowledged, flushed and probed."""
        if status.phase is Phase.QUARANTINED and status.rollback is not None:
            assert status.rollback.done
            assert status.rollback.probe is not None
            assert status.rollback.probe.verified
            self.has_nothing(status)

    def has_nothing(self, status: RolloutStatus) -> None:
        """What was rolled back has no traffic, unless somebody has routed anew since."""
        plane, rollback = self.world.plane, status.rollback
        assert rollback is not None
        newer = plane.route.route_epoch > (rollback.route_epoch or 0)
        assert newer or plane.weight(rollback.order.canary) == 0

    def may_grow(self, status: RolloutStatus, share: int) -> None:
        """More for A: only by evidence of health, and past half with a B that can take it all."""
        plan = status.plan
        assert plan is not None
        assert status.verdict is not Verdict.BREACH
        assert status.alarm is not None, "its alarm path was never proved"
        resumed = self.phase in (Phase.HOLD, Phase.FROZEN)
        if share > plan.weight and not resumed:
            assert status.verdict is Verdict.PASS
        if share > UNPROVED and not resumed:
            assert status.capacity is not None
            assert status.capacity.proved

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        with suppress(CommandRefused, JournalUnwritable, DataPlaneError):
            self.loop.run_until_complete(work)

    @initialize(
        weight=st.sampled_from([5, 5, 60, 90]), far=st.sampled_from(["", "warm-up", "25", "all"])
    )
    def begin(self, weight: int, far: str) -> None:
        world = self.world
        world.good(30, "b")
        self.do(world.controller.poll(0.0))
        if not far:
            self.do(world.start(weight))
        elif far == "warm-up":
            self.do(world.warm_up(weight))
        else:
            self.do(world.promote(until=Phase.BAKE if far == "all" else Phase.PROMOTING))
            world.stable_requests = 0

    # ------------------------------------------------------------ traffic and time
    @rule(count=st.integers(5, 40), resident=st.sampled_from(["a", "a", "b"]))
    def serve_well(self, count: int, resident: str) -> None:
        self.world.good(count, resident)

    @rule(
        count=st.integers(1, 25),
        kind=st.sampled_from(["faulty", "hung"]),
        resident=st.sampled_from(["a", "a", "b"]),
    )
    def serve_badly(self, count: int, kind: str, resident: str) -> None:
        getattr(self.world, kind)(count, resident)

    @rule(seconds=st.sampled_from([0.5, 2.0, 11.0, 31.0, 61.0, 3600.0]))
    def pass_time(self, seconds: float) -> None:
        self.do(self.world.step(seconds))

    @rule(requests=st.sampled_from([0, 8, 8]))
    def pass_a_minute_without_trouble(self, requests: int) -> None:
        for _ in range(7):
            self.world.good(requests)
            self.world.good(2 * requests, "b")
            self.do(self.world.step(9.0))

    @rule(seconds=st.sampled_from([-3600.0, -5.0, 5.0, 3600.0]))
    def set_the_calendar_clock(self, seconds: float) -> None:
        self.world.plane.wall_jump += seconds

    @rule(busy=st.sampled_from(BUSY))
    def see_b_as_busy(self, busy: float | None) -> None:
        self.world.plane.busy_share = busy

    # ------------------------------------------------------------ people and alerts
    @rule(model=st.sampled_from([None, "/models/v3"]))
    def allow_and_start(self, model: str | None) -> None:
        self.do(self.world.controller.unfreeze("ann"))
        for version in self.world.status.quarantined:
            self.do(self.world.controller.clear_quarantine(version, "ann"))
        self.barred = set(self.world.status.quarantined)
        self.do(self.world.start() if model is None else self._start_with(model))

    async def _start_with(self, model: str) -> None:
        await self.world.controller.tick()
        plan, _ = await self.world.controller.propose(Wishes(model=model))
        await self.world.controller.start(plan, "ann")

    @rule(refusal=st.sampled_from(["", "", "its weights are damaged"]))
    def end_a_load(self, refusal: str) -> None:
        self.world.plane.end_load("a", refusal)

    @rule(verb=st.sampled_from(COMMANDS))
    def command(self, verb: str) -> None:
        reason = ("looks odd",) if verb == "rollback" else ()
        self.do(getattr(self.world.controller, verb)("ann", *reason))

    @rule()
    def hold_the_warm_up_and_promote(self) -> None:
        """A hold there must not be a way round the lines that are not judged yet."""
        if self.world.status.phase is not Phase.WARMUP:
            return
        self.command("hold")
        self.world.good(60)
        self.do(self.world.controller.poll(0.0))
        self.command("promote")
        assert self.world.status.phase is not Phase.PROMOTING

    @rule(times=st.sampled_from([1, 2]))
    def an_alert_asks_for_a_rollback(self, times: int) -> None:
        controller = self.world.controller

        async def webhooks() -> None:
            asked = (controller.rollback("Alert", "faults", Cause.FAULTS) for _ in range(times))
            await asyncio.gather(*asked, return_exceptions=True)

        self.do(webhooks())

    # ------------------------------------------------------------ misfortune
    @rule()
    def restart_controller(self) -> None:
        self.world.crash()
        self.share = share_of(self.world.status)
        self.barred = set(self.world.status.quarantined)  # what no disk took is forgotten

    @rule(how=st.sampled_from(["tick", "renew", "poll"]))
    def an_old_leader_wakes_up(self, how: str) -> None:
        """It may not move anything once the data plane has heard of the new one."""
        old, plane = self.world.controller, self.world.plane
        self.restart_controller()
        self.do(self.world.controller.tick())
        self.do(self.world.controller.renew())
        if plane.leader_epoch != self.world.leader_epoch:
            return
        before = plane.route
        with suppress(StaleLeader):
            self.do(old.poll(0.0) if how == "poll" else getattr(old, how)())
        assert plane.route == before
        self.phase, self.share = self.world.status.phase, share_of(self.world.status)

    @rule(older=st.booleans())
    def an_old_order_arrives_late(self, older: bool) -> None:
        plane = self.world.plane
        if not plane.reachable or plane.lose_orders or plane.lose_acks:
            return
        late = msgspec.structs.replace(plane.route, canary_weight=77)
        if older:
            late = msgspec.structs.replace(
                late, leader_epoch=plane.leader_epoch - 1, route_epoch=plane.route.route_epoch + 1
            )
        if late.leader_epoch >= 0:
            with pytest.raises(Conflict):
                self.loop.run_until_complete(plane.set_route(late))

    @rule(stable=st.sampled_from([None, "a", "b"]))
    def somebody_sets_the_route_by_hand(self, stable: str | None) -> None:
        plane = self.world.plane
        changes: dict[str, Any] = {"route_epoch": plane.route.route_epoch + 1, "canary_weight": 0}
        if stable is not None:
            changes |= {"stable": stable, "canary": "b" if stable == "a" else "a"}
        self.do(plane.set_route(msgspec.structs.replace(plane.route, **changes)))

    @rule(what=st.sampled_from(TROUBLES))
    def break_something(self, what: str) -> None:
        plane = self.world.plane
        match what:
            case "kill a" | "kill b":
                plane.kill(what[-1])
            case "gateway":
                plane.restart_gateway()
            case "network":
                plane.reachable = False
            case "answers":
                plane.lose_acks = 2
            case "orders":
                plane.lose_orders = 2
            case "nan":
                body = MilestoneReached(milestone=Milestone.FIRST_TOKEN, seconds=float("nan"))
                plane.add(body, request="nan")
            case "disk":
                self.world.journal.writable = False
            case _:
                setattr(plane.residents["a"], what, True)
                plane.residents["a"].in_flight = 3

    @rule(lie=st.sampled_from(Rehearsals))
    def treat_rehearsals(self, lie: Rehearsals) -> None:
        self.world.plane.rehearsals = lie

    @rule()
    def mend_everything(self) -> None:
        plane, a = self.world.plane, self.world.plane.residents["a"]
        plane.reachable, plane.lose_acks, plane.lose_orders = True, 0, 0
        self.world.journal.writable = True
        a.lies = a.hangs = a.writes_late = False
        for name in ("a", "b"):
            if plane.residents[name].state is ResidentState.DEAD:
                plane.revive(name)

    # ------------------------------------------------------------ what always holds
    @invariant()
    def weights_sum_to_100(self) -> None:
        assert sum(map(self.world.plane.weight, ("a", "b"))) == 100

    @invariant()
    def a_breach_moves_nothing_forward(self) -> None:
        status = self.world.status
        if status.verdict is Verdict.BREACH:
            assert status.phase not in FORWARD

    @invariant()
    def a_breach_that_was_seen_takes_a_out_at_once_whatever_else_holds(self) -> None:
        """A freeze, a hold, a full disk: none is a gate on the way to B."""
        status, plane = self.world.status, self.world.plane
        if status.deposed or status.rollback is None or status.phase is not Phase.ROLLING_BACK:
            return
        if Step.CUT_OVER in status.rollback.proved and not plane.lose_acks:
            self.has_nothing(status)

    @invariant()
    def no_epoch_falls(self) -> None:
        plane = self.world.plane
        now = (
            plane.route.route_epoch,
            plane.residents["a"].min_pool_epoch,
            plane.residents["b"].min_pool_epoch,
        )
        assert all(new >= old for new, old in zip(now, self.epochs, strict=True))
        self.epochs = now

    @invariant()
    def a_quarantine_needs_a_person(self) -> None:
        status, plane = self.world.status, self.world.plane
        if status.plan is not None and status.phase in FORWARD:
            assert plane.residents[status.plan.canary].digest not in status.quarantined
        assert self.barred <= set(status.quarantined), "it was lifted by nobody"
        self.barred = set(status.quarantined)

    @invariant()
    def a_serves_with_the_model_of_its_plan_alone(self) -> None:
        status, plane = self.world.status, self.world.plane
        if status.plan is not None and status.plan.model is not None and plane.canary_weight:
            loading = plane.residents["a"].loading
            assert status.phase is Phase.PREPARE or (
                loading is not None and loading.stage is LoadStage.LOADED
            )

    @invariant()
    def nothing_is_loaded_that_the_journal_does_not_know(self) -> None:
        loading = self.world.plane.residents["a"].loading
        if loading is not None and loading.load != self.known_load:
            self.known_load = loading.load
            entries = self.journal.read()
            assert any(loading.load.encode() in bytes(entry.body) for entry in entries)

    @invariant()
    def a_controller_that_sees_lets_no_canary_serve_without_b(self) -> None:
        plane = self.world.plane
        if plane.reachable and not plane.lose_acks and not plane.lose_orders:
            self.do(self.world.controller.poll(0.0))
            self.do(self.world.controller.tick())
            if plane.canary_weight:
                assert plane.residents[plane.route.stable].state is ResidentState.READY

    @invariant()
    def a_controller_that_sees_leaves_nobody_with_a_dead_a_where_b_is_ready(self) -> None:
        status, plane = self.world.status, self.world.plane
        sees = plane.reachable and not plane.lose_acks and not plane.lose_orders
        dead = plane.residents["a"].state is ResidentState.DEAD
        if not (sees and dead and plane.residents["b"].state is ResidentState.READY):
            return
        for _ in range(2):  # seen at once, and not put up with for longer than a moment
            self.world.clock.advance(PATIENCE_S / 2)
            self.do(self.world.controller.poll(0.0))
            self.do(self.world.controller.tick())
        self.do(self.world.controller.tick())
        status = self.world.status
        if status.serves and not status.deposed:
            by_hand = "left the stable one" in " ".join(status.reasons)
            assert plane.route.stable == "b" or by_hand

    def teardown(self) -> None:
        """Once the world is well again, whatever was under way comes to its end."""
        world, plane = self.world, self.world.plane
        self.mend_everything()
        plane.end_load("a")
        for _ in range(4):
            self.do(world.step(31.0))
        status = world.status
        assert status.phase is not Phase.ROLLING_BACK
        assert not status.rollback_incomplete
        assert plane.canary_weight == (0 if status.promoted else status.weight)
        self.journal.close()
        self.loop.close()


TestAnyRollout = AnyRollout.TestCase
TestAnyRollout.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, derandomize=True
)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_many_more_rollouts_each_time_others() -> None:
    run_state_machine_as_test(
        AnyRollout,
        settings=settings(
            max_examples=300,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no failure
        ),
    )
