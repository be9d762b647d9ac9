"""The model's own clock, judged by BT.1359."""

import pytest

from monitors.detectors.lip_sync import faults
from monitors.labels import Fault, Grade, Origin


@pytest.mark.parametrize("offset_ms", [None, 0.0, -45.0, 125.0])
def test_what_no_viewer_detects_is_no_fault(offset_ms: float | None):
    assert faults(offset_ms) == ()


@pytest.mark.parametrize("offset_ms", [-46.0, -90.0, 126.0, 185.0])
def test_what_viewers_detect_but_accept_only_shows(offset_ms: float):
    (fault,) = faults(offset_ms)
    assert (fault.grade, fault.rule) == (Grade.SOFT, "noticeable_offset")


@pytest.mark.parametrize("offset_ms", [-91.0, 186.0, 1000.0])
def test_what_viewers_reject_is_a_hard_fault_of_the_pipeline(offset_ms: float):
    (fault,) = faults(offset_ms)
    assert (fault.fault, fault.grade) == (Fault.LIP_DESYNC, Grade.HARD)
    assert fault.origin is Origin.PIPELINE
    assert f"{offset_ms:+.0f} ms" in fault.detail
