"""Alertmanager's webhook: bodies in, the set of firing alerts out. Levels, never edges."""

import hmac
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from alerts.firing import Firing, fingerprint
from alerts.policy import AlertName
from monitors.labels import Action
from monitors.metric import Label
from monitors.redlines import AlertLines

# News of a firing that was already resolved is late until this has passed; after it, the firing
# has come back: Prometheus keeps an alert's start when Alertmanager gave it up in between.
LATE_S = 5.0
MISSED_REPEATS = 3


class WebhookError(ValueError):
    """A body that cannot be used; the message says why. Nothing of it was taken."""


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


class _Body(msgspec.Struct, frozen=True):
    version: Literal["4"]
    alerts: list[_Alert]


def parse(body: bytes) -> tuple[tuple[Firing, bool], ...]:
    """(alert, whether it is resolved) of a body, in its order. Raises `WebhookError`."""
    try:
        parsed = msgspec.json.decode(body, type=_Body)
    except msgspec.DecodeError as err:
        raise WebhookError(f"this is no Alertmanager webhook of version 4: {err}") from err
    return tuple((_firing(alert), alert.status == "resolved") for alert in parsed.alerts)


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
    )


# ---------------------------------------------------------------- the book
@dataclass(frozen=True)
class Received:
    """How many alerts of a body changed what fires, and how many said nothing new."""

    taken: int
    repeated: int


@dataclass(frozen=True)
class _Entry:
    firing: Firing
    resolved: bool
    heard_at: float


class AlertBook:
    """What fires now, by the newest word on each set of labels. `now` is monotonic seconds.

    Any body may come late, twice or out of order. An alert that Alertmanager no longer repeats
    is dropped after `MISSED_REPEATS` repeat intervals: an Alertmanager that died must not hold a
    resident degraded for ever, and the ladder's dwell covers the time until another takes over.
    """

    def __init__(self, lines: AlertLines) -> None:
        self._keep_s = MISSED_REPEATS * lines.repeat_s
        self._entries: dict[str, _Entry] = {}
        self._heartbeat_at: float | None = None

    def receive(self, body: bytes, now: float) -> Received:
        """Take a body, wholly or not at all. Raises `WebhookError`."""
        self._drop_unheard(now)
        changed = [self._hear(firing, resolved, now) for firing, resolved in parse(body)]
        return Received(taken=changed.count(True), repeated=changed.count(False))

    def firing(self, now: float) -> tuple[Firing, ...]:
        """The alerts that fire, the earliest first. The Watchdog is none of them."""
        self._drop_unheard(now)
        firing = [entry.firing for entry in self._entries.values() if not entry.resolved]
        return tuple(sorted(firing, key=lambda f: (f.starts_at, fingerprint(f.labels))))

    def heartbeat_age(self, now: float) -> float | None:
        """Seconds since the Watchdog was last heard; None before the first."""
        return None if self._heartbeat_at is None else now - self._heartbeat_at

    def _hear(self, firing: Firing, resolved: bool, now: float) -> bool:
        """Whether this changed what fires."""
        if firing.alert == AlertName.WATCHDOG:
            self._heartbeat_at = self._heartbeat_at if resolved else now
            return False
        key = fingerprint(firing.labels)
        known = self._entries.get(key)
        if known is not None and _is_late(firing, resolved, known, now):
            return False
        self._entries[key] = _Entry(firing, resolved, now)
        fired = known is not None and not known.resolved
        return fired == resolved

    def _drop_unheard(self, now: float) -> None:
        oldest = now - self._keep_s
        self._entries = {k: e for k, e in self._entries.items() if e.heard_at > oldest}


def _is_late(firing: Firing, resolved: bool, known: _Entry, now: float) -> bool:
    if firing.starts_at != known.firing.starts_at:
        return firing.starts_at < known.firing.starts_at
    return known.resolved and not resolved and now - known.heard_at < LATE_S
