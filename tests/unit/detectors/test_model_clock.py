"""The model's own clock, judged by BT.1359 and by the step of its axis."""

import pytest

from monitors.detectors.model_clock import ClockError, faults
from monitors.labels import Fault, Grade, Modality, Origin

UNIT_MS = 1000 / 13


def error(error_ms: float, modality: Modality = Modality.AUDIO) -> ClockError:
    return ClockError(unit_ms=UNIT_MS, error_ms=error_ms, at_ms=4200.0, modality=modality)


@pytest.mark.parametrize("offset_ms", [None, 0.0, -45.0, 125.0])
def test_what_no_viewer_detects_is_no_fault(offset_ms: float | None):
    assert faults(offset_ms, None) == ()


@pytest.mark.parametrize("offset_ms", [-46.0, -90.0, 126.0, 185.0])
def test_what_viewers_detect_but_accept_only_shows(offset_ms: float):
    (fault,) = faults(offset_ms, None)
    assert (fault.grade, fault.rule) == (Grade.SOFT, "noticeable_offset")


@pytest.mark.parametrize("offset_ms", [-91.0, 186.0, 1000.0])
def test_what_viewers_reject_is_a_hard_fault_of_the_pipeline(offset_ms: float):
    (fault,) = faults(offset_ms, None)
    assert (fault.fault, fault.grade) == (Fault.LIP_DESYNC, Grade.HARD)
    assert fault.origin is Origin.PIPELINE
    assert (fault.value, fault.limit) == (offset_ms, -90.0 if offset_ms < 0 else 185.0)


@pytest.mark.parametrize("error_ms", [0.0, UNIT_MS / 2, -UNIT_MS / 2])
def test_half_a_step_is_rounding_and_no_fault(error_ms: float):
    assert faults(0.0, error(error_ms)) == ()


@pytest.mark.parametrize("error_ms", [UNIT_MS / 2 + 1, -UNIT_MS / 2 - 1])
def test_more_than_half_a_step_shows_with_where_and_how_much(error_ms: float):
    (fault,) = faults(0.0, error(error_ms))
    assert (fault.rule, fault.grade) == ("position_error", Grade.SOFT)
    assert (fault.at_ms, fault.value, fault.unit) == (4200.0, error_ms, "ms")
    assert fault.limit == pytest.approx(UNIT_MS / 2 if error_ms > 0 else -UNIT_MS / 2)


@pytest.mark.parametrize(
    ("modality", "error_ms", "grade"),
    [
        (Modality.AUDIO, -91.0, Grade.HARD),
        (Modality.AUDIO, 91.0, Grade.SOFT),  # late sound is borne for longer
        (Modality.AUDIO, 186.0, Grade.HARD),
        (Modality.VIDEO, 91.0, Grade.HARD),  # a late picture is early sound
        (Modality.VIDEO, -91.0, Grade.SOFT),
        (Modality.VIDEO, -186.0, Grade.HARD),
    ],
)
def test_one_misplaced_token_is_hard_where_viewers_would_reject_it(
    modality: Modality, error_ms: float, grade: Grade
):
    (fault,) = faults(0.0, error(error_ms, modality))
    assert fault.grade is grade
    assert fault.detail.startswith(f"{modality} of 4200 ms")
