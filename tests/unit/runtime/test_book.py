"""The book of measurements: what is shown before anything happened, and after an end."""

import pytest
from prometheus_client import CollectorRegistry

from monitors import catalog
from monitors.contract import FaultFound, Level, RequestFinished
from monitors.labels import Fault, Grade, Origin, Outcome
from monitors.redlines import RedLines
from runtime.book import WARM_AFTER, Book, Stamp

CORRUPT = FaultFound(
    fault=Fault.VIDEO_CORRUPT, grade=Grade.SOFT, origin=Origin.PIPELINE, rule="r", detail=""
)
LOST = RequestFinished(outcome=Outcome.LOST, faulted=True)


@pytest.fixture
def book() -> Book:
    return Book(RedLines(), "inc", registry=CollectorRegistry(), clock=lambda: 0.0)


def stamp(pool_epoch: int | None) -> Stamp:
    return Stamp("a", "v2", "s", "r", pool_epoch, 1, Level())


def shown(book: Book) -> str:
    return book.exposition.render(None)[0].decode()


def test_a_versions_counters_are_there_before_their_first_step(book: Book) -> None:
    book.open("v2")
    for counter in (catalog.SPEECH_SECONDS, catalog.UNDERRUN_SECONDS):
        assert f'{counter.name}{{version="v2"}} 0.0' in shown(book)
    assert f'{catalog.REQUESTS.name}{{outcome="lost",version="v2"}} 0.0' in shown(book)


def test_a_pool_is_warm_once_it_has_served_and_cold_again_when_its_engine_is_gone(
    book: Book,
) -> None:
    for _ in range(WARM_AFTER):
        assert not book.is_warm(stamp(3))
        book.finished(stamp(3), LOST, ())
    assert book.is_warm(stamp(3))
    assert not book.is_warm(stamp(4))
    book.lost_sight("v2")
    assert not book.is_warm(stamp(3))


def test_after_a_flush_table_three_is_unknown_until_a_request_ends(book: Book) -> None:
    book.fault(stamp(3), CORRUPT)
    book.finished(stamp(3), LOST, ())
    book.flushed("v2")
    assert book.faults.rows() == ()
    assert catalog.FAULT_WINDOW_REQUESTS.name + "{" not in shown(book)
    assert f'{catalog.REQUESTS.name}{{outcome="lost",version="v2"}} 1.0' in shown(book)
    book.finished(stamp(4), LOST, ())
    assert book.faults.rows()[0].requests == 1
