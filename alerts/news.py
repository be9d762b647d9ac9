"""What is new of the alerts since the last look, for the journal: each change once."""

from collections.abc import Iterable, Mapping

from alerts.firing import AlertNews, Firing, Labels, NewsState

PENDING_AGAIN_S = 60.0  # one that hovers about its line is told of no more often
FIRING_AGAIN_S = 10.0  # and one that fires and ends and fires


class News:
    """Compares each look with the one before. `wall` is calendar seconds."""

    def __init__(self) -> None:
        self._told: dict[Labels, Firing] = {}  # as firing, and not as ended
        self._firing_at: dict[Labels, float] = {}  # when each was last told of
        self._pending_at: dict[Labels, float] = {}

    def of(
        self, firing: Iterable[Firing], pending: Iterable[Firing], wall: float, *, known: bool
    ) -> tuple[AlertNews, ...]:
        """What changed. Not `known`: what is missing may fire for all we can tell."""
        fires = {each.all_labels: each for each in firing}
        ended = {} if not known else {k: f for k, f in self._told.items() if k not in fires}
        begun = {key: f for key, f in fires.items() if self._is_another(key, f)}
        begun = {
            k: f for k, f in begun.items() if _is_due(self._firing_at, k, wall, FIRING_AGAIN_S)
        }
        waits = {each.all_labels: each for each in pending if each.all_labels not in fires}
        waits = {
            k: f for k, f in waits.items() if _is_due(self._pending_at, k, wall, PENDING_AGAIN_S)
        }
        self._told = {k: f for k, f in self._told.items() if k not in ended} | begun
        self._firing_at = _noted(self._firing_at, begun, wall, FIRING_AGAIN_S)
        self._pending_at = _noted(self._pending_at, waits, wall, PENDING_AGAIN_S)
        return (
            *(_news(each, "resolved", wall) for each in ended.values()),
            *(_news(each, "pending", wall) for each in waits.values()),
            *(_news(each, "firing", wall) for each in begun.values()),
        )

    def _is_another(self, key: Labels, firing: Firing) -> bool:
        told = self._told.get(key)
        return told is None or told.starts_at != firing.starts_at


def _is_due(told_at: Mapping[Labels, float], key: Labels, wall: float, again_s: float) -> bool:
    at = told_at.get(key)
    return at is None or not 0.0 <= wall - at < again_s


def _noted(
    told_at: Mapping[Labels, float], now_told: Iterable[Labels], wall: float, again_s: float
) -> dict[Labels, float]:
    """When each was told of, as far back as that matters."""
    recent = {key: at for key, at in told_at.items() if 0.0 <= wall - at < again_s}
    return recent | dict.fromkeys(now_told, wall)


def _news(of: Firing, state: NewsState, wall: float) -> AlertNews:
    return AlertNews(
        alert=of.alert,
        version=of.version,
        labels=of.labels,
        state=state,
        source=of.source,
        starts_at=of.starts_at,
        heard_at=wall,
    )
