"""What is journalled of alerts: each change once, and never more than changed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.firing import Firing, Source
from alerts.news import FIRING_AGAIN_S, PENDING_AGAIN_S, News
from monitors.labels import Action


def alert(name: str = "RedlineX", starts_at: float = 0.0, version: str = "v1") -> Firing:
    return Firing(
        alert=name, action=Action.NONE, version=version, starts_at=starts_at,
        labels={"alertname": name, "version": version}, source=Source.EMBEDDED,
    )  # fmt: skip


class Desk:
    """Asks for news once a second."""

    def __init__(self) -> None:
        self.news = News()
        self.wall = 1_000.0

    def look(
        self, firing: list[Firing], pending: list[Firing] | None = None, *, known: bool = True
    ) -> list[tuple[str, str]]:
        found = self.news.of(firing, pending or [], self.wall, known=known)
        assert all(each.heard_at == self.wall for each in found)
        self.wall += 1.0
        return [(each.alert, each.state) for each in found]


def test_a_firing_that_goes_on_is_told_once_and_so_is_its_end():
    desk = Desk()
    assert desk.look([alert()]) == [("RedlineX", "firing")]
    assert desk.look([alert()]) == []
    assert desk.look([]) == [("RedlineX", "resolved")]
    assert desk.look([]) == []


def test_one_that_ended_and_fires_again_between_two_looks_is_another():
    desk = Desk()
    desk.look([alert(starts_at=1.0)])
    desk.wall += FIRING_AGAIN_S
    assert desk.look([alert(starts_at=9.0)]) == [("RedlineX", "firing")]


def test_one_that_fires_and_ends_by_the_second_does_not_fill_the_journal():
    desk = Desk()
    told = [desk.look([alert(starts_at=second)] if second % 2 else []) for second in range(600)]
    assert sum(map(len, told)) <= 2 * 600 / FIRING_AGAIN_S + 2
    desk.wall += FIRING_AGAIN_S
    assert desk.look([alert(starts_at=700)])[-1:] == [("RedlineX", "firing")]


def test_what_nobody_can_see_has_not_ended():
    desk = Desk()
    desk.look([alert()])
    assert desk.look([], known=False) == []
    assert desk.look([alert()]) == []
    assert desk.look([], known=False) == []
    assert desk.look([]) == [("RedlineX", "resolved")]


def test_a_pending_one_is_told_before_it_fires_and_its_going_away_is_no_news():
    desk = Desk()
    assert desk.look([], [alert()]) == [("RedlineX", "pending")]
    assert desk.look([], []) == []
    assert desk.look([alert()], [alert()]) == [("RedlineX", "firing")]


def test_one_that_hovers_about_its_line_does_not_fill_the_journal():
    desk = Desk()
    told = [desk.look([], [alert()] if second % 2 else []) for second in range(600)]
    assert sum(map(len, told)) <= 600 / PENDING_AGAIN_S + 1


firings = st.lists(
    st.builds(alert, st.sampled_from(["RedlineX", "RedlineY"]), st.integers(0, 2).map(float)),
    max_size=2,
    unique_by=lambda each: each.alert,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(firings, st.booleans(), st.sampled_from([0.0, 20.0])), max_size=30))
def test_the_news_alone_say_what_fires_or_did_within_the_last_seconds(looks: list):
    desk, fires = Desk(), set[str]()
    for firing, known, pause in looks:
        desk.wall += pause
        for name, state in desk.look(firing, known=known):
            (fires.discard if state == "resolved" else fires.add)(name)
        now = {each.alert for each in firing}
        if known:
            assert fires <= now, "told as firing, and it is known that it does not"
        if known and pause > FIRING_AGAIN_S:
            assert fires == now
