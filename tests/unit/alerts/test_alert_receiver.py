"""Alertmanager's webhook: late, doubled, batched and broken bodies."""

import json
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.firing import fingerprint
from alerts.names import AlertName
from alerts.receiver import (
    LATE_S,
    AlertBook,
    Received,
    WebhookError,
    is_authorised,
    parse,
)
from monitors.labels import Action
from monitors.redlines import AlertLines
from tests.unit.alerts.webhook import LINES, beat, body, entry


@pytest.fixture
def book() -> AlertBook:
    return AlertBook(LINES)


# ---------------------------------------------------------------- levels, not edges
def test_a_firing_alert_is_typed(book: AlertBook):
    assert book.receive(body(entry(milestone="first_token")), 0.0) == Received(1, 0)
    (firing,) = book.firing(0.0)
    assert (firing.alert, firing.action, firing.version) == (
        "RedlineLatencyDegrade",
        Action.DEGRADE_MEDIA,
        "v1",
    )
    assert firing.starts_at == pytest.approx(1_800_000_000.123456)
    assert firing.labels["milestone"] == "first_token"
    assert firing.summary == "too slow"
    assert firing.runbook == "https://w.example/slow"


def test_a_repeat_changes_nothing_and_names_the_same_operation(book: AlertBook):
    book.receive(body(entry()), 0.0)
    (first,) = book.firing(0.0)
    assert book.receive(body(entry()), 1.0) == Received(0, 1)
    (second,) = book.firing(1.0)
    assert second.operation_id == first.operation_id


def test_resolved_ends_it(book: AlertBook):
    book.receive(body(entry()), 0.0)
    assert book.receive(body(entry("resolved")), 1.0) == Received(1, 0)
    assert book.firing(1.0) == ()


def test_resolved_before_firing_leaves_nothing_that_fires(book: AlertBook):
    assert book.receive(body(entry("resolved")), 0.0) == Received(0, 1)
    assert book.receive(body(entry()), 1.0) == Received(0, 1)
    assert book.firing(1.0) == ()


def test_an_alert_that_fires_again_with_its_old_start_is_believed_after_a_while(book: AlertBook):
    book.receive(body(entry()), 0.0)
    book.receive(body(entry("resolved")), 1.0)
    assert book.receive(body(entry()), 1.0 + LATE_S) == Received(1, 0)


def test_news_of_an_earlier_firing_does_not_end_the_present_one(book: AlertBook):
    book.receive(body(entry(start_s=60)), 0.0)
    assert book.receive(body(entry("resolved", start_s=0)), 1.0) == Received(0, 1)
    assert len(book.firing(1.0)) == 1


def test_other_labels_are_another_alert(book: AlertBook):
    batch = body(
        entry(version="v1"), entry(version="v2"), entry("resolved", version="v1", start_s=1)
    )
    assert book.receive(batch, 0.0) == Received(3, 0)
    assert [firing.version for firing in book.firing(0.0)] == ["v2"]


def test_what_alertmanager_no_longer_repeats_expires(book: AlertBook):
    book.receive(body(entry()), 0.0)
    assert len(book.firing(3 * LINES.repeat_s - 1)) == 1
    assert book.firing(3 * LINES.repeat_s) == ()


def test_an_alert_outlives_the_silence_however_often_it_is_repeated():
    """Else it would end before anybody takes over who could tell that it goes on."""
    lines = AlertLines(repeat_s=2.0)
    book = AlertBook(lines)
    book.receive(body(entry()), 0.0)
    assert len(book.firing(lines.heartbeat_silence_s + 10)) == 1


def test_repeats_keep_it_firing(book: AlertBook):
    for repeat in range(10):
        book.receive(body(entry()), repeat * LINES.repeat_s)
    assert len(book.firing(9 * LINES.repeat_s)) == 1


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_within_a_few_seconds_the_order_of_arrival_does_not_matter(order: tuple[int, ...]):
    news = [entry(), entry("resolved"), entry(start_s=60), entry(start_s=60)]
    book = AlertBook(LINES)
    for second, index in enumerate(order):
        book.receive(body(news[index]), float(second))
    (firing,) = book.firing(4.0)
    assert firing.starts_at > 1_800_000_059


labels = st.sampled_from([{"version": "v1"}, {"version": "v2"}, {"version": "v1", "m": "x"}])
news = st.builds(
    lambda status, start_s, extra: entry(status, start_s, **extra),
    st.sampled_from(["firing", "resolved"]),
    st.integers(0, 5),
    labels,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(news, max_size=3), max_size=12))
def test_any_delivery_twice_is_the_same_as_once(batches: list[list[dict[str, Any]]]):
    once, twice = AlertBook(LINES), AlertBook(LINES)
    for second, batch in enumerate(batches):
        first = once.receive(body(*batch), float(second))
        assert twice.receive(body(*batch), float(second)) == first
        assert twice.receive(body(*batch[-1:]), float(second)).taken == 0
        assert once.firing(float(second)) == twice.firing(float(second))


# ---------------------------------------------------------------- the heartbeat
def test_the_watchdog_is_a_heartbeat_and_never_fires(book: AlertBook):
    assert book.heartbeat_age(0.0) is None
    beat = entry(name=AlertName.WATCHDOG, action=Action.NONE)
    book.receive(body(beat), 10.0)
    assert book.heartbeat_age(14.0) == 4.0
    assert book.firing(14.0) == ()
    book.receive(body(entry("resolved", name=AlertName.WATCHDOG, action=Action.NONE)), 15.0)
    assert book.heartbeat_age(16.0) == 6.0


# ---------------------------------------------------------------- broken bodies
def without(key: str) -> dict[str, Any]:
    return {k: v for k, v in entry().items() if k != key}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"", "no Alertmanager webhook"),
        (b"[]", "no Alertmanager webhook"),
        (b"\xff\xfe{}", "no Alertmanager webhook"),
        (body(entry()).replace(b'"version": "4"', b'"version": "5"'), "version"),
        (body(without("startsAt")), "startsAt"),
        (body({**entry(), "startsAt": "yesterday"}), "startsAt"),
        (body({**entry(), "startsAt": "2026-01-01T00:00:00"}), "startsAt"),
        (body({**entry(), "status": "suppressed"}), "status"),
        (body({**entry(), "labels": {}}), "no alertname"),
        (body({**entry(), "labels": {"alertname": "X", "version": 1}}), "labels"),
        (body(entry(action="reboot")), "action 'reboot' is unknown; there are: shed"),
        (body(entry(version="")), "needs a version label"),
        (body(entry(version=""), entry(action="reboot")), "needs a version label"),
        (body({**entry(), "startsAt": "2026-01-01T00:00:60Z"}), "startsAt"),
        (b'{"version": "4", "alerts": ' + b"[" * 100_000, "no Alertmanager webhook"),
        (b'{"x": ' + b"[" * 100_000, "no Alertmanager webhook"),
    ],
)
def test_a_body_of_which_nothing_can_be_used_is_refused_and_says_why(
    book: AlertBook, bad: bytes, says: str
):
    with pytest.raises(WebhookError, match=says):
        book.receive(bad, 0.0)
    assert book.firing(0.0) == ()


@pytest.mark.parametrize(
    "bad",
    [
        entry(action="reboot"),
        entry(version=""),
        without("startsAt"),
        {**entry(), "labels": None},
        {},
        [],
        7,
        None,
        "firing",
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_broken_alert_loses_none_of_the_others(book: AlertBook, bad: Any, place: int):
    """Alertmanager does not send a 4xx again: refused whole, all of them would be lost."""
    batch: list[Any] = [entry(version="v1"), entry(version="v2")]
    batch.insert(place, bad)
    received = book.receive(body(*batch), 0.0)
    assert (received.taken, received.repeated, len(received.refused)) == (2, 0, 1)
    assert {firing.version for firing in book.firing(0.0)} == {"v1", "v2"}


def test_alerts_that_alertmanager_left_out_are_told(book: AlertBook):
    cut = json.loads(body(entry())) | {"truncatedAlerts": 12}
    received = book.receive(json.dumps(cut).encode(), 0.0)
    assert (received.taken, received.truncated) == (1, 12)


@pytest.mark.parametrize(
    ("starts_at", "seconds"),
    [
        ("2026-01-01T00:00:00Z", 1_767_225_600.0),
        ("2026-01-01T05:30:00+05:30", 1_767_225_600.0),
        ("2025-12-31T12:00:00-12:00", 1_767_225_600.0),
        ("2026-01-01t00:00:00.5z", 1_767_225_600.5),
        ("2026-01-01T00:00:00-00:00", 1_767_225_600.0),
        ("0001-01-01T00:00:00+14:00", -62_135_647_200.0),
    ],
)
def test_a_start_in_any_zone_is_one_instant(book: AlertBook, starts_at: str, seconds: float):
    book.receive(body({**entry(), "startsAt": starts_at}), 0.0)
    assert book.firing(0.0)[0].starts_at == pytest.approx(seconds)


def test_the_status_counts_and_not_the_end_that_an_alert_names(book: AlertBook):
    """A notification that was long on its way is as true as when it was written."""
    book.receive(body({**entry(), "endsAt": "2020-01-01T00:00:00Z"}), 0.0)
    assert len(book.firing(0.0)) == 1
    book.receive(body({**entry("resolved"), "endsAt": "never"}), 1.0)
    assert book.firing(1.0) == ()


def test_a_watchdog_says_since_when_it_beats(book: AlertBook):
    assert book.beats_since is None
    book.receive(beat(), 0.0)
    first = book.beats_since
    book.receive(body(entry(start_s=60, name=AlertName.WATCHDOG, action=Action.NONE)), 1.0)
    assert book.beats_since is not None
    assert first is not None
    assert book.beats_since - first == pytest.approx(60)


def test_fields_that_a_later_alertmanager_adds_are_passed_over(book: AlertBook):
    newer = json.loads(body({**entry(), "silenceURL": "http://a"}))
    assert book.receive(json.dumps({**newer, "notificationReason": "new"}).encode(), 0.0).taken == 1


def test_an_alert_without_an_action_only_tells(book: AlertBook):
    someones = entry(name="DiskFull")
    someones["labels"] = {"alertname": "DiskFull"}
    book.receive(body(someones), 0.0)
    assert [(f.action, f.version) for f in book.firing(0.0)] == [(Action.NONE, None)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
near_alerts = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["firing", "resolved", ""]) | json_values,
        "labels": st.dictionaries(
            st.sampled_from(["alertname", "action", "version"]), st.text(max_size=8) | json_values
        ),
        "startsAt": st.datetimes().map(lambda at: at.isoformat() + "Z") | json_values,
    },
)
near_bodies = st.fixed_dictionaries(
    {
        "version": st.just("4") | st.integers(),
        "alerts": st.lists(near_alerts, max_size=3) | json_values,
    }
).map(lambda value: json.dumps(value).encode())


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=64) | json_values.map(lambda v: json.dumps(v).encode()) | near_bodies)
def test_no_body_does_anything_but_parse_or_be_refused(raw: bytes):
    try:
        news = parse(raw).news
    except WebhookError:
        return
    assert all(firing.alert for firing, _ in news)
    assert all(f.version or f.action is Action.NONE for f, _ in news)


def test_fingerprints_do_not_depend_on_order_and_do_on_content():
    assert fingerprint({"a": "1", "b": "2"}) == fingerprint({"b": "2", "a": "1"})
    assert fingerprint({"a": "1", "b": "2"}) != fingerprint({"a": "1b", "": "2"})


# ---------------------------------------------------------------- who may tell
@pytest.mark.parametrize(
    ("header", "token", "allowed"),
    [
        ("Bearer secret", "secret", True),
        ("bearer  secret ", "secret", True),
        ("Bearer secre", "secret", False),
        ("Basic secret", "secret", False),
        ("secret", "secret", False),
        ("Bearer sécret", "secret", False),
        ("Bearer \udcff", "secret", False),
        ("Bearer ", "", False),
        ("", "secret", False),
        (None, "secret", False),
    ],
)
def test_only_the_bearer_of_the_token_is_authorised(header: str | None, token: str, allowed: bool):
    assert is_authorised(header, token) is allowed
