"""However Prometheus dies and comes back, an alert that the tables show goes on as one firing.

Prometheus and Alertmanager are modelled second by second, as the real ones were seen to behave
(`tests/e2e/test_handover.py` drives those): a dead Prometheus' alerts are resolved five seconds
after it last told of them, a new one has empty windows and begins every `for` anew.
"""

import json
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.evaluator import Evaluation
from alerts.firing import Firing, Source
from alerts.handover import Handover
from alerts.names import AlertName
from alerts.receiver import AlertBook
from monitors.labels import Action
from monitors.redlines import AlertLines

LINES = AlertLines()
CACHE = AlertName.CACHE_BELOW_FLOOR.value
LABELS = {"alertname": CACHE, "action": Action.QUANTISE_KV.value, "version": "v1", "table": "cache"}
WINDOW_S, FOR_S = 30, 30
TAKES_S = {CACHE: WINDOW_S + FOR_S + LINES.repeat_s}
RESOLVED_S = 5  # Alertmanager's, after the last that Prometheus told
WALL = 1_800_000_000.0


class Alertmanager:
    """One alert of it: told again and again while Prometheus tells it, then resolved."""

    def __init__(self, labels: dict[str, str], repeat_s: float) -> None:
        self._labels = labels
        self._repeat_s = repeat_s
        self._starts_at: float | None = None
        self._told_at = self._notified_at = -1_000.0

    def told(self, now: float) -> None:
        """Prometheus says that it fires. One that is not over goes on under its old start."""
        self._told_at = now
        self._starts_at = now if self._starts_at is None else self._starts_at

    def notify(self, now: float) -> dict[str, object] | None:
        """What it posts in this second."""
        if self._starts_at is None:
            return None
        starts_at, over = self._starts_at, now - self._told_at >= RESOLVED_S
        if not over and now - self._notified_at < self._repeat_s:
            return None
        self._notified_at = -1_000.0 if over else now
        self._starts_at = None if over else starts_at
        return {
            "status": "resolved" if over else "firing",
            "labels": self._labels,
            "startsAt": datetime.fromtimestamp(WALL + starts_at, UTC).isoformat(),
        }


class World:
    """Prometheus, Alertmanager and the control plane's handover, a second at a time."""

    def __init__(self) -> None:
        self.book = AlertBook(LINES)
        self.handover = Handover(self.book, TAKES_S, LINES, prometheus=True)
        self.alerts = Alertmanager(LABELS, LINES.repeat_s)
        self.watchdog = Alertmanager({"alertname": AlertName.WATCHDOG.value}, LINES.heartbeat_s)
        self.now = 0.0
        self.born_at: float | None = 0.0  # Prometheus; None: it is dead
        self.crossed_since: float | None = None

    def second(self) -> tuple[Firing, ...]:
        if self.born_at is not None:
            self.watchdog.told(self.now)
            if self._is_seen_by(self.born_at):
                self.alerts.told(self.now)
        news = [each.notify(self.now) for each in (self.watchdog, self.alerts)]
        body = {"version": "4", "alerts": [each for each in news if each is not None]}
        self.book.receive(json.dumps(body).encode(), self.now)
        shown = self.handover.settle(self._evaluation(), self.now)
        self.now += 1.0
        return shown

    def _is_seen_by(self, born_at: float) -> bool:
        """Whether a Prometheus of that age has its window and its `for` behind it."""
        if self.crossed_since is None:
            return False
        since = max(born_at + WINDOW_S, self.crossed_since)
        return self.now - since >= FOR_S

    def _evaluation(self) -> Evaluation:
        since = self.crossed_since
        fired_at = None if since is None else since + FOR_S
        fires = fired_at is not None and self.now >= fired_at
        firing = Firing(
            alert=CACHE, action=Action.QUANTISE_KV, version="v1", labels=LABELS,
            starts_at=WALL + (fired_at or 0.0), source=Source.EMBEDDED,
        )  # fmt: skip
        return Evaluation((firing,) if fires else (), (), True, frozenset(TAKES_S), None)


lives = st.lists(
    st.tuples(st.integers(1, 150), st.integers(1, 80)),  # seconds alive, then dead
    min_size=1,
    max_size=6,
)


@settings(max_examples=80, deadline=None)
@given(lives)
def test_while_its_line_is_crossed_a_firing_goes_on_as_the_same_one(lives: list[tuple[int, int]]):
    world = World()
    world.crossed_since = 0.0
    while not world.second():
        assert world.now < 200
    seen = list[tuple[Firing, ...]]()
    for alive_s, dead_s in lives:
        seen += [world.second() for _ in range(alive_s)]
        world.born_at = None
        seen += [world.second() for _ in range(dead_s)]
        world.born_at = world.now
    assert [len(each) for each in seen] == [1] * len(seen)
    assert len({each.operation_id for (each,) in seen}) == 1


@settings(max_examples=80, deadline=None)
@given(lives, st.integers(0, 400))
def test_once_its_line_is_not_crossed_it_is_over_within_a_repeat(
    lives: list[tuple[int, int]], crossed_s: int
):
    """Alertmanager, and a control plane that waits for its word, take a few seconds at most."""
    world = World()
    world.crossed_since = 0.0
    quiet_for = 0
    for alive_s, dead_s in lives:
        for second in range(alive_s + dead_s):
            world.born_at = world.born_at if second < alive_s else None
            if world.now >= crossed_s:
                world.crossed_since = None
                quiet_for += 1
            fires = bool(world.second())
            assert not fires or quiet_for <= LINES.heartbeat_silence_s + RESOLVED_S + 2
        world.born_at = world.now
