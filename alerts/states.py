"""Prometheus' own state machine of one alert: inactive, pending, firing, kept firing."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Standing:
    """An alert that is pending or firing; one that is inactive has none.

    `fired_at` is what Prometheus sends as `startsAt`, not when its line was first crossed.
    """

    active_at: float  # monotonic seconds: since when its line is crossed without a break
    pending_at: float  # the same, calendar seconds
    fired_at: float | None = None  # calendar seconds; None: pending
    missed_at: float | None = None  # monotonic: the first look that found it no longer crossed

    @property
    def fires(self) -> bool:
        return self.fired_at is not None


def advance(
    standing: Standing | None,
    crossed: bool,
    *,
    for_s: float,
    keep_firing_s: float,
    now: float,
    wall: float,
) -> Standing | None:
    """The next state, as `AlertingRule.Eval` of Prometheus 2.42 has it; None is inactive.

    A pending one whose line is no longer crossed is dropped; a firing one goes on until
    `keep_firing_s` have passed since the first look that missed it. `now`: monotonic seconds.
    """
    if not crossed:
        return _missed(standing, keep_firing_s, now)
    if standing is None:
        standing = Standing(active_at=now, pending_at=wall)
    due = not standing.fires and now - standing.active_at >= for_s
    fired_at = wall if due else standing.fired_at
    return replace(standing, fired_at=fired_at, missed_at=None)


def _missed(standing: Standing | None, keep_firing_s: float, now: float) -> Standing | None:
    if standing is None or not standing.fires:
        return None
    missed_at = now if standing.missed_at is None else standing.missed_at
    return replace(standing, missed_at=missed_at) if now - missed_at < keep_firing_s else None
