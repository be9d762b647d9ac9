"""However much is wrong with a request, few entries tell it, and they lose no kind of fault."""

from itertools import product

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from monitors.contract import FaultFound
from monitors.detectors.finding import Abstained, Finding
from monitors.detectors.merging import MOST_RULES, merged
from monitors.fault_table import marks_of
from monitors.labels import Detector, Fault, Grade, Origin


def fault(rule: str = "hole", **more: object) -> FaultFound:
    one = FaultFound(
        fault=Fault.VIDEO_CORRUPT,
        grade=Grade.HARD,
        origin=Origin.INPUT,
        detector=Detector.BITSTREAM,
        rule=rule,
        detail=rule,
        unit="ms",
    )
    return msgspec.structs.replace(one, **more)


def found(*faults: FaultFound, detector: Detector = Detector.BITSTREAM) -> Finding:
    return Finding(detector, faults, 0.0)


def test_what_is_found_once_is_left_as_it_is() -> None:
    faults = (fault("hole"), fault("early_end"), fault("hole", grade=Grade.SOFT))
    nothing = Finding(Detector.LIP_SYNC, Abstained("too short"), 0.0)
    assert merged([found(*faults), nothing, found(detector=Detector.PIXELS)]) == faults


def test_one_rule_on_many_items_is_one_fault_with_the_first_place_and_the_worst_value() -> None:
    items = [
        found(fault(at_ms=300.0, value=-100.0, limit=-90.0, detail="early")),
        found(fault(at_ms=100.0, value=400.0, limit=185.0, detail="late")),
        found(fault(at_ms=200.0, detail="unknown")),
    ]
    (one,) = merged(items)
    assert (one.at_ms, one.value, one.limit) == (300.0, 400.0, 185.0)
    assert one.detail == "3 times; first: early; worst: late"


def test_a_first_fault_that_is_the_worst_is_told_once() -> None:
    (one,) = merged([found(fault(value=9.0, limit=1.0)), found(fault(value=5.0, limit=1.0))])
    assert (one.value, one.detail) == (9.0, "2 times; first: hole")


def test_rules_beyond_the_most_are_named_by_the_last() -> None:
    names = [f"rule{i}" for i in range(MOST_RULES + 2)]
    few = merged([found(*map(fault, names))])
    assert [one.rule for one in few] == names[:MOST_RULES]
    assert [one.detail for one in few[:-1]] == names[: MOST_RULES - 1]
    assert few[-1].detail == "rule3; and by 2 more rules: rule4, rule5"


KINDS = list(product(Fault, Grade, Origin))


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from("abcdefgh")), max_size=200))
def test_any_number_of_faults_becomes_few_and_marks_the_request_the_same(
    given: list[tuple[tuple[Fault, Grade, Origin], str]],
) -> None:
    faults = [fault(rule, fault=of, grade=grade, origin=at) for (of, grade, at), rule in given]
    few = merged(found(one) for one in faults)
    kinds = {kind for kind, _ in given}
    assert len(few) <= MOST_RULES * len(kinds)
    assert {(one.fault, one.grade, one.origin) for one in few} == kinds
    assert marks_of(few) == marks_of(faults)
