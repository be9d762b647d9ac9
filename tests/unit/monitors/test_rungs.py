"""The ladder's named rungs."""

from itertools import pairwise

from monitors.contract import Level
from monitors.rungs import RUNGS
from runtime.levels import step_back


def test_the_data_plane_recovers_down_the_same_rungs() -> None:
    assert RUNGS[0] == Level()
    assert all(step_back(worse) == better for better, worse in pairwise(RUNGS))


def test_the_last_rung_gives_up_everything() -> None:
    last = RUNGS[-1]
    assert all(getattr(last, f) == max(type(getattr(last, f))) for f in last.__struct_fields__)
