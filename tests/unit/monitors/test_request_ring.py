"""The last requests, remembered in bounded memory."""

import pytest
from msgspec.structs import replace

from monitors.labels import Keep, Origin, Outcome
from monitors.requests import WRONG, RequestRing
from tests.support.records import CUT, END, LATE, RESIDENCY, TOKEN, a_leg, a_record


def test_a_request_is_given_back_as_it_was() -> None:
    ring = RequestRing()
    record = a_record(TOKEN, LATE, RESIDENCY, CUT, END)
    ring.add(record)
    assert ring.get("r1") == record
    assert record.faults() == [CUT]


def test_the_oldest_is_forgotten_first() -> None:
    ring = RequestRing(served=3)
    for number in range(5):
        ring.add(a_record(request_id=f"r{number}", received=float(number)))
    assert [ring.get(f"r{number}") is not None for number in range(5)] == [False, False] + 3 * [
        True
    ]
    assert (ring.reach().oldest, ring.reach().served) == (2.0, 3)


def test_a_flood_of_refused_requests_pushes_out_none_that_was_served() -> None:
    ring = RequestRing(served=2, turned_away=2)
    ring.add(a_record())
    for number in range(10):
        ring.add(a_record(request_id=f"bad{number}", outcome=Outcome.REFUSED, legs=()))
    assert ring.get("r1") is not None
    assert ring.get("bad9") is not None
    assert ring.get("bad7") is None
    assert ring.reach().turned_away == 2


def test_a_flood_of_clients_that_leave_before_they_are_served_pushes_out_none_either() -> None:
    ring = RequestRing(served=2, turned_away=2)
    ring.add(a_record(outcome=Outcome.CANCELLED))
    ring.add(a_record(request_id="broken", outcome=Outcome.FAILED, legs=()))
    waiting = a_leg(departed_s=None)
    for number in range(10):
        ring.add(a_record(request_id=f"left{number}", outcome=Outcome.CANCELLED, legs=(waiting,)))
    assert (ring.reach().served, ring.reach().turned_away) == (2, 2)


def test_a_ring_that_could_hold_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        RequestRing(served=0)


def test_an_empty_ring_knows_nothing() -> None:
    assert RequestRing().get("r1") is None
    assert RequestRing().reach().oldest is None


def test_the_last_with_something_wrong_are_found_without_their_ids() -> None:
    ring = RequestRing(served=4)
    for number, wrong in enumerate(
        [(Keep.FAULT,), (Keep.LINE,), (), (Keep.LINE, Keep.FAULT), (Keep.OUTCOME,)]
    ):
        ring.add(a_record(request_id=f"r{number}", wrong=wrong))

    def ids(why: Keep | None, limit: int = 9) -> list[str]:
        return [record.request_id for record in ring.wrong(why, limit)]

    # r0 is forgotten, nothing is wrong with r2; r4 tells nothing against us, and comes last
    assert ids(None) == ["r3", "r1", "r4"]
    assert ids(Keep.FAULT) == ["r3"]
    assert ids(Keep.LINE) == ["r3", "r1"]
    assert ids(None, 1) == ["r3"]


def test_a_flood_with_one_thing_wrong_hides_none_with_another() -> None:
    ring = RequestRing()
    ring.add(a_record(CUT, request_id="faulty", wrong=(Keep.FAULT,)))
    for number in range(WRONG + 1):
        refused = a_record(
            request_id=f"r{number}", outcome=Outcome.REFUSED, legs=(), wrong=(Keep.OUTCOME,)
        )
        ring.add(refused)
    assert [record.request_id for record in ring.wrong(Keep.FAULT, 9)] == ["faulty"]
    assert [record.request_id for record in ring.wrong(None, 2)] == ["faulty", "r200"]


def test_a_flood_of_what_clients_break_themselves_hides_nothing_of_our_own() -> None:
    ring = RequestRing()
    ring.add(a_record(CUT, request_id="cut", wrong=(Keep.FAULT,)))
    ring.add(a_record(request_id="failed", outcome=Outcome.FAILED, wrong=(Keep.OUTCOME,)))
    theirs = replace(CUT, origin=Origin.INPUT)
    for number in range(WRONG + 1):
        refused = a_record(
            theirs,
            request_id=f"r{number}",
            outcome=Outcome.REFUSED,
            wrong=(Keep.FAULT, Keep.OUTCOME),
        )
        ring.add(refused)
    first = {why: ring.wrong(why, 9)[0].request_id for why in (Keep.FAULT, Keep.OUTCOME)}
    assert first == {Keep.FAULT: "cut", Keep.OUTCOME: "failed"}
    assert [record.request_id for record in ring.wrong(None, 3)] == ["failed", "cut", "r200"]


def test_large_records_push_out_older_ones_before_their_number_does() -> None:
    ring = RequestRing(served=4, record_bytes=2_000)
    for number in range(4):
        ring.add(a_record(*[CUT] * 20, request_id=f"large{number}"))
    assert 0 < ring.reach().served < 4
    assert ring.get("large3") is not None
    assert ring.get("large0") is None
    ring.add(a_record(*[CUT] * 200, request_id="huge"))
    assert (ring.reach().served, ring.get("huge") is not None) == (1, True)
    for number in range(4):
        ring.add(a_record(request_id=f"small{number}"))
    assert ring.reach().served == 4
