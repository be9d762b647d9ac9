"""Table 3 is an exact ring of finished requests: the same as counting them all again."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.contract import FaultFound
from monitors.fault_table import FaultRow, FaultTable, Marks, counts, marks_of
from monitors.intervals import exact_interval
from monitors.labels import Detector, Fault, Grade, Mark, Origin, Outcome
from monitors.redlines import FaultLines, RedLines

CLEAN = (Outcome.OK, {})
BAD = (Outcome.FAILED, Outcome.LOST)
Request = tuple[Outcome, Marks]
REQUEST = st.tuples(
    st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.REFUSED]),
    st.dictionaries(st.sampled_from(list(Fault)), st.sampled_from(list(Mark))),
)


def table(window: int = 10_000) -> FaultTable:
    return FaultTable(RedLines(faults=FaultLines(window_requests=window)))


def finish(faults: FaultTable, request: Request, version: str = "v1") -> None:
    outcome, marks = request
    faults.finish(version, outcome, is_faulted(request), marks)


def is_faulted(request: Request) -> bool:
    outcome, marks = request
    return Mark.HARD in marks.values() or outcome in BAD


def found(fault: Fault, grade: Grade, origin: Origin) -> FaultFound:
    return FaultFound(
        fault=fault,
        grade=grade,
        origin=origin,
        detector=Detector.SPEECH,
        rule="r",
        detail="d",
    )


def naive(requests: list[Request], window: int) -> list[FaultRow]:
    """The table by looking at every request of the window once more."""
    ring = requests[-window:]

    def worst(request: Request) -> Mark | None:
        for mark in Mark:
            if mark in request[1].values() or (mark is Mark.HARD and is_faulted(request)):
                return mark
        return None

    def row(fault: Fault | None) -> FaultRow:
        marks = [worst(request) if fault is None else request[1].get(fault) for request in ring]
        low, high = exact_interval(marks.count(Mark.HARD), len(ring))
        return FaultRow(
            version="v1",
            fault=fault,
            finished=len(requests),
            answered=sum(outcome is Outcome.OK for outcome, _ in requests),
            requests=len(ring),
            faulted=marks.count(Mark.HARD),
            rate=marks.count(Mark.HARD) / len(ring),
            rate_low=low,
            rate_high=high,
            soft=marks.count(Mark.SOFT),
            input_only=marks.count(Mark.INPUT_ONLY),
        )

    return [row(fault) for fault in (None, *Fault)]


@settings(max_examples=150, deadline=None)
@given(st.lists(REQUEST, min_size=1, max_size=60), st.integers(1, 20))
def test_the_ring_equals_a_recount_after_every_request(
    requests: list[Request], window: int
) -> None:
    faults = table(window)
    for position, request in enumerate(requests, start=1):
        finish(faults, request)
        assert list(faults.rows()) == naive(requests[:position], window)


def test_the_window_is_the_last_ten_thousand_requests() -> None:
    faults = table()
    for request in [(Outcome.OK, {Fault.SPEECH_TRUNCATED: Mark.HARD})] * 50 + [CLEAN] * 9_950:
        finish(faults, request)
    assert faults.rows()[0].rate == 0.005
    finish(faults, CLEAN)
    assert (faults.rows()[0].requests, faults.rows()[0].faulted) == (10_000, 49)


@pytest.mark.parametrize(
    ("verdicts", "mark"),
    [
        ([(Grade.HARD, Origin.INPUT)], Mark.INPUT_ONLY),
        ([(Grade.SOFT, Origin.INPUT), (Grade.SOFT, Origin.OUTPUT)], Mark.SOFT),
        ([(Grade.SOFT, Origin.PIPELINE), (Grade.HARD, Origin.OUTPUT)], Mark.HARD),
        ([(Grade.HARD, Origin.PIPELINE), (Grade.HARD, Origin.INPUT)], Mark.HARD),
    ],
)
def test_a_request_counts_as_the_worst_that_was_found_of_a_fault(
    verdicts: list[tuple[Grade, Origin]], mark: Mark
) -> None:
    spoken = [found(Fault.VIDEO_CORRUPT, *verdict) for verdict in verdicts]
    assert marks_of(spoken) == {Fault.VIDEO_CORRUPT: mark}
    assert any(map(counts, spoken)) is (mark is Mark.HARD)


def test_soft_and_input_faults_show_and_never_count() -> None:
    faults = table()
    finish(faults, (Outcome.OK, {Fault.VIDEO_CORRUPT: Mark.INPUT_ONLY}))
    finish(
        faults, (Outcome.OK, {Fault.VIDEO_CORRUPT: Mark.INPUT_ONLY, Fault.LIP_DESYNC: Mark.SOFT})
    )
    rows = {row.fault: row for row in faults.rows()}
    assert (rows[None].soft, rows[None].input_only, rows[None].faulted) == (1, 1, 0)
    assert (rows[Fault.LIP_DESYNC].soft, rows[Fault.LIP_DESYNC].input_only) == (1, 0)
    assert (rows[Fault.VIDEO_CORRUPT].soft, rows[Fault.VIDEO_CORRUPT].input_only) == (0, 2)


def test_before_the_first_request_there_is_no_row() -> None:
    faults = table()
    assert faults.rows() == ()


@pytest.mark.parametrize(
    ("outcome", "faulted", "marks"),
    [
        (Outcome.REFUSED, False, {}),
        (Outcome.FAILED, False, {}),
        (Outcome.OK, True, {}),
        (Outcome.OK, True, {Fault.LIP_DESYNC: Mark.SOFT}),
        (Outcome.OK, False, {Fault.LIP_DESYNC: Mark.HARD}),
    ],
)
def test_endings_that_contradict_themselves_are_refused(
    outcome: Outcome, faulted: bool, marks: Marks
) -> None:
    with pytest.raises(ValueError):
        table().finish("v1", outcome, faulted, marks)


def test_versions_have_rings_of_their_own_until_forgotten() -> None:
    faults = table()
    finish(faults, (Outcome.LOST, {}), "v2")
    finish(faults, CLEAN, "v1")
    assert [(r.version, r.rate) for r in faults.rows() if r.fault is None] == [
        ("v1", 0.0),
        ("v2", 1.0),
    ]
    faults.forget("v2")
    assert {row.version for row in faults.rows()} == {"v1"}


def test_an_emptied_ring_leaves_what_was_finished_in_all() -> None:
    faults = table()
    for _ in range(3):
        finish(faults, CLEAN)
    faults.forget("v1")
    assert faults.rows() == ()
    finish(faults, CLEAN)
    assert (faults.rows()[0].finished, faults.rows()[0].requests) == (4, 1)
