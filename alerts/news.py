"""What is new of the alerts since the last look, for the journal: each change once."""

from collections.abc import Iterable

from alerts.firing import AlertNews, Firing, Identity, NewsState

PENDING_AGAIN_S = 60.0  # one that hovers about its line is told of no more often


class News:
    """Compares each look with the one before. `wall` is calendar seconds."""

    def __init__(self) -> None:
        self._fired: dict[Identity, Firing] = {}
        self._pending_at: dict[Identity, float] = {}  # when each was last told of

    def of(
        self, firing: Iterable[Firing], pending: Iterable[Firing], wall: float, *, known: bool
    ) -> tuple[AlertNews, ...]:
        """What changed. Not `known`: what is missing may fire for all we can tell."""
        fires = {each.identity: each for each in firing}
        ended = [] if not known else [f for key, f in self._fired.items() if key not in fires]
        begun = [f for key, f in fires.items() if self._is_another(key, f)]
        waits = [f for f in pending if f.identity not in fires and self._is_due(f.identity, wall)]
        self._fired = fires if known else self._fired | fires
        self._pending_at = {
            key: at for key, at in self._pending_at.items() if wall - at < PENDING_AGAIN_S
        } | {each.identity: wall for each in waits}
        return (
            *(_news(each, "resolved", wall) for each in ended),
            *(_news(each, "pending", wall) for each in waits),
            *(_news(each, "firing", wall) for each in begun),
        )

    def _is_another(self, key: Identity, firing: Firing) -> bool:
        known = self._fired.get(key)
        return known is None or known.starts_at != firing.starts_at

    def _is_due(self, key: Identity, wall: float) -> bool:
        told_at = self._pending_at.get(key)
        return told_at is None or not 0.0 <= wall - told_at < PENDING_AGAIN_S


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
