"""Who decides what fires as Prometheus goes silent and comes back: none dropped, none doubled."""

from collections.abc import Sequence

import pytest

from alerts.evaluator import Evaluation
from alerts.firing import Firing, Source
from alerts.handover import Handover
from alerts.names import AlertName
from alerts.receiver import AlertBook
from monitors.labels import Action
from monitors.redlines import AlertLines
from tests.support.webhook import webhook

LINES = AlertLines()
CACHE, LATENCY = AlertName.CACHE_BELOW_FLOOR.value, AlertName.LATENCY_DEGRADE.value
TAKES_S = {CACHE: 90.0, LATENCY: 60.0}
WALL = 1_800_000_000.0


def here(name: str, starts_at: float = WALL) -> Firing:
    """An alert as the evaluator has it."""
    return Firing(
        alert=name, action=Action.NONE, version="v1", starts_at=starts_at, source=Source.EMBEDDED,
        labels={"alertname": name, "version": "v1", "severity": "action"},
    )  # fmt: skip


class World:
    """A book, an evaluation, and a clock that beats as Alertmanager does."""

    def __init__(self, *, prometheus: bool = True) -> None:
        self.book = AlertBook(LINES)
        self.handover = Handover(self.book, TAKES_S, LINES, prometheus=prometheus)
        self.now = 0.0
        self.here: tuple[Firing, ...] = ()
        self.decided = frozenset(TAKES_S)
        self.watched = True
        self.beats = True
        self.starts_at = "2026-01-01T00:00:00Z"

    def hear(self, name: str, status: str = "firing") -> None:
        body = webhook(name, "v1", status).replace(b"2026-01-01T00:00:00Z", self.starts_at.encode())
        self.book.receive(body, self.now)

    def look(self) -> dict[str, Firing]:
        evaluation = Evaluation(self.here, (), self.watched, self.decided, None)
        return {each.alert: each for each in self.handover.settle(evaluation, self.now)}

    def seconds(self, count: float) -> list[dict[str, Firing]]:
        """So many looks, a second apart."""
        seen = list[dict[str, Firing]]()
        for _ in range(int(count)):
            if self.beats and self.now % LINES.heartbeat_s == 0:
                self.hear(AlertName.WATCHDOG)
            seen.append(self.look())
            self.now += 1.0
        return seen

    def settled(self) -> None:
        """Prometheus has been there for long enough to decide alone."""
        self.seconds(100)
        assert self.handover.source(self.now) is Source.PROMETHEUS


def one(looks: Sequence[dict[str, Firing]], name: str) -> Firing:
    """The one firing that all looks show, whoever says so."""
    shown = [look[name] for look in looks]
    assert len({each.operation_id for each in shown}) == 1
    return shown[-1]


# ---------------------------------------------------------------- one source alone
def test_a_prometheus_that_beats_decides_alone():
    world = World()
    world.settled()
    world.here = (here(LATENCY),)
    world.hear(CACHE)
    assert all(set(look) == {CACHE} for look in world.seconds(20))


def test_without_one_the_evaluator_decides_alone_whatever_a_webhook_says():
    world = World(prometheus=False)
    world.hear(CACHE)
    world.here = (here(LATENCY),)
    assert all(set(look) == {LATENCY} for look in world.seconds(20))


def test_alerts_that_only_prometheus_evaluates_are_told_apart_by_every_label():
    world = World()
    world.settled()
    for severity in ("page", "ticket"):
        name = AlertName.ERROR_BUDGET_BURN
        body = webhook(name, "v1").replace(
            b'"alertname"', f'"severity": "{severity}", "alertname"'.encode()
        )
        world.book.receive(body, world.now)
    firing = world.handover.settle(Evaluation((), (), True, world.decided, None), world.now)
    assert {each.labels["severity"] for each in firing} == {"page", "ticket"}


def test_labels_that_prometheus_adds_make_no_other_alert_of_it():
    world = World()
    world.settled()
    body = webhook(CACHE, "v1").replace(b'"alertname"', b'"cluster": "eu", "alertname"')
    world.book.receive(body, world.now)
    looks = world.seconds(3)
    world.here, world.beats = (here(CACHE),), False
    looks += world.seconds(60)
    assert one(looks, CACHE).labels["cluster"] == "eu"


# ---------------------------------------------------------------- Prometheus dies
@pytest.mark.parametrize("resolved_after_s", [None, 4, 6])
@pytest.mark.parametrize("decided", [True, False])
def test_what_fires_as_prometheus_dies_goes_on_as_the_same_firing(
    resolved_after_s: int | None, decided: bool
):
    """Alertmanager calls an alert resolved that nobody renews, long before the silence is one."""
    world = World()
    world.settled()
    world.hear(CACHE)
    looks = world.seconds(3)
    world.beats = False
    if decided:
        world.here = (here(CACHE),)
    else:
        world.decided = frozenset()  # it has not watched for long enough
    if resolved_after_s is not None:
        looks += world.seconds(resolved_after_s)
        world.hear(CACHE, "resolved")
    looks += world.seconds(60)
    assert world.handover.source(world.now) is Source.EMBEDDED
    firing = one(looks, CACHE)
    assert firing.source is (Source.EMBEDDED if decided else Source.PROMETHEUS)


def test_it_ends_as_soon_as_the_evaluator_can_tell_that_it_has():
    world = World()
    world.settled()
    world.hear(CACHE)
    world.seconds(3)
    world.beats = False
    world.decided = frozenset()
    assert all(CACHE in look for look in world.seconds(45))
    world.decided = frozenset(TAKES_S)
    assert CACHE not in world.look()


def test_an_evaluator_that_never_can_tell_holds_nothing_for_ever():
    world = World()
    world.settled()
    world.hear(CACHE)
    world.beats = False
    world.decided = frozenset()
    assert CACHE in world.seconds(60)[-1]
    assert CACHE not in world.seconds(200)[-1]


def test_an_end_that_both_agree_on_is_one_at_once():
    world = World()
    world.settled()
    world.hear(CACHE)
    world.seconds(2)
    world.hear(CACHE, "resolved")
    assert CACHE not in world.look()


def test_an_end_that_the_tables_do_not_show_is_none():
    """A Prometheus that was restarted, and never silent for long, has forgotten what fired."""
    world = World()
    world.settled()
    world.here = (here(CACHE),)
    world.hear(CACHE)
    looks = world.seconds(2)
    world.hear(CACHE, "resolved")
    looks += world.seconds(3 * TAKES_S[CACHE])
    one(looks, CACHE)
    world.here = ()
    assert CACHE not in world.look()


def test_an_end_that_heartbeats_confirm_is_believed_where_the_evaluator_cannot_tell():
    world = World()
    world.settled()
    world.decided = frozenset()
    world.hear(CACHE)
    world.seconds(2)
    world.hear(CACHE, "resolved")
    looks = world.seconds(2 * LINES.heartbeat_s + 1)
    assert CACHE in looks[0]
    assert CACHE not in looks[-1]


def test_a_restarted_prometheus_leaves_what_it_has_not_watched_to_the_evaluator():
    world = World()
    world.settled()
    world.here = (here(CACHE),)
    assert CACHE not in world.look()
    world.starts_at = "2026-01-01T00:10:00Z"
    world.seconds(6)
    assert CACHE in world.look()


def test_what_is_not_evaluated_here_is_shown_for_as_long_as_the_book_has_it():
    world = World()
    world.settled()
    world.hear(AlertName.JOURNAL_UNWRITABLE)
    world.beats = False
    assert AlertName.JOURNAL_UNWRITABLE in world.seconds(60)[-1]
    assert AlertName.JOURNAL_UNWRITABLE not in world.seconds(60)[-1]


# ---------------------------------------------------------------- Prometheus comes back
def test_what_fires_here_goes_on_past_a_return_until_the_tables_no_longer_show_it():
    """Its windows are empty and its `for` begins anew: its silence on an alert is no word."""
    world = World()
    world.here = (here(CACHE),)
    world.beats = False
    looks = world.seconds(40)
    world.beats = True
    looks += world.seconds(2 * TAKES_S[CACHE])
    assert world.handover.source(world.now) is Source.PROMETHEUS
    one(looks, CACHE)
    world.here = ()
    assert CACHE not in world.look()


def test_one_that_prometheus_fires_again_stays_the_same_firing():
    world = World()
    world.here = (here(CACHE),)
    world.beats = False
    looks = world.seconds(40)
    world.beats = True
    looks += world.seconds(35)
    world.hear(CACHE)
    looks += world.seconds(60)
    firing = one(looks, CACHE)
    assert (firing.source, firing.starts_at) == (Source.PROMETHEUS, WALL)


def test_one_that_ends_here_meanwhile_ends():
    world = World()
    world.here = (here(CACHE),)
    world.beats = False
    world.seconds(40)
    world.beats = True
    world.seconds(10)
    world.here = ()
    assert CACHE not in world.look()


# ---------------------------------------------------------------- the evaluator is blind
def test_what_fired_before_the_tables_could_not_be_read_ends_only_once_it_can_be_told():
    world = World(prometheus=False)
    world.here = (here(CACHE),)
    looks = world.seconds(5)
    world.here, world.decided = (), frozenset()
    looks += world.seconds(30)
    one(looks, CACHE)
    world.decided = frozenset(TAKES_S)
    assert CACHE not in world.look()


def test_a_new_firing_of_the_same_source_is_a_new_one():
    world = World(prometheus=False)
    world.here = (here(CACHE, WALL),)
    first = world.look()[CACHE]
    world.here = (here(CACHE, WALL + 60),)
    assert world.look()[CACHE].operation_id != first.operation_id
