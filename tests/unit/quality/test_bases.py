"""Bases learned on clips: what they are judged by, and that they hold."""

from dataclasses import replace

import pytest

from runtime.model.checkpoint import Checkpoint
from runtime.quality import bases
from runtime.quality.bases import calibrate_bases
from runtime.quality.calibration_report import CalibrationPlan

PLAN = CalibrationPlan(loss=0.05, clips=3, seconds=2)


def test_bases_are_found_that_keep_to_the_budget(loaded: Checkpoint) -> None:
    seen: list[tuple[int, int]] = []
    found = calibrate_bases(loaded, PLAN, lambda done, most: seen.append((done, most)))
    report = found.report
    assert report.bits in bases.BITS
    assert report.loss.high <= PLAN.loss
    assert report.token_bytes * 5 < report.native_bytes
    assert report.bases_bytes == found.subspace.nbytes > 0
    assert set(found.subspace.units) == {(0, 1), (2, 3), (0,)}  # layer 0 alone: 1 may reuse it
    assert seen[-1][0] == seen[-1][1]


def test_where_too_much_is_lost_at_any_width_no_bits_are_named(
    loaded: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "BITS", (0.25,))
    report = calibrate_bases(loaded, replace(PLAN, loss=1e-6)).report
    assert report.bits is None
    assert report.loss.high > 1e-6
