"""The ledger: what waits for a journal that cannot be written, and what may not."""

from collections.abc import Iterator

import pytest

from monitors.evidence import Cursor
from monitors.journal import JournalUnwritable, StaleLeader
from rollout.ledger import Ledger
from tests.support.journals import ScratchJournal
from tests.unit.rollout.world import FragileJournal


def body(number: int) -> Cursor:
    return Cursor(seq=number)


@pytest.fixture
def journal() -> Iterator[FragileJournal]:
    journal = ScratchJournal()
    yield FragileJournal(journal)
    journal.close()


def kinds(journal: FragileJournal) -> list[str]:
    return [entry.kind for entry in journal.journal.read()]


def test_kept_entries_are_written_in_order_before_any_later_one(journal: FragileJournal) -> None:
    ledger = Ledger(journal, leader_epoch=1)
    journal.writable = False
    ledger.write_or_keep("first", "ann", body(1))
    ledger.write_or_keep("second", "ann", body(2))
    with pytest.raises(JournalUnwritable):
        ledger.write("third", "ann", body(3))
    assert (kinds(journal), ledger.behind) == ([], 2)
    journal.writable = True
    ledger.write("fourth", "ann", body(4))
    assert (kinds(journal), ledger.behind) == (["first", "second", "fourth"], 0)


def test_a_superseded_leader_may_not_even_keep(journal: FragileJournal) -> None:
    Ledger(journal, leader_epoch=2).write("newer", "bob", body(1))
    with pytest.raises(StaleLeader):
        Ledger(journal, leader_epoch=1).write_or_keep("older", "ann", body(2))
    assert kinds(journal) == ["newer"]
