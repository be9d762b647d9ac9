"""Anything may happen in any order; what DESIGN 8 calls invariants holds throughout."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from monitors.journal import JournalUnwritable
from monitors.labels import Phase, ResidentState
from rollout.commands import CommandRefused
from rollout.dataplane import DataPlaneError
from rollout.sequential import Verdict
from rollout.status import RolloutStatus
from tests.support.journals import ScratchJournal
from tests.unit.rollout.world import World

FORWARD = (Phase.WARMUP, Phase.CANARY, Phase.PROMOTING, Phase.BAKE, Phase.STABLE)


class AnyRollout(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.journal = ScratchJournal()
        self.phase = Phase.IDLE
        self.epochs = (0, 0, 0)
        self.world = World(self.journal, witness=self.hears)

    def hears(self, status: RolloutStatus) -> None:
        """Each change as it is told: quarantine means acknowledged, flushed and probed."""
        said_rolled_back = Phase.QUARANTINED in (status.phase, self.phase)
        if said_rolled_back and status.phase is not self.phase and not status.frozen:
            self.is_proved(status)
        self.phase = status.phase

    def is_proved(self, status: RolloutStatus) -> None:
        if status.phase is Phase.QUARANTINED and status.rollback is not None:
            assert status.rollback.done
            assert status.rollback.probe is not None
            assert status.rollback.probe.verified
            assert self.world.plane.weight(status.rollback.order.canary) == 0

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        with suppress(CommandRefused, JournalUnwritable, DataPlaneError):
            self.loop.run_until_complete(work)

    @initialize(weight=st.sampled_from([5, 100]))
    def begin(self, weight: int) -> None:
        self.do(self.world.start(weight))

    # ------------------------------------------------------------ traffic and time
    @rule(count=st.integers(5, 40), resident=st.sampled_from(["a", "a", "b"]))
    def serve_well(self, count: int, resident: str) -> None:
        self.world.good(count, resident)

    @rule(count=st.integers(1, 25), kind=st.sampled_from(["faulty", "hung"]))
    def serve_badly(self, count: int, kind: str) -> None:
        getattr(self.world, kind)(count)

    @rule(seconds=st.sampled_from([0.5, 2.0, 11.0, 31.0, 61.0]))
    def pass_time(self, seconds: float) -> None:
        self.do(self.world.step(seconds))

    @rule(requests=st.sampled_from([0, 8]))
    def pass_a_minute_without_trouble(self, requests: int) -> None:
        for _ in range(7):
            self.world.good(requests)
            self.do(self.world.step(9.0))

    # ------------------------------------------------------------ people
    @rule()
    def allow_and_start(self) -> None:
        self.do(self.world.controller.unfreeze("ann"))
        for version in self.world.status.quarantined:
            self.do(self.world.controller.clear_quarantine(version, "ann"))
        self.do(self.world.start())

    @rule(verb=st.sampled_from(["promote", "hold", "resume", "freeze", "unfreeze", "rollback"]))
    def command(self, verb: str) -> None:
        reason = ("looks odd",) if verb == "rollback" else ()
        self.do(getattr(self.world.controller, verb)("ann", *reason))

    # ------------------------------------------------------------ misfortune
    @rule()
    def restart_controller(self) -> None:
        self.world.crash()

    @rule(
        what=st.sampled_from(
            [
                "kill a",
                "kill b",
                "gateway",
                "by hand",
                "network",
                "answers",
                "lies",
                "hangs",
                "disk",
            ]
        )
    )
    def break_something(self, what: str) -> None:
        plane = self.world.plane
        match what:
            case "kill a" | "kill b":
                plane.kill(what[-1])
            case "gateway":
                plane.restart_gateway()
            case "by hand":
                epoch = plane.route.route_epoch + 1
                away = msgspec.structs.replace(plane.route, route_epoch=epoch, canary_weight=0)
                self.do(plane.set_route(away))
            case "network":
                plane.reachable = False
            case "answers":
                plane.lose_acks = 2
            case "disk":
                self.world.journal.writable = False
            case _:
                setattr(plane.residents["a"], what, True)
                plane.residents["a"].in_flight = 3

    @rule()
    def mend_everything(self) -> None:
        plane = self.world.plane
        plane.reachable, plane.lose_acks, self.world.journal.writable = True, 0, True
        plane.residents["a"].lies = plane.residents["a"].hangs = False
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
    def nobody_under_quarantine_is_given_traffic(self) -> None:
        status, plane = self.world.status, self.world.plane
        if status.plan is not None and status.phase in FORWARD:
            assert plane.residents[status.plan.canary].digest not in status.quarantined

    @invariant()
    def a_controller_that_sees_lets_no_canary_serve_without_b(self) -> None:
        plane = self.world.plane
        if plane.reachable and not plane.lose_acks:
            self.do(self.world.controller.poll(0.0))
            self.do(self.world.controller.tick())
            if plane.canary_weight:
                assert plane.residents[plane.route.stable].state is ResidentState.READY

    def teardown(self) -> None:
        """Once the world is well again, whatever was under way comes to its end."""
        world, plane = self.world, self.world.plane
        self.mend_everything()
        for _ in range(4):
            self.do(world.step(31.0))
        status = world.status
        assert status.phase is not Phase.ROLLING_BACK
        assert not status.rollback_incomplete
        assert plane.canary_weight == status.weight
        self.journal.close()
        self.loop.close()


TestAnyRollout = AnyRollout.TestCase
TestAnyRollout.settings = settings(
    max_examples=50, stateful_step_count=30, deadline=None, derandomize=True
)


@pytest.mark.slow
def test_many_more_rollouts_each_time_others() -> None:
    run_state_machine_as_test(
        AnyRollout,
        settings=settings(
            max_examples=1_500,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no failure
        ),
    )
