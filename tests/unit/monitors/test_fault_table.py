"""Table 3 is an exact ring of finished requests: the same as counting them all again."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.contract import FaultFound
from monitors.fault_table import FaultRow, FaultTable
from monitors.labels import Detector, Fault, Grade, Origin, Outcome
from monitors.redlines import FaultLines, RedLines

BAD = (Outcome.FAILED, Outcome.LOST)
Request = tuple[Outcome, frozenset[Fault]]
REQUEST = st.tuples(
    st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.REFUSED]),
    st.frozensets(st.sampled_from(list(Fault))),
)


def table(window: int = 10_000) -> FaultTable:
    return FaultTable(RedLines(faults=FaultLines(window_requests=window)))


def finish(faults: FaultTable, request: Request, version: str = "v1") -> None:
    outcome, found = request
    faults.finish(version, outcome, bool(found) or outcome in BAD, found)


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
    """The table by counting every request of the window once more."""
    ring = requests[-window:]

    def row(fault: Fault | None, faulted: int) -> FaultRow:
        return FaultRow(
            version="v1",
            fault=fault,
            requests=len(ring),
            faulted=faulted,
            rate=faulted / len(ring),
            soft=0,
            input_only=0,
        )

    any_fault = sum(bool(faults) or outcome in BAD for outcome, faults in ring)
    return [
        row(None, any_fault),
        *(row(fault, sum(fault in faults for _, faults in ring)) for fault in Fault),
    ]


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
    truncated = (Outcome.OK, frozenset({Fault.SPEECH_TRUNCATED}))
    for request in [truncated] * 50 + [(Outcome.OK, frozenset[Fault]())] * 9_950:
        finish(faults, request)
    assert faults.rows()[0].rate == 0.005
    finish(faults, (Outcome.OK, frozenset()))
    assert (faults.rows()[0].requests, faults.rows()[0].faulted) == (10_000, 49)


def test_soft_and_input_verdicts_show_and_never_count() -> None:
    faults = table()
    faults.fault("v1", found(Fault.VIDEO_CORRUPT, Grade.HARD, Origin.INPUT))
    faults.fault("v1", found(Fault.VIDEO_CORRUPT, Grade.SOFT, Origin.INPUT))
    faults.fault("v1", found(Fault.LIP_DESYNC, Grade.SOFT, Origin.OUTPUT))
    faults.fault("v1", found(Fault.LIP_DESYNC, Grade.HARD, Origin.OUTPUT))
    finish(faults, (Outcome.OK, frozenset()))
    rows = {row.fault: row for row in faults.rows()}
    assert (rows[None].soft, rows[None].input_only, rows[None].faulted) == (1, 2, 0)
    assert (rows[Fault.LIP_DESYNC].soft, rows[Fault.LIP_DESYNC].input_only) == (1, 0)
    assert (rows[Fault.VIDEO_CORRUPT].soft, rows[Fault.VIDEO_CORRUPT].input_only) == (0, 2)


def test_before_the_first_request_the_rate_is_unknown() -> None:
    faults = table()
    assert faults.rows() == ()
    faults.fault("v1", found(Fault.LIP_DESYNC, Grade.SOFT, Origin.OUTPUT))
    assert {row.rate for row in faults.rows()} == {None}


@pytest.mark.parametrize(
    ("outcome", "faulted", "faults"),
    [
        (Outcome.REFUSED, False, frozenset[Fault]()),
        (Outcome.FAILED, False, frozenset[Fault]()),
        (Outcome.OK, True, frozenset[Fault]()),
        (Outcome.OK, False, frozenset({Fault.LIP_DESYNC})),
    ],
)
def test_endings_that_contradict_themselves_are_refused(
    outcome: Outcome, faulted: bool, faults: frozenset[Fault]
) -> None:
    with pytest.raises(ValueError):
        table().finish("v1", outcome, faulted, faults)


def test_versions_have_rings_of_their_own_until_forgotten() -> None:
    faults = table()
    finish(faults, (Outcome.LOST, frozenset()), "v2")
    finish(faults, (Outcome.OK, frozenset()), "v1")
    assert [(r.version, r.rate) for r in faults.rows() if r.fault is None] == [
        ("v1", 0.0),
        ("v2", 1.0),
    ]
    faults.forget("v2")
    assert {row.version for row in faults.rows()} == {"v1"}
