"""A learned calibration on real weights: one whose layers can be shared, and one whose cannot."""

from pathlib import Path

import pytest

from runtime.kv.learned import MOST_PARAMETERS
from runtime.model import checkpoint as checkpoints
from runtime.model.checkpoint import Checkpoint
from runtime.quality.calibrate_learned import calibrate_learned
from runtime.quality.calibration_report import CalibrationPlan
from runtime.quality.plan import PlanError
from tests.support.sharing import own_scale

PLAN = CalibrationPlan(0.003, clips=2)


def test_too_short_clips_are_refused_with_what_to_do(loaded: Checkpoint) -> None:
    with pytest.raises(PlanError, match="--seconds"):
        calibrate_learned(loaded, CalibrationPlan(0.003, clips=2, seconds=1))


@pytest.mark.slow
def test_what_is_safe_is_told_from_what_is_not(shipped_checkpoint: Path) -> None:
    safe = calibrate_learned(checkpoints.load(shipped_checkpoint), PLAN)
    harmed = checkpoints.load(shipped_checkpoint)
    own_scale(harmed)
    report = calibrate_learned(harmed, PLAN)
    assert safe.calibration is not None
    assert report.calibration is None
    assert report.joint.value > 0.003
    assert max(row.parameters for row in report.cells) <= MOST_PARAMETERS
    assert min(row.foretold for row in report.cells) > 100 * max(r.foretold for r in safe.cells)


@pytest.mark.slow
def test_the_same_plan_gives_the_same_file(shipped_checkpoint: Path) -> None:
    first, again = (calibrate_learned(checkpoints.load(shipped_checkpoint), PLAN) for _ in "ab")
    assert first == again
