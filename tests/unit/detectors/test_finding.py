"""What a detector says is one of four things, and it speaks in its own name."""

import pytest

from monitors.contract import FaultFound
from monitors.detectors.finding import Abstained, Finding, Verdict, examine, joined
from monitors.labels import Detector, Fault, Grade, Judgement, Origin


def fault(grade: Grade) -> FaultFound:
    return FaultFound(
        fault=Fault.LIP_DESYNC,
        grade=grade,
        origin=Origin.INPUT,
        detector=Detector.TIMELINE,
        rule="r",
        detail="d",
    )


@pytest.mark.parametrize(
    ("verdict", "judgement"),
    [
        ((), Judgement.CLEAN),
        ((fault(Grade.SOFT),), Judgement.SOFT),
        ((fault(Grade.SOFT), fault(Grade.HARD)), Judgement.HARD),
        (Abstained("too short"), Judgement.ABSTAINED),
    ],
)
def test_the_worst_fault_is_the_judgement(verdict: Verdict, judgement: Judgement) -> None:
    assert Finding(Detector.TIMELINE, verdict, 0.0).judgement is judgement


def test_a_detector_that_abstains_found_nothing() -> None:
    assert Finding(Detector.TIMELINE, Abstained("too short"), 0.0).faults == ()


def test_the_cost_is_what_judging_and_gathering_took() -> None:
    found = examine(Detector.TIMELINE, lambda: tuple(() for _ in range(200_000))[:0], spent_s=2.0)
    assert 2.0 < found.cpu_s < 4.0


def test_no_detector_speaks_in_anothers_name() -> None:
    with pytest.raises(ValueError, match="another detector's"):
        examine(Detector.PIXELS, lambda: (fault(Grade.HARD),))


def test_two_looks_of_one_detector_are_one_finding():
    clean, hard = (), (fault(Grade.HARD),)
    other = Finding(Detector.BITSTREAM, clean, 0.5)
    first, second = Finding(Detector.TIMELINE, clean, 1.0), Finding(Detector.TIMELINE, hard, 2.0)
    assert joined(first, other, second) == (Finding(Detector.TIMELINE, hard, 3.0), other)


def test_an_abstention_gives_way_to_what_another_look_can_tell():
    dark = Finding(Detector.TIMELINE, Abstained("too dark"), 1.0)
    clean = Finding(Detector.TIMELINE, (), 1.0)
    assert joined(dark, clean) == joined(clean, dark) == (Finding(Detector.TIMELINE, (), 2.0),)
    assert joined(dark, dark)[0].verdict == Abstained("too dark")
