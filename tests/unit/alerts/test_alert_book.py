"""The book of alerts: who says that one is over, and what it does with very many."""

import pytest

from alerts import receiver
from alerts.names import AlertName
from alerts.receiver import MOST_ALERTS, AlertBook, Received
from monitors.labels import Action
from tests.unit.alerts.webhook import LINES, beat, body, entry


@pytest.fixture
def book() -> AlertBook:
    return AlertBook(LINES)


# ---------------------------------------------------------------- who says that it is over
def test_an_end_is_confirmed_by_a_heartbeat_a_while_later(book: AlertBook):
    """Alertmanager resolves by itself what a dead Prometheus no longer tells."""
    book.receive(beat(), 0.0)
    book.receive(body(entry()), 1.0)
    assert book.ended(1.0) == ()
    book.receive(body(entry("resolved")), 2.0)
    book.receive(beat(), 2.0 + LINES.heartbeat_s - 0.1)
    book.receive(body(entry("resolved")), 6.0)
    (ended,) = book.ended(8.0)
    assert (ended.firing.alert, ended.at) == (AlertName.LATENCY_DEGRADE, 2.0)
    assert not ended.confirmed
    book.receive(beat(), 2.0 + LINES.heartbeat_s)
    assert book.ended(8.0)[0].confirmed


def test_an_end_that_firing_news_came_after_is_not_confirmed(book: AlertBook):
    """It may be late news, or the alert has come back: its next repeat tells."""
    book.receive(body(entry()), 0.0)
    book.receive(body(entry("resolved")), 60.0)
    book.receive(body(entry()), 63.0)
    book.receive(beat(), 65.0)
    assert [each.confirmed for each in book.ended(65.0)] == [False]
    book.receive(body(entry()), 93.0)
    assert (len(book.firing(93.0)), book.ended(93.0)) == (1, ())


def test_a_second_word_that_it_is_over_ends_the_doubt(book: AlertBook):
    book.receive(body(entry()), 0.0)
    book.receive(body(entry("resolved")), 60.0)
    book.receive(body(entry()), 61.0)
    book.receive(body(entry("resolved")), 62.0)
    book.receive(beat(), 60.0 + LINES.heartbeat_s)
    assert [each.confirmed for each in book.ended(66.0)] == [True]


def test_an_alert_that_never_fired_here_has_not_ended(book: AlertBook):
    book.receive(body(entry("resolved")), 0.0)
    assert book.ended(0.0) == ()


def test_one_that_fires_again_has_not_ended(book: AlertBook):
    book.receive(body(entry()), 0.0)
    book.receive(body(entry("resolved")), 1.0)
    book.receive(body(entry(start_s=60)), 2.0)
    assert book.ended(2.0) == ()
    assert len(book.firing(2.0)) == 1


# ---------------------------------------------------------------- very many
def many(count: int, start: int = 0, action: Action = Action.NONE) -> bytes:
    return body(*(entry(action=action, n=str(n)) for n in range(start, start + count)))


def test_of_very_many_alerts_some_thousands_are_held_and_the_rest_is_counted(book: AlertBook):
    received = book.receive(many(MOST_ALERTS + 3), 0.0)
    assert (received.taken, len(received.refused)) == (MOST_ALERTS, 3)
    received = book.receive(many(2, start=MOST_ALERTS), 1.0)
    assert (received.taken, len(received.refused)) == (0, 2)
    assert len(book.firing(1.0)) == MOST_ALERTS
    assert book.receive(many(2), 1.0) == Received(0, 2), "those that are known are repeated"
    assert book.receive(many(1, action=Action.SHED), 1.0).taken == 1, "what acts finds room"


def test_a_look_hashes_nothing_anew(book: AlertBook, monkeypatch: pytest.MonkeyPatch):
    """Twenty thousand alerts would hold the loop for 45 ms at each."""
    book.receive(many(50), 0.0)
    monkeypatch.setattr(receiver, "fingerprint", None)
    assert len(book.firing(1.0)) == 50
