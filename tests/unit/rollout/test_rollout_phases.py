"""The state machine as tables: one row, one move."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.labels import Phase
from monitors.redlines import RedLines
from rollout.capacity import Capacity
from rollout.commands import CommandRefused, promote
from rollout.fold import Judgement
from rollout.phases import PATIENCE_S, apply, decide, settled
from rollout.plan import Cause, make_plan
from rollout.rehearsal import AlarmProof
from rollout.rollback import Progress, RollbackOrder, Step
from rollout.sequential import LineTest, Numbers, Verdict
from rollout.state import Decision, RolloutState, Signals

PLAN = make_plan(RedLines(), stable="b", canary="a", version="v2")
HEALTHY = Judgement(verdict=Verdict.PASS, breaches=(), quarantine=False, requests=2_000)
UNKNOWN = Judgement(verdict=Verdict.INCONCLUSIVE, breaches=(), quarantine=False, requests=50)
WELL = Signals(
    judgement=UNKNOWN,
    fresh=True,
    canary_ready=True,
    stable_ready=True,
    canary_died=False,
    routed=True,
    identity="sha256:v2",
    capacity=Capacity(stable="b", busy_share=0.3, served=100, all=200, limit=0.75),
    alarm=AlarmProof(rehearsal="r1", requests=6, seconds=0.1),
    alarm_lack=None,
)
SMALL = Capacity(stable="b", busy_share=0.5, served=100, all=200, limit=0.75)
UNSEEN = Capacity(stable="b", busy_share=None, served=100, all=200, limit=0.75)


def numbers(name: str) -> Numbers:
    line = next(line for line in PLAN.lines if line.name == name)
    return msgspec.structs.replace(LineTest(line).numbers(), verdict=Verdict.BREACH)


def breach(*names: str) -> Judgement:
    return Judgement(
        verdict=Verdict.BREACH,
        breaches=tuple(numbers(name) for name in names),
        quarantine=True,
        requests=50,
    )


def at(phase: Phase, **other: object) -> RolloutState:
    weights = {Phase.WARMUP: 5, Phase.CANARY: 5, Phase.HOLD: 5, Phase.PROMOTING: 100}
    whole: dict[str, object] = {
        "phase": phase,
        "plan": PLAN,
        "weight": weights.get(phase, 0),
        "promoted": phase in (Phase.PROMOTING, Phase.BAKE, Phase.STABLE),
        "route_epoch": 8,
        "identity": "sha256:v2",
        **other,
    }
    return RolloutState(**whole)  # type: ignore[arg-type]


def step(weight: int, **other: object) -> RolloutState:
    return at(Phase.PROMOTING, weight=weight, promoted=False, **other)


def seen(**changes: object) -> Signals:
    return msgspec.structs.replace(WELL, **changes)


LATELY_AWAY = seen(
    judgement=HEALTHY, routed=False, canary_ready=False, canary_away_s=PATIENCE_S - 1.0
)
AWAY = msgspec.structs.replace(LATELY_AWAY, canary_away_s=PATIENCE_S)
BOTH_AWAY = msgspec.structs.replace(AWAY, stable_ready=False)


@pytest.mark.parametrize(
    ("state", "signals", "phase_s", "expected"),
    [
        (at(Phase.PREPARE), WELL, 0.0, (Phase.WARMUP, 5)),
        (at(Phase.PREPARE), seen(canary_ready=False), 0.0, (Phase.PREPARE, 0)),
        (at(Phase.PREPARE), seen(stable_ready=None), 0.0, (Phase.PREPARE, 0)),
        (at(Phase.PREPARE), seen(alarm=None), 9e9, (Phase.PREPARE, 0)),
        (at(Phase.PREPARE, quarantined=("sha256:v2",)), WELL, 0.0, (Phase.QUARANTINED, 0)),
        (at(Phase.WARMUP), seen(judgement=UNKNOWN), 0.0, (Phase.CANARY, 5)),
        (at(Phase.WARMUP), seen(routed=False), 99.0, (Phase.WARMUP, 5)),
        (at(Phase.CANARY), seen(judgement=HEALTHY), 599.0, (Phase.CANARY, 5)),
        (at(Phase.CANARY), seen(judgement=HEALTHY), 600.0, (Phase.PROMOTING, 25)),
        (at(Phase.CANARY), WELL, 600.0, (Phase.HOLD, 5)),
        (at(Phase.CANARY), seen(fresh=False), 1.0, (Phase.HOLD, 0)),
        (at(Phase.CANARY), seen(canary_died=True), 1.0, (Phase.HOLD, 0)),
        (at(Phase.CANARY), seen(canary_ready=False), 1.0, (Phase.HOLD, 0)),
        (at(Phase.CANARY), seen(stable_ready=False), 1.0, (Phase.HOLD, 0)),
        (at(Phase.CANARY), seen(canary_ready=None, stable_ready=None), 1.0, (Phase.CANARY, 5)),
        (at(Phase.CANARY, frozen=True), seen(judgement=HEALTHY), 600.0, (Phase.CANARY, 5)),
        (at(Phase.CANARY, frozen=True), seen(fresh=False), 600.0, (Phase.HOLD, 0)),
        (at(Phase.HOLD), seen(judgement=HEALTHY), 599.0, (Phase.HOLD, 5)),
        (at(Phase.HOLD), seen(judgement=HEALTHY), 600.0, (Phase.HOLD, 0)),
        (at(Phase.HOLD, weight=0), WELL, 9e9, (Phase.HOLD, 0)),
        (step(25), seen(judgement=HEALTHY), 59.0, (Phase.PROMOTING, 25)),
        (step(25), seen(judgement=HEALTHY, routed=False), 60.0, (Phase.PROMOTING, 25)),
        (step(25), seen(judgement=HEALTHY), 60.0, (Phase.PROMOTING, 50)),
        (step(25), seen(judgement=HEALTHY, capacity=SMALL), 60.0, (Phase.PROMOTING, 50)),
        (step(25, requests_before=1_990), seen(judgement=HEALTHY), 60.0, (Phase.PROMOTING, 25)),
        (step(25, requests_before=1_990), seen(judgement=HEALTHY), 600.0, (Phase.HOLD, 25)),
        (step(25), WELL, 60.0, (Phase.PROMOTING, 25)),
        (step(25), WELL, 600.0, (Phase.HOLD, 25)),
        (step(25), seen(judgement=HEALTHY, fresh=False), 1.0, (Phase.HOLD, 0)),
        (step(25), seen(judgement=HEALTHY, stable_ready=False), 1.0, (Phase.HOLD, 0)),
        (step(25, frozen=True), seen(judgement=HEALTHY), 60.0, (Phase.PROMOTING, 25)),
        (step(50), seen(judgement=HEALTHY), 60.0, (Phase.PROMOTING, 100)),
        (step(50), seen(judgement=HEALTHY, capacity=SMALL), 60.0, (Phase.HOLD, 50)),
        (step(50), seen(judgement=HEALTHY, capacity=UNSEEN), 60.0, (Phase.PROMOTING, 50)),
        (step(50), seen(judgement=HEALTHY, capacity=UNSEEN), 600.0, (Phase.HOLD, 50)),
        (at(Phase.PROMOTING), seen(routed=False), 99.0, (Phase.PROMOTING, 100)),
        (at(Phase.PROMOTING), WELL, 0.0, (Phase.BAKE, 0)),
        (at(Phase.PROMOTING), seen(canary_died=True), 1.0, (Phase.HOLD, 0)),
        (at(Phase.PROMOTING), AWAY, 99.0, (Phase.HOLD, 0)),
        (at(Phase.PROMOTING, frozen=True), AWAY, 99.0, (Phase.HOLD, 0)),
        (at(Phase.PROMOTING), LATELY_AWAY, 99.0, (Phase.PROMOTING, 100)),
        (step(50), seen(judgement=HEALTHY, canary_ready=None), 60.0, (Phase.PROMOTING, 50)),
        (step(50), seen(judgement=HEALTHY, stable_ready=None), 60.0, (Phase.PROMOTING, 50)),
        (at(Phase.BAKE), seen(canary_died=True), 1.0, (Phase.HOLD, 0)),
        (at(Phase.BAKE), AWAY, 1.0, (Phase.HOLD, 0)),
        (at(Phase.BAKE, frozen=True), AWAY, 1.0, (Phase.HOLD, 0)),
        (at(Phase.BAKE), LATELY_AWAY, 9e9, (Phase.BAKE, 0)),
        (at(Phase.BAKE), BOTH_AWAY, 9e9, (Phase.BAKE, 0)),
        (at(Phase.BAKE), seen(canary_died=True, stable_ready=False), 1.0, (Phase.BAKE, 0)),
        (at(Phase.BAKE), seen(judgement=HEALTHY), 599.0, (Phase.BAKE, 0)),
        (at(Phase.BAKE), seen(judgement=HEALTHY, fresh=False), 600.0, (Phase.BAKE, 0)),
        (at(Phase.BAKE), seen(judgement=HEALTHY, stable_ready=False), 600.0, (Phase.BAKE, 0)),
        (at(Phase.BAKE, requests_before=2_000), seen(judgement=HEALTHY), 9e9, (Phase.BAKE, 0)),
        (at(Phase.BAKE), WELL, 9e9, (Phase.BAKE, 0)),
        (at(Phase.BAKE), seen(judgement=HEALTHY), 600.0, (Phase.STABLE, 0)),
        (at(Phase.STABLE), seen(judgement=breach("faults")), 0.0, (Phase.STABLE, 0)),
        (at(Phase.QUARANTINED), WELL, 9e9, (Phase.QUARANTINED, 0)),
        (RolloutState(), WELL, 9e9, (Phase.IDLE, 0)),
    ],
)
def test_each_row_makes_this_move(
    state: RolloutState, signals: Signals, phase_s: float, expected: tuple[Phase, int]
) -> None:
    decision = decide(state, signals, phase_s)
    assert (decision.phase, decision.weight) == expected
    assert decision.reasons or state.phase is Phase.IDLE or expected[0] == state.phase


SERVING = (Phase.WARMUP, Phase.CANARY, Phase.PROMOTING, Phase.BAKE, Phase.HOLD)


@pytest.mark.parametrize("phase", SERVING)
@pytest.mark.parametrize("frozen", [False, True])
@given(
    fresh=st.booleans(),
    routed=st.booleans(),
    died=st.booleans(),
    ready=st.sampled_from([True, False, None]),
    phase_s=st.floats(0.0, 1e6),
)
def test_a_breach_rolls_back_from_every_phase_in_which_a_serves_whatever_else_is_so(
    phase: Phase,
    frozen: bool,
    fresh: bool,
    routed: bool,
    died: bool,
    ready: bool | None,
    phase_s: float,
) -> None:
    signals = seen(
        judgement=breach("faults"), fresh=fresh, routed=routed, canary_died=died,
        canary_ready=ready, stable_ready=ready,
    )  # fmt: skip
    decision = decide(at(phase, frozen=frozen), signals, phase_s)
    assert (decision.phase, decision.weight) == (Phase.ROLLING_BACK, 0)
    assert not decision.forward
    assert decision.quarantine


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (("first_packet",), Cause.LATENCY),
        (("residency",), Cause.CACHE),
        (("first_packet", "faults"), Cause.FAULTS),
    ],
)
def test_faults_among_the_breaches_are_the_cause(lines: tuple[str, ...], cause: Cause) -> None:
    decision = decide(at(Phase.CANARY), seen(judgement=breach(*lines)), 1.0)
    assert decision.cause is cause
    assert [reason.split(":")[0] for reason in decision.reasons] == list(lines)


def move(state: RolloutState, signals: Signals, phase_s: float) -> RolloutState:
    return apply(
        state, decide(state, signals, phase_s), next_epoch=9, identity="sha256:v2", actor="rollout"
    )


def test_the_epochs_of_a_rollout_tell_its_warm_up_from_its_judged_time() -> None:
    warm = move(at(Phase.PREPARE, route_epoch=0), WELL, 0.0)
    assert (warm.route_epoch, warm.warm_from, warm.judged_from) == (9, 9, None)
    judged = apply(warm, decide(warm, WELL, 99.0), next_epoch=10, identity=None, actor="rollout")
    assert (judged.route_epoch, judged.warm_from, judged.judged_from) == (10, 9, 10)


@pytest.mark.parametrize(
    ("known", "told", "kept"),
    [
        ("sha256:v2", None, "sha256:v2"),
        ("sha256:v2", "version v2", "sha256:v2"),
        ("sha256:v2", "sha256:v2b", "sha256:v2b"),
        ("version v2", "sha256:v2", "sha256:v2"),
        (None, "version v2", "version v2"),
    ],
)
def test_a_digest_gives_way_to_nothing_but_a_digest(
    known: str | None, told: str | None, kept: str
) -> None:
    state = at(Phase.CANARY, identity=known)
    held = Decision(phase=Phase.HOLD, weight=0, reasons=("held",))
    moved = apply(state, held, next_epoch=9, identity=told, actor="ann")
    assert moved.identity == kept


@pytest.mark.parametrize(
    ("phase", "weight"), [(Phase.CANARY, 5), (Phase.PROMOTING, 25), (Phase.BAKE, 0)]
)
def test_whatever_comes_after_the_warm_up_is_judged_on_every_line(
    phase: Phase, weight: int
) -> None:
    held = at(Phase.HOLD, held_from=Phase.WARMUP, warm_from=8)
    decision = Decision(phase=phase, weight=weight, reasons=("on",))
    moved = apply(held, decision, next_epoch=9, identity=None, actor="ann")
    assert (moved.route_epoch, moved.judged_from) == (9, 9)


def test_an_epoch_is_spent_only_when_the_route_changes() -> None:
    held = move(at(Phase.CANARY, judged_from=8), WELL, 600.0)
    assert (held.phase, held.weight, held.route_epoch) == (Phase.HOLD, 5, 8)
    assert held.held_from is Phase.CANARY
    back = move(held, WELL, 600.0)
    assert (back.weight, back.route_epoch, back.held_from) == (0, 9, Phase.CANARY)


def test_promotion_wants_the_roles_swapped() -> None:
    promoting = move(step(50), seen(judgement=HEALTHY), 60.0)
    assert promoting.route is not None
    assert (promoting.route.stable, promoting.route.canary) == ("a", "b")
    assert promoting.route.weight == 0
    assert promoting.route_epoch == 9


def test_a_rollback_carries_its_order_into_the_journal() -> None:
    state = move(at(Phase.BAKE), seen(judgement=breach("faults")), 1.0)
    assert state.order is not None
    assert (state.order.stable, state.order.canary, state.order.route_epoch) == ("b", "a", 9)
    assert state.order.identity == "sha256:v2"
    assert state.route is None, "the rollback sets the route, nobody else"


def test_a_step_counts_only_what_a_served_at_it() -> None:
    first = apply(
        at(Phase.CANARY),
        decide(at(Phase.CANARY), seen(judgement=HEALTHY), 600.0),
        next_epoch=9, identity=None, actor="rollout", requests=2_000,
    )  # fmt: skip
    assert (first.weight, first.promoted, first.route_epoch) == (25, False, 9)
    assert decide(first, seen(judgement=HEALTHY), 60.0).weight == 25


def test_a_canary_of_more_than_half_needs_a_b_that_can_take_everything_back() -> None:
    plan = msgspec.structs.replace(PLAN, weight=60)
    waiting = at(Phase.PREPARE, plan=plan)
    for capacity in (SMALL, UNSEEN):
        decision = decide(waiting, seen(capacity=capacity), 0.0)
        assert decision.phase is Phase.PREPARE
        assert capacity.words in decision.reasons[0]
    assert decide(waiting, WELL, 0.0).phase is Phase.WARMUP


@pytest.mark.parametrize("ready", [False, None])
def test_roles_are_not_swapped_by_hand_while_b_is_not_known_to_be_ready(
    ready: bool | None,
) -> None:
    well = seen(judgement=HEALTHY)
    assert promote(step(50, judged_from=8), well, ()).weight == 100
    with pytest.raises(CommandRefused, match="not ready"):
        promote(step(50, judged_from=8), seen(judgement=HEALTHY, stable_ready=ready), ())


def test_a_bake_without_b_says_so_as_news() -> None:
    decision = decide(at(Phase.BAKE), seen(judgement=HEALTHY, stable_ready=False), 1.0)
    assert decision.noted
    assert "no way back" in decision.reasons[0]


@pytest.mark.parametrize("quarantine", [True, False])
def test_after_a_rollback_nothing_of_the_rollout_is_left_but_its_quarantine(
    quarantine: bool,
) -> None:
    order = RollbackOrder(
        stable="b", canary="a", identity="sha256:v2", cause=Cause.FAULTS, quarantine=quarantine,
        actor="rollout", reasons=("faults",), route_epoch=9, drain_s=1.0,
    )  # fmt: skip
    done = Progress(order=order, proved=tuple(Step), route_epoch=11)
    state = settled(at(Phase.ROLLING_BACK, quarantined=("sha256:v0",), frozen=True), done)
    assert state.phase is (Phase.QUARANTINED if quarantine else Phase.HOLD)
    assert state.quarantined == (("sha256:v0", "sha256:v2") if quarantine else ("sha256:v0",))
    assert (state.plan, state.route_epoch, state.frozen) == (None, 11, True)
    assert not state.under_way


def test_a_rollback_that_bars_nobody_is_not_called_a_quarantine() -> None:
    order = RollbackOrder(
        stable="b", canary="a", identity=None, cause=Cause.OPERATOR, quarantine=True,
        actor="ann", reasons=("odd",), route_epoch=9, drain_s=1.0,
    )  # fmt: skip
    state = settled(at(Phase.ROLLING_BACK), Progress(order=order, proved=tuple(Step)))
    assert (state.phase, state.quarantined) == (Phase.HOLD, ())


def test_a_freeze_is_shown_over_everything_but_a_rollback() -> None:
    assert at(Phase.CANARY, frozen=True).shown is Phase.FROZEN
    assert at(Phase.ROLLING_BACK, frozen=True).shown is Phase.ROLLING_BACK
    assert at(Phase.CANARY).shown is Phase.CANARY
