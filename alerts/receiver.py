"""Alertmanager's webhook: bodies in, the set of firing alerts out. Levels, never edges."""

import hmac
from dataclasses import dataclass, replace
from datetime import datetime
from operator import itemgetter
from typing import Annotated, Literal

import msgspec

from alerts.firing import Firing, fingerprint
from alerts.names import AlertName
from monitors.labels import Action
from monitors.metric import Label
from monitors.redlines import AlertLines

# News of a firing that was already resolved is late until this has passed; after it, the firing
# has come back: Prometheus keeps an alert's start when Alertmanager gave it up in between.
LATE_S = 5.0
MISSED_REPEATS = 3
# That fire at once: a look at them holds the loop that answers requests. Alerts that act find room
# though those that only tell have taken theirs.
MOST_ALERTS = 5_000
MOST_ACTING = 2 * MOST_ALERTS
MOST_IN_BODY = 1_000  # Alertmanager says how many more there were


class WebhookError(ValueError):
    """A body of which nothing can be used; the message says why. Nothing of it was taken."""


def is_authorised(header: str | None, token: str) -> bool:
    """Whether an `Authorization` header carries `token`, in constant time. No token, no entry."""
    scheme, _, credentials = (header or "").partition(" ")
    given = credentials.strip().encode("utf-8", "backslashreplace")
    same = hmac.compare_digest(given, token.encode("utf-8", "backslashreplace"))
    return same and bool(token) and scheme.lower() == "bearer"


# ---------------------------------------------------------------- the body (webhook version 4)
class _Alert(msgspec.Struct, frozen=True, rename="camel"):
    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    starts_at: Annotated[datetime, msgspec.Meta(tz=True)]
    annotations: dict[str, str] = {}


class _Body(msgspec.Struct, frozen=True, rename="camel"):
    version: Literal["4"]
    alerts: list[msgspec.Raw]  # one that is broken must not lose the others
    truncated_alerts: int = 0


_read_body = msgspec.json.Decoder(_Body).decode
_read_alert = msgspec.json.Decoder(_Alert).decode


@dataclass(frozen=True)
class Parsed:
    """What a body says. `truncated`: so many alerts Alertmanager left out of it."""

    news: tuple[tuple[Firing, bool], ...]  # an alert, and whether it is resolved; in its order
    refused: tuple[str, ...]  # why, of each alert that cannot be used
    truncated: int


def parse(body: bytes) -> Parsed:
    """Read a body. Raises `WebhookError` where nothing in it can be used."""
    try:
        parsed = _read_body(body)
    except (msgspec.DecodeError, RecursionError) as err:
        raise WebhookError(f"this is no Alertmanager webhook of version 4: {err}") from err
    news, refused = list[tuple[Firing, bool]](), list[str]()
    for raw in parsed.alerts[:MOST_ALERTS]:
        try:
            news.append(_news(raw))
        except WebhookError as err:
            refused.append(str(err))
    if refused and not news:
        raise WebhookError(refused[0])
    refused += [f"a body has {MOST_ALERTS:,} alerts at most"] * len(parsed.alerts[MOST_ALERTS:])
    return Parsed(tuple(news), tuple(refused), parsed.truncated_alerts)


def _news(raw: msgspec.Raw) -> tuple[Firing, bool]:
    try:
        alert = _read_alert(raw)
    except msgspec.DecodeError as err:
        raise WebhookError(f"an alert cannot be read: {err}") from err
    return _firing(alert), alert.status == "resolved"


def _firing(alert: _Alert) -> Firing:
    name = alert.labels.get("alertname")
    if not name:
        raise WebhookError(f"an alert has no alertname label: {alert.labels}")
    given = alert.labels.get("action", Action.NONE)
    try:
        action = Action(given)
    except ValueError as err:
        known = ", ".join(Action)
        raise WebhookError(f"{name}: action {given!r} is unknown; there are: {known}") from err
    version = alert.labels.get(Label.VERSION) or None
    if action is not Action.NONE and version is None:
        # An empty selector never means all.
        raise WebhookError(f"{name}: action {action} needs a version label to act on")
    return Firing(
        alert=name,
        action=action,
        version=version,
        labels=alert.labels,
        starts_at=alert.starts_at.timestamp(),
        summary=alert.annotations.get("summary", ""),
        runbook=alert.annotations.get("runbook_url") or None,
    )


# ---------------------------------------------------------------- the book
@dataclass(frozen=True)
class Received:
    """How many alerts of a body changed what fires, how many said nothing new, and why others were
    refused. `truncated`: so many Alertmanager did not send."""

    taken: int
    repeated: int
    refused: tuple[str, ...] = ()
    truncated: int = 0


@dataclass(frozen=True)
class _Entry:
    firing: Firing
    resolved: bool
    heard_at: float
    ended_at: float | None = None  # when the first word came that a firing alert is resolved
    doubted: bool = False  # it was said to fire after that: late news, or it has come back


@dataclass(frozen=True)
class Ended:
    """An alert that fired, and since when it is said to be resolved (monotonic seconds).

    Alertmanager resolves by itself what a dead Prometheus tells no more, up to a heartbeat before
    the Watchdog is missed: only one that comes that much later confirms that it was alive.
    """

    firing: Firing
    at: float
    confirmed: bool


def keep_s(lines: AlertLines) -> float:
    """How long an alert counts that nobody repeats: some repeats, and at any rate until a silence
    is one and whoever takes over has looked."""
    return max(MISSED_REPEATS * lines.repeat_s, 2 * lines.heartbeat_silence_s)


class AlertBook:
    """What fires now, by the newest word on each set of labels. `now` is monotonic seconds.

    Any body may come late, twice or out of order. An alert that Alertmanager no longer repeats
    is dropped after `keep_s`: an Alertmanager that died must not hold a resident degraded for
    ever, and the ladder's dwell covers the time until another takes over.
    """

    def __init__(self, lines: AlertLines) -> None:
        self._keep_s = keep_s(lines)
        self._heartbeat_s = lines.heartbeat_s
        self._entries: dict[str, _Entry] = {}
        self._heartbeat_at: float | None = None
        self.beats_since: float | None = None  # wall: when the Watchdog that is heard began

    def receive(self, body: bytes, now: float) -> Received:
        """Take what a body has that can be used: Alertmanager sends no 4xx again, so one broken
        alert must not lose the others. Raises `WebhookError` where nothing can be."""
        self._drop_unheard(now)
        parsed = parse(body)
        changed = [self._hear(firing, resolved, now) for firing, resolved in parsed.news]
        crowded = [f"{len(self._entries):,} alerts fire: no room for more"] * changed.count(None)
        return Received(
            taken=changed.count(True),
            repeated=changed.count(False),
            refused=(*parsed.refused, *crowded),
            truncated=parsed.truncated,
        )

    def firing(self, now: float) -> tuple[Firing, ...]:
        """The alerts that fire, the earliest first. The Watchdog is none of them."""
        self._drop_unheard(now)
        firing = [
            (e.firing.starts_at, k, e.firing) for k, e in self._entries.items() if not e.resolved
        ]
        return tuple(each for _, _, each in sorted(firing, key=itemgetter(0, 1)))

    def ended(self, now: float) -> tuple[Ended, ...]:
        """The alerts that fired and are said to be resolved, for as long as that is remembered."""
        self._drop_unheard(now)
        return tuple(
            Ended(entry.firing, entry.ended_at, self._is_confirmed(entry, entry.ended_at))
            for entry in self._entries.values()
            if entry.ended_at is not None
        )

    def _is_confirmed(self, entry: _Entry, ended_at: float) -> bool:
        beat = self._heartbeat_at
        told = beat is not None and beat - ended_at >= self._heartbeat_s
        return told and not entry.doubted

    def heartbeat_age(self, now: float) -> float | None:
        """Seconds since the Watchdog was last heard; None before the first."""
        return None if self._heartbeat_at is None else now - self._heartbeat_at

    def _hear(self, firing: Firing, resolved: bool, now: float) -> bool | None:
        """Whether this changed what fires. None: there is no room for it."""
        if firing.alert == AlertName.WATCHDOG:
            if not resolved:
                self._heartbeat_at, self.beats_since = now, firing.starts_at
            return False
        key = fingerprint(firing.labels)
        known = self._entries.get(key)
        if known is None and not self._has_room(firing):
            return None
        if known is not None and _is_late(firing, resolved, known, now):
            if firing.starts_at == known.firing.starts_at:
                self._entries[key] = replace(known, doubted=True)
            return False
        fired = known is not None and not known.resolved
        ended_at = None if not resolved else now if fired else known and known.ended_at
        self._entries[key] = _Entry(firing, resolved, now, ended_at)
        return fired == resolved

    def _has_room(self, firing: Firing) -> bool:
        most = MOST_ALERTS if firing.action is Action.NONE else MOST_ACTING
        return len(self._entries) < most

    def _drop_unheard(self, now: float) -> None:
        oldest = now - self._keep_s
        self._entries = {k: e for k, e in self._entries.items() if e.heard_at > oldest}


def _is_late(firing: Firing, resolved: bool, known: _Entry, now: float) -> bool:
    if firing.starts_at != known.firing.starts_at:
        return firing.starts_at < known.firing.starts_at
    return known.resolved and not resolved and now - known.heard_at < LATE_S
