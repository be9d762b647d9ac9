"""The router alone: shares, stickiness, the canary's lease, and orders that are refused."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from monitors.client_key import CanaryClients, digest_of
from monitors.contract import Route
from runtime.router import Fence, OrderRefused, Router, UnknownResident

BOTH = frozenset({"a", "b"})
SESSIONS = [f"session-{i}" for i in range(4_000)]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def a_route(epoch: int, weight: int = 0, **more: object) -> Route:
    given = {"leader_epoch": 1, "route_epoch": epoch, "stable": "b", "canary": "a"}
    return Route(**{**given, "canary_weight": weight, **more})  # type: ignore[arg-type]


def a_router(clock: Clock | None = None) -> Router:
    fence = Fence(leader_epoch=0, route=a_route(0, leader_epoch=0), min_pool_epochs={})
    return Router(fence, {"a": "v2", "b": "v1"}, clock=clock or Clock())


def take(router: Router, route: Route, ready: frozenset[str] = BOTH) -> None:
    router.take(router.fence_after(route, ready))


def canary_sessions(router: Router) -> set[str]:
    return {session for session in SESSIONS if router.pick(session) == "a"}


def test_it_boots_with_the_canary_at_0() -> None:
    router = a_router()
    assert (router.weight("a"), router.weight("b")) == (0, 100)
    assert canary_sessions(router) == set()


def test_five_percent_of_sessions_go_to_the_canary() -> None:
    router = a_router()
    take(router, a_route(1, 5))
    assert 0.035 < len(canary_sessions(router)) / len(SESSIONS) < 0.065


def test_a_larger_weight_keeps_the_sessions_the_canary_had() -> None:
    router = a_router()
    take(router, a_route(1, 5))
    few = canary_sessions(router)
    take(router, a_route(2, 50))
    many = canary_sessions(router)
    assert few < many
    take(router, a_route(3, 5))
    assert canary_sessions(router) == few, "going back must not leave sessions behind"


def test_a_session_that_came_to_a_stays_there_all_the_way_to_everybody() -> None:
    router = a_router()
    on_a: set[str] = set()
    for epoch, weight in enumerate((5, 25, 50, 100), start=1):
        take(router, a_route(epoch, weight))
        assert on_a <= canary_sessions(router), f"at {weight} % a session went back"
        on_a = canary_sessions(router)
    take(router, Route(leader_epoch=1, route_epoch=9, stable="a", canary="b"))
    assert {router.pick(session) for session in on_a} == {"a"}, "the swap of the roles moved it"


def test_another_version_gets_other_sessions() -> None:
    one = a_router()
    other = Router(one.fence, {"a": "v3", "b": "v1"}, clock=Clock())
    for router in (one, other):
        take(router, a_route(1, 5))
    assert canary_sessions(one) != canary_sessions(other)


def test_an_expired_lease_sends_the_weight_to_0_and_a_renewal_brings_it_back() -> None:
    clock = Clock()
    router = a_router(clock)
    take(router, a_route(1, 50, lease_s=10.0))
    clock.now += 9.9
    assert router.weight("a") == 50
    clock.now += 0.2
    assert (router.weight("a"), router.weight("b"), router.lease_left_s) == (0, 100, 0.0)
    assert canary_sessions(router) == set()
    take(router, a_route(1, 50, lease_s=10.0))
    assert router.weight("a") == 50


def test_the_stable_resident_never_expires() -> None:
    clock = Clock()
    router = a_router(clock)
    clock.now += 1e9
    assert router.weight("b") == 100


def test_roles_swap_by_a_new_route() -> None:
    router = a_router()
    take(router, a_route(1, 100))
    take(router, a_route(2, 0, stable="a", canary="b"))
    assert (router.weight("a"), router.weight("b")) == (100, 0)
    assert router.pick("anybody") == "a"


def test_a_stale_leader_is_refused() -> None:
    router = a_router()
    take(router, a_route(1, leader_epoch=7))
    with pytest.raises(OrderRefused, match="leader epoch 6 is stale: 7 leads"):
        router.fence_after(a_route(2, leader_epoch=6), BOTH)
    with pytest.raises(OrderRefused, match="stale"):
        router.admit(6)


@pytest.mark.parametrize(
    "route", [a_route(4), a_route(5, 6), a_route(5, 5, stable="a", canary="b"), a_route(5)]
)
def test_a_change_of_route_needs_a_larger_epoch(route: Route) -> None:
    router = a_router()
    take(router, a_route(5, 5))
    with pytest.raises(OrderRefused, match="5 is held"):
        router.fence_after(route, BOTH)


def test_a_new_leader_may_renew_the_route_of_the_old_one() -> None:
    router = a_router()
    take(router, a_route(5, 5))
    take(router, a_route(5, 5, leader_epoch=2, lease_s=3.0))
    assert router.fence.leader_epoch == 2
    assert router.lease_left_s == 3.0


@pytest.mark.parametrize("missing", ["a", "b"])
def test_a_canary_gets_no_traffic_unless_both_residents_are_ready(missing: str) -> None:
    with pytest.raises(OrderRefused, match=f"not ready: {missing}"):
        a_router().fence_after(a_route(1, 5), BOTH - {missing})


def test_nothing_blocks_a_move_to_the_stable_resident() -> None:
    router = a_router()
    take(router, a_route(1, 5))
    take(router, a_route(2, 0), ready=frozenset())
    assert router.weight("a") == 0


def swapped(epoch: int, **more: object) -> Route:
    return a_route(epoch, stable="a", canary="b", **more)


def back(epoch: int, **more: object) -> Route:
    return a_route(epoch, takes_back=True, **more)


@pytest.mark.parametrize(
    ("held", "route", "retreats"),
    [
        ([a_route(1, 50)], a_route(2), True),
        ([a_route(1, 50)], a_route(1, 50), False),
        ([a_route(1, 50)], a_route(2, 25), False),
        ([a_route(1, 50)], a_route(2, mirror_weight=10), False),
        ([a_route(1, 50)], swapped(2), False),
        ([a_route(1, mirror_weight=10)], swapped(2), False),
        ([a_route(1, 50), swapped(2)], swapped(2, lease_s=3.0), True),
        ([a_route(1, 50), swapped(2)], a_route(3), False),  # it is another promotion, unless
        ([a_route(1, 50), swapped(2)], back(3), True),  # whoever orders it says that it is none
        ([a_route(1, 50), swapped(2), swapped(3, weight=5)], back(4), True),
        ([a_route(1, 50)], back(2), True),
        ([a_route(1, 50), swapped(2)], a_route(3, 5), False),
        ([a_route(1, canary=None)], swapped(2), False),
        ([a_route(1)], swapped(2), False),
    ],
)
def test_a_retreat_gives_nothing_to_a_resident_that_is_on_trial(
    held: list[Route], route: Route, retreats: bool
) -> None:
    router = a_router()
    for each in held:
        take(router, each)
    assert router.retreats(route) is retreats


def test_nobody_is_promoted_who_is_not_ready_and_the_way_back_is_open_to_whoever_it_leads() -> None:
    router = a_router()
    with pytest.raises(OrderRefused, match="not ready: a; it would serve everybody"):
        router.fence_after(swapped(1), frozenset({"b"}))
    take(router, swapped(1), ready=frozenset({"a"}))  # the way back is a person's to mend
    with pytest.raises(OrderRefused, match="not ready: b"):
        router.fence_after(a_route(2), frozenset({"a"}))
    take(router, back(2), ready=frozenset())
    assert router.route.stable == "b"
    take(router, a_route(2), ready=frozenset())  # a renewal need not repeat it


def test_a_promotion_is_no_retreat_where_the_lease_of_the_canary_has_run_out() -> None:
    clock = Clock()
    router = a_router(clock)
    take(router, a_route(1, 50))
    clock.now += 60.0
    router.drop_canary()
    assert not router.retreats(swapped(2))


@pytest.mark.parametrize(
    ("route", "words"),
    [
        (a_route(1, 5, canary=None), "without a canary"),
        (a_route(1, 0, canary="b"), "name two residents"),
        (a_route(1, 5, takes_back=True), "in an order that takes back"),
    ],
)
def test_a_route_that_makes_no_sense_is_refused(route: Route, words: str) -> None:
    with pytest.raises(OrderRefused, match=words):
        a_router().fence_after(route, BOTH)


def test_an_unknown_resident_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownResident, match="'c'; there are: a, b"):
        a_router().fence_after(a_route(1, canary="c"), BOTH)


def test_a_canary_that_died_has_no_weight_until_the_route_is_taken_again() -> None:
    router = a_router()
    take(router, a_route(1, 5))
    router.drop_canary()
    assert router.weight("a") == 0
    take(router, a_route(1, 5))
    assert router.weight("a") == 5


ADA, BOB = digest_of("ada's key"), digest_of("bob's key")


def served_by(router: Router, client: str | None) -> set[str]:
    return {router.pick(session, client) for session in SESSIONS[:50]}


@pytest.mark.parametrize(
    ("clients", "on_canary"),
    [
        (CanaryClients(), {ADA, BOB, None}),
        (CanaryClients(allow=(ADA,)), {ADA}),
        (CanaryClients(deny=(ADA,)), {BOB, None}),
        (CanaryClients(allow=(ADA, BOB), deny=(BOB,)), {ADA}),
    ],
)
def test_only_clients_that_the_lists_admit_go_to_the_canary(
    clients: CanaryClients, on_canary: set[str | None]
) -> None:
    router = a_router()
    take(router, a_route(1, 100, clients=clients))
    for client in (ADA, BOB, None):
        name = "a" if client in on_canary else "b"
        assert served_by(router, client) == {name}
        assert router.may_serve("a", client) is (client in on_canary)
        assert router.may_serve("b", client), "what B was given before it may finish"


def test_the_share_is_of_the_admitted_clients_sessions() -> None:
    router = a_router()
    take(router, a_route(1, 5))
    everybodys = canary_sessions(router)
    take(router, a_route(2, 5, clients=CanaryClients(allow=(ADA,))))
    assert {session for session in SESSIONS if router.pick(session, ADA) == "a"} == everybodys


def test_other_lists_need_a_larger_epoch_like_any_change_of_route() -> None:
    router = a_router()
    take(router, a_route(5, 5, clients=CanaryClients(deny=(ADA,))))
    take(router, a_route(5, 5, clients=CanaryClients(deny=(ADA,)), lease_s=3.0))
    with pytest.raises(OrderRefused, match="5 is held"):
        router.fence_after(a_route(5, 5), BOTH)


def copied(router: Router, client: str | None = None) -> set[str]:
    return {session for session in SESSIONS if router.mirror_of("b", session, client) == "a"}


def test_a_share_of_the_stable_ones_sessions_is_copied_whoever_the_canary_serves() -> None:
    router = a_router()
    take(router, a_route(1, mirror_weight=20))
    some = copied(router)
    assert 0.17 < len(some) / len(SESSIONS) < 0.23
    assert canary_sessions(router) == set()
    assert router.mirror_of("a", next(iter(some)), None) is None
    take(router, a_route(2, 20, mirror_weight=20))
    assert copied(router) == some != canary_sessions(router)
    take(router, a_route(3, mirror_weight=100, clients=CanaryClients(deny=(ADA,))))
    assert (copied(router, ADA), copied(router)) == (set(), set(SESSIONS))


def test_copies_end_with_the_lease_the_canary_and_a_restart() -> None:
    clock = Clock()
    router = a_router(clock)
    take(router, a_route(1, mirror_weight=100, lease_s=10.0))
    assert router.lease_left_s == 10.0
    assert a_router().mirror_weight == 0
    clock.now += 10.1
    assert (router.mirror_weight, copied(router)) == (0, set())
    take(router, a_route(1, mirror_weight=100, lease_s=10.0))
    router.drop_canary()
    assert (router.mirror_weight, copied(router)) == (0, set())


@pytest.mark.parametrize(("canary", "ready"), [(None, BOTH), ("a", frozenset({"b"}))])
def test_copies_need_a_canary_that_is_ready(canary: str | None, ready: frozenset[str]) -> None:
    with pytest.raises(OrderRefused, match=r"without a canary|not ready: a"):
        a_router().fence_after(a_route(1, mirror_weight=1, canary=canary), ready)


class RouterMachine(RuleBasedStateMachine):
    """Any orders from any leaders in any order: what must hold, holds."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.router = a_router(self.clock)
        self.leader = self.epoch = 0
        self.ready: frozenset[str] = BOTH

    @rule(
        leader=st.integers(0, 4),
        epoch=st.integers(0, 6),
        weight=st.sampled_from([0, 5, 50, 100]),
        swapped=st.booleans(),
        back=st.booleans(),
        lease_s=st.floats(0.5, 20.0),
    )
    def order(
        self, leader: int, epoch: int, weight: int, swapped: bool, back: bool, lease_s: float
    ) -> None:
        stable, canary = ("a", "b") if swapped else ("b", "a")
        route = a_route(
            epoch, weight, leader_epoch=leader, stable=stable, canary=canary, lease_s=lease_s,
            takes_back=back,
        )  # fmt: skip
        held, retreats = self.router.route, self.router.retreats(route)
        before = self.router.weight("a"), self.router.weight("b")
        try:
            take(self.router, route, self.ready)
        except OrderRefused:
            return
        after = self.router.weight("a"), self.router.weight("b")
        on_trial = "ab".index(held.canary) if held.canary_weight and held.canary else None
        if retreats and not back and on_trial is not None:
            assert after[on_trial] <= before[on_trial]
        assert leader >= self.leader
        assert epoch >= self.epoch
        assert not weight or self.ready == BOTH
        assert retreats or stable in self.ready
        self.leader, self.epoch = leader, epoch

    @rule(seconds=st.floats(0.0, 15.0))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(name=st.sampled_from(["a", "b"]))
    def changes(self, name: str) -> None:
        self.ready = self.ready ^ {name}
        if name == self.router.route.canary and name not in self.ready:
            self.router.drop_canary()

    @invariant()
    def weights_sum_to_100(self) -> None:
        assert self.router.weight("a") + self.router.weight("b") == 100

    @invariant()
    def epochs_are_those_last_taken(self) -> None:
        assert self.router.fence.leader_epoch == self.leader
        assert self.router.route.route_epoch == self.epoch

    @invariant()
    def a_canary_with_traffic_is_ready_and_within_its_lease(self) -> None:
        if self.router.canary_weight:
            assert self.router.route.canary in self.ready
            assert self.router.lease_left_s > 0.0

    @invariant()
    def no_weight_no_sessions(self) -> None:
        picked = {self.router.pick(session) for session in SESSIONS[:20]}
        assert all(self.router.weight(name) > 0 for name in picked)


TestRouterMachine = RouterMachine.TestCase
TestRouterMachine.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)
