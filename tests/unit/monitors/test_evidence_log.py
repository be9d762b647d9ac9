"""The evidence log hands every entry to every reader exactly once, as it happens."""

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.contract import (
    Evidence,
    EvidenceBatch,
    Level,
    LineCrossed,
    MilestoneReached,
    RequestFinished,
)
from monitors.evidence import Cursor, EvidenceLog
from monitors.labels import Milestone, Outcome

BODIES = (
    MilestoneReached(milestone=Milestone.FIRST_TOKEN, seconds=0.1),
    LineCrossed(milestone=Milestone.FIRST_AUDIO_PACKET, line_s=0.4),
    RequestFinished(outcome=Outcome.OK, faulted=False),
)


def grow(log: EvidenceLog, entries: int = 1) -> list[Evidence]:
    return [
        log.append(
            BODIES[i % len(BODIES)],
            resident="a",
            version="v2",
            session=f"s{i}",
            request_id=f"r{i}",
            pool_epoch=None,
            route_epoch=3,
            level=Level(),
        )
        for i in range(entries)
    ]


async def test_the_first_entry_is_number_one_and_after_zero_reads_from_the_start() -> None:
    log = EvidenceLog("g1", wall=lambda: 1234.5)
    first, second = grow(log, 2)
    batch = await log.after("g1", 0)
    assert (first.seq, second.seq) == (1, 2)
    assert batch == EvidenceBatch(
        incarnation="g1", oldest_seq=1, next_seq=3, entries=(first, second)
    )
    assert first.wall == 1234.5


async def test_a_batch_survives_the_wire() -> None:
    log = EvidenceLog("g1")
    grow(log, 3)
    batch = await log.after("g1", 0)
    assert msgspec.json.decode(msgspec.json.encode(batch), type=EvidenceBatch) == batch


async def test_limit_cuts_a_batch_and_next_seq_says_where_to_go_on() -> None:
    log = EvidenceLog("g1")
    entries = grow(log, 5)
    batch = await log.after("g1", 1, limit=2)
    assert batch.entries == tuple(entries[1:3])
    assert (await log.after("g1", batch.next_seq - 1)).entries == tuple(entries[3:])


async def test_every_waiting_reader_wakes_at_the_next_entry() -> None:
    log = EvidenceLog("g1")
    readers = [asyncio.create_task(log.after("g1", 0, wait_s=60.0)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(reader.done() for reader in readers)
    (entry,) = grow(log)
    batches = await asyncio.wait_for(asyncio.gather(*readers), 10.0)
    assert [batch.entries for batch in batches] == [(entry,)] * 3


async def test_a_reader_that_is_up_to_date_waits_for_the_entry_after_the_last() -> None:
    log = EvidenceLog("g1")
    grow(log)
    reader = asyncio.create_task(log.after("g1", 1, wait_s=60.0))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reader.done()
    (entry,) = grow(log)
    assert (await asyncio.wait_for(reader, 10.0)).entries == (entry,)


async def test_a_wait_that_sees_nothing_ends_empty_where_it_began() -> None:
    log = EvidenceLog("g1")
    grow(log, 2)
    batch = await log.after("g1", 2, wait_s=0.01)
    assert (batch.entries, batch.next_seq) == ((), 3)


async def test_a_reader_of_another_incarnation_gets_this_one_from_its_start_without_waiting() -> (
    None
):
    log = EvidenceLog("g2")
    empty = await asyncio.wait_for(log.after("g1", 77, wait_s=60.0), 10.0)
    assert (empty.incarnation, empty.entries) == ("g2", ())
    entries = grow(log, 2)
    assert (await log.after("g1", 77)).entries == tuple(entries)


async def test_a_full_ring_lets_the_oldest_go_and_says_so() -> None:
    log = EvidenceLog("g1", capacity=4)
    entries = grow(log, 11)
    batch = await log.after("g1", 2)
    assert (log.oldest_seq, log.newest_seq) == (8, 11)
    assert batch.oldest_seq == 8
    assert batch.entries == tuple(entries[7:])
    assert Cursor(incarnation="g1", seq=2).take(batch).missed
    assert not Cursor(incarnation="g1", seq=7).take(batch).missed


@pytest.mark.parametrize(("seq", "limit"), [(3, 1), (-1, 1), (0, 0)])
async def test_impossible_questions_are_refused(seq: int, limit: int) -> None:
    log = EvidenceLog("g1")
    grow(log, 2)
    with pytest.raises(ValueError):
        await log.after("g1", seq, limit=limit)


def test_a_log_without_identity_or_room_does_not_construct() -> None:
    with pytest.raises(ValueError):
        EvidenceLog("")
    with pytest.raises(ValueError):
        EvidenceLog("g1", capacity=0)


STEP = st.one_of(
    st.tuples(st.just("grow"), st.integers(1, 6)),
    st.tuples(st.sampled_from(["read", "read twice", "answer lost"]), st.integers(1, 4)),
    st.tuples(st.just("restart"), st.just(0)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=40), st.integers(2, 8))
def test_a_reader_sees_each_entry_once_and_knows_every_gap(
    steps: list[tuple[str, int]], capacity: int
) -> None:
    """Over reconnects, doubled answers and restarts of the log; `missed` is exact."""

    async def play() -> None:
        log = EvidenceLog("g0", capacity=capacity)
        cursor = Cursor()
        due: list[Evidence] = []  # what this reader has not seen of this incarnation
        restarted = False
        for step, count in [*steps, ("read", 1_000)]:
            if step == "grow":
                due += grow(log, count)
            elif step == "restart":
                restarted = restarted or cursor.incarnation == log.incarnation
                log = EvidenceLog(f"{log.incarnation}+", capacity=capacity)
                due = []
            else:
                batch = await log.after(cursor.incarnation, cursor.seq, limit=count)
                if step == "answer lost":
                    continue
                taken = cursor.take(batch)
                gone = [entry for entry in due if entry.seq < log.oldest_seq]
                here = due[len(gone) :]
                assert taken.entries == tuple(here[:count])
                assert taken.missed == (bool(gone) or restarted)
                due, restarted, cursor = here[count:], False, taken.cursor
                if step == "read twice":
                    again = cursor.take(batch)
                    assert (again.entries, again.cursor) == ((), cursor)

    asyncio.run(play())
