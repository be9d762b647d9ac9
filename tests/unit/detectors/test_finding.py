"""What a detector says is one of five things, and it speaks in its own name."""

from dataclasses import replace

import pytest

from monitors.contract import FaultFound
from monitors.detectors.finding import (
    Abstained,
    Failed,
    Finding,
    Gathering,
    Verdict,
    examine,
    joined,
)
from monitors.labels import Detector, Fault, Grade, Judgement, Origin

SECRET = "what the client said"


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
        (Failed("it failed: KeyError at x:1"), Judgement.FAILED),
    ],
)
def test_the_worst_fault_is_the_judgement(verdict: Verdict, judgement: Judgement) -> None:
    assert Finding(Detector.TIMELINE, verdict, 0.0).judgement is judgement


def test_a_detector_that_abstains_found_nothing() -> None:
    assert Finding(Detector.TIMELINE, Abstained("too short"), 0.0).faults == ()


def test_the_cost_is_what_judging_and_gathering_took() -> None:
    found = examine(Detector.TIMELINE, lambda: tuple(() for _ in range(200_000))[:0], spent_s=2.0)
    assert 2.0 < found.cpu_s < 4.0


def test_no_detector_speaks_in_anothers_name(broken_detectors: list[str]) -> None:
    found = examine(Detector.PIXELS, lambda: (fault(Grade.HARD),))
    assert (found.judgement, found.faults) == (Judgement.FAILED, ())
    assert "ValueError" in broken_detectors[0]


def broken() -> Verdict:
    raise RuntimeError(SECRET)


def test_what_a_broken_detector_says_is_left_out(broken_detectors: list[str]) -> None:
    found = examine(Detector.PIXELS, broken)
    assert isinstance(found.verdict, Failed)
    assert found.verdict.reason.startswith(f"it failed: RuntimeError at {__name__}:")
    (line,) = broken_detectors
    assert line.startswith("the detector pixels failed: RuntimeError at monitors.detectors.finding")
    assert SECRET not in line + found.verdict.reason


def test_what_breaks_in_gathering_is_fed_no_more(broken_detectors: list[str]) -> None:
    gathering, fed = Gathering(Detector.PIXELS), list[int]()
    assert gathering.take(lambda: fed.append(1) or "kept") == "kept"
    assert gathering.take(broken) is None
    assert gathering.take(lambda: fed.append(2)) is None
    found = gathering.examine(lambda: ())
    assert (found.judgement, fed) == (Judgement.FAILED, [1])
    assert len(broken_detectors) == 1, "told once"


def test_a_failure_is_not_hidden_by_another_look_that_found_nothing() -> None:
    broke = Finding(Detector.TIMELINE, Failed("it failed: KeyError at x:1"), 1.0)
    clean, hard = (
        Finding(Detector.TIMELINE, verdict, 1.0) for verdict in ((), (fault(Grade.HARD),))
    )
    assert joined(broke, clean) == joined(clean, broke) == (replace(broke, cpu_s=2.0),)
    assert joined(broke, hard) == joined(hard, broke) == (replace(hard, cpu_s=2.0),)


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
