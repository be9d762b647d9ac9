"""What B would be busy with, were all of the traffic its own."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.contract import Admission, Level, Observed, ResidentStatus, SessionClass, Shed
from monitors.labels import ResidentState
from monitors.redlines import RedLines
from rollout.capacity import Capacity, capacity
from rollout.plan import make_plan
from rollout.traffic import Served

PLAN = make_plan(RedLines(), stable="b", canary="a", version="v2")


def shown(busy: float | None, served: int, of_all: int) -> Capacity:
    return Capacity(stable="b", busy_share=busy, served=served, all=of_all, limit=0.75)


@pytest.mark.parametrize(
    ("capacity", "needed", "proved"),
    [
        (shown(0.3, 100, 200), 0.6, True),
        (shown(0.375, 100, 200), 0.75, False),
        (shown(0.5, 100, 100), 0.5, True),
        (shown(0.9, 50, 1_000), 18.0, False),
        (shown(0.0, 100, 200), 0.0, True),
        (shown(None, 100, 200), None, False),
        (shown(0.01, 19, 200), None, False),
        (shown(0.01, 0, 0), None, False),
    ],
)
def test_the_busy_share_grows_with_the_requests_and_unknown_is_no_proof(
    capacity: Capacity, needed: float | None, proved: bool
) -> None:
    assert capacity.needed == (None if needed is None else pytest.approx(needed))
    assert capacity.proved is proved


def seen(**more: Any) -> Observed:
    b = ResidentStatus(
        name="b", version="v1", state=ResidentState.READY, weight=95, min_pool_epoch=0,
        busy_share=0.1, **{"level": Level(), **more},
    )  # fmt: skip
    return Observed(
        incarnation="i", leader_epoch=1, route_epoch=1, stable="b", canary="a", canary_weight=5,
        lease_left_s=1.0, residents=(b,),
    )  # fmt: skip


@pytest.mark.parametrize("level", [Level(shed=Shed.ON), Level(admission=Admission.LIMITED)])
def test_a_b_that_turns_away_any_class_of_sessions_proves_nothing(level: Level) -> None:
    served = Served(one=100, all=110)
    assert capacity(PLAN, seen(), served).proved
    for turned in ({"level": level}, {"apart": {SessionClass.BATCH: level}}):
        shown = capacity(PLAN, seen(**turned), served)
        assert (shown.turns_away, shown.proved) == (True, False)


@given(st.floats(0.0, 1.0), st.integers(20, 10_000), st.integers(0, 10_000))
def test_more_traffic_elsewhere_never_makes_b_look_better(
    busy: float, served: int, more: int
) -> None:
    less, much = shown(busy, served, served), shown(busy, served, served + more)
    assert (less.needed or 0.0) <= (much.needed or 0.0)
    assert less.proved or not much.proved
