"""The drill of a rollback counts the faults that it makes, and the rollback that they cause."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from monitors.contract import EvidenceBody
from monitors.fault_table import FaultRow
from monitors.labels import Fault, Grade, Origin, Phase
from redline.drills import fault
from redline.drills.stage import CannotRun, Unanswered
from redline.drills.timeline import BEGIN, BREACH, Step, wanting
from redline.drills.watch import Sight
from rollout import rollback
from rollout.plan import Cause
from rollout.rollback import KIND, Progress, Record, RollbackOrder, Stage
from rollout.state import RolloutState
from rollout.store import STATE_KIND, SavedState
from tests.support.records import CUT, LATE, a_leg, a_record
from tests.unit.redline.drill_world import World, stage_in
from tests.unit.redline.samples import resident
from tests.unit.redline.test_drill_signs import NOTHING, journal, tables

CANARY = resident("a", "tiny-omni-2", weights_digest="d1")
ORDER = RollbackOrder(
    stable="b", canary="a", identity="d1", cause=Cause.FAULTS, quarantine=True, actor="rollout",
    reasons=("faults",), route_epoch=4, drain_s=5.0,
)  # fmt: skip
OTHERS = [
    pytest.param(msgspec.structs.replace(ORDER, cause=Cause.OPERATOR), id="by hand"),
    pytest.param(msgspec.structs.replace(ORDER, cause=Cause.LATENCY), id="late"),
    pytest.param(msgspec.structs.replace(ORDER, canary="b"), id="the other resident"),
    pytest.param(msgspec.structs.replace(ORDER, identity="d0"), id="the weights before"),
]


def called(order: RollbackOrder | None) -> Sight:
    state = RolloutState(phase=Phase.ROLLING_BACK, order=order)
    return replace(NOTHING, journal=(journal(STATE_KIND, SavedState(state=state, phase_s=0.0)),))


def proved(order: RollbackOrder, stage: Stage = Stage.PROVED) -> Sight:
    record = Record(step=rollback.Step.FLUSH, stage=stage, progress=Progress(order=order))
    return replace(NOTHING, journal=(journal(KIND, record),))


def test_the_order_for_this_canarys_faults_is_the_call() -> None:
    assert fault._called(CANARY)(called(ORDER)) is not None
    assert fault._called(CANARY)(called(None)) is None
    assert fault._called(CANARY)(NOTHING) is None


def test_a_step_of_that_order_counts_once_it_is_proved() -> None:
    assert fault._proved(rollback.Step.FLUSH, CANARY)(proved(ORDER)) is not None
    assert fault._proved(rollback.Step.FLUSH, CANARY)(proved(ORDER, Stage.BEGUN)) is None
    assert fault._proved(rollback.Step.VERIFY, CANARY)(proved(ORDER)) is None


@pytest.mark.parametrize("order", OTHERS)
def test_a_rollback_for_another_cause_or_of_another_is_none_of_the_drills(
    order: RollbackOrder,
) -> None:
    assert fault._called(CANARY)(called(order)) is None
    assert fault._proved(rollback.Step.FLUSH, CANARY)(proved(order)) is None


@pytest.mark.parametrize(
    ("version", "found", "counts"),
    [
        ("tiny-omni-2", CUT, True),
        ("tiny-omni-1", CUT, False),
        ("tiny-omni-2", msgspec.structs.replace(CUT, fault=Fault.VIDEO_CORRUPT), False),
        ("tiny-omni-2", msgspec.structs.replace(CUT, grade=Grade.SOFT), False),
        ("tiny-omni-2", msgspec.structs.replace(CUT, origin=Origin.INPUT), False),
        ("tiny-omni-2", LATE, False),
    ],
)
def test_only_speech_of_this_version_that_is_cut_off_by_us_is_its_fault(
    version: str, found: EvidenceBody, counts: bool
) -> None:
    record = a_record(legs=(a_leg(found, version=version),))
    marks = list(fault._faults(record, CANARY.version))
    assert [mark.at for mark in marks] == [record.received + 0.5] * counts


@pytest.mark.parametrize(
    ("kind", "version", "faulted", "counts"),
    [
        (Fault.SPEECH_TRUNCATED, "tiny-omni-2", 1, True),
        (Fault.SPEECH_TRUNCATED, "tiny-omni-2", 0, False),
        (Fault.SPEECH_TRUNCATED, "tiny-omni-1", 1, False),
        (Fault.LIP_DESYNC, "tiny-omni-2", 1, False),
        (None, "tiny-omni-2", 1, False),
    ],
)
def test_nobody_looks_for_the_fault_before_the_table_has_it(
    kind: Fault | None, version: str, faulted: int, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_in(World(), monkeypatch)
    now = stage.timeline.began.at + 60.0
    record = a_record(received=now, legs=(a_leg(CUT, version="tiny-omni-2"),))
    monkeypatch.setattr(fault, "fetch_wrong", lambda *_: [record])
    row = FaultRow(
        version=version, fault=kind, finished=9, answered=9, requests=9, faulted=faulted, rate=None,
        rate_low=None, rate_high=None, soft=0, input_only=0,
    )  # fmt: skip
    seen = msgspec.structs.replace(tables(over=0.0, requests=9), faults=(row,))
    mark = fault._at_fault(stage, CANARY.version)(replace(NOTHING, tables=seen))
    assert (mark is not None) is counts


def test_a_fault_of_before_the_drill_is_none_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    stage = stage_in(world, monkeypatch)
    legs = (a_leg(CUT, version="tiny-omni-2"),)
    received = [world.now - 60.0, world.now + 9.0, world.now + 5.0]
    records = [a_record(received=at, legs=legs) for at in received]
    monkeypatch.setattr(fault, "fetch_wrong", lambda *_: records)
    row = FaultRow(
        version="tiny-omni-2", fault=Fault.SPEECH_TRUNCATED, finished=9, answered=9, requests=9,
        faulted=1, rate=None, rate_low=None, rate_high=None, soft=0, input_only=0,
    )  # fmt: skip
    seen = msgspec.structs.replace(tables(over=0.0, requests=9), faults=(row,))
    sign = fault._at_fault(stage, CANARY.version)
    mark = sign(replace(NOTHING, tables=seen))
    assert mark is not None
    assert mark.at == world.now + 5.5, "the first one since"
    records[1:] = []
    assert sign(replace(NOTHING, tables=seen)) is None


# ---------------------------------------------------------------- from the breach to the end
def test_every_step_of_a_rollback_is_awaited_after_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = [step for step, _ in fault._answered(stage_in(World(), monkeypatch), CANARY)]
    keys = [step.key for step in steps]
    proved = [step for step in rollback.Step if step is not rollback.Step.INTENT]  # the call is
    assert keys == [BREACH, fault.CALLED, *proved]
    assert [step.since for step in steps] == [BEGIN, *keys[:-1]]
    assert all(step.within_s for step in steps)


@pytest.mark.parametrize(("weight", "serves"), [(0, False), (5, True)])
def test_a_version_on_trial_without_weight_shows_nothing_yet(weight: int, serves: bool) -> None:
    world = World()
    world.canary_weight = weight
    mark = fault._serving(replace(NOTHING, observed=world.observed()))
    assert (mark is not None) is serves
    assert fault._serving(NOTHING) is None


def test_a_control_plane_that_stands_by_is_not_drilled(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    stage = stage_in(world, monkeypatch)
    standby = msgspec.structs.replace(world.control(), rollout=None)
    monkeypatch.setattr(world, "control", lambda: standby)
    with pytest.raises(CannotRun, match="stands by"):
        fault.fault(stage, unasked=True, clean_up=False)


@pytest.mark.parametrize("own_traffic", [True, False])
@pytest.mark.parametrize("clean_up", [True, False])
def test_it_speaks_if_it_may_and_lifts_the_quarantine_if_it_is_told_to(
    own_traffic: bool, clean_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, asked = World(), list[str]()
    stage = stage_in(world, monkeypatch, own_traffic=own_traffic)
    monkeypatch.setattr(fault, "ask", lambda *given, **_: asked.append(given[2]))
    monkeypatch.setattr(fault, "_canary", lambda _: CANARY)
    monkeypatch.setattr(fault, "_answered", lambda *_: ())
    fault.fault(stage, unasked=False, clean_up=clean_up)
    assert [kind is not None and kind.speech for kind in world.sent] == [own_traffic]
    assert asked == ["http://c/api/rollout/clear-quarantine"] * clean_up


@pytest.mark.parametrize(
    ("awaited", "rollbacks"),
    [((), 0), (((Step("called", "never", 1.0), lambda _: None),), 1)],
)
def test_its_rollout_is_rolled_back_by_the_drill_where_nobody_else_did(
    awaited: Any, rollbacks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, asked = stage_in(World(), monkeypatch), list[str]()
    monkeypatch.setattr(fault, "ask", lambda *given, **_: asked.append(given[2]))
    monkeypatch.setattr(fault, "_start", lambda _: None)
    monkeypatch.setattr(fault, "_canary", lambda _: CANARY)
    monkeypatch.setattr(fault, "_answered", lambda *_: awaited)
    monkeypatch.setattr(fault, "_ON_TRIAL", ())
    with stage.damage.mended_at_the_end(), suppress(Unanswered):
        fault.fault(stage, unasked=True, clean_up=False)
    assert asked == ["http://c/api/rollout/rollback"] * rollbacks


# ---------------------------------------------------------------- the other one is left alone
def nothing(_: World) -> None:
    """All is as it was."""


def changed(**what: Any) -> Callable[[World], None]:
    def happens(world: World) -> None:
        for name, value in what.items():
            setattr(world, name, value)

    return happens


@pytest.mark.parametrize(
    ("happens", "says"),
    [
        (nothing, None),
        (changed(pid=78), "same process with its pool: pid 77 -> 78"),
        (changed(pid=None), "same process with its pool: pid 77 -> None"),
        (changed(pool_epoch=4), "pool epoch 3 -> 4"),
        (changed(weight=95), "should serve all, and has 95 %"),
    ],
)
def test_the_stable_version_serves_all_as_the_process_that_it_was(
    happens: Callable[[World], None], says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    stage = stage_in(world, monkeypatch)
    before = stage.observed()
    happens(world)
    fault._unharmed(stage, before)
    told = wanting(stage.timeline)
    assert len(told) == (says is not None)
    assert says is None or says in told[0]
