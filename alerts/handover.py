"""What fires, where Prometheus and the evaluator here may each be blind for a while.

Each decides alone only on an alert whose line it has watched for long enough to have fired it.
Until then what the other one says goes on, so that no change of source drops a firing or makes a
second one of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from alerts.alert import Alert
from alerts.evaluator import Evaluation, prometheus_is_silent
from alerts.firing import Firing, Labels, Source
from alerts.names import AlertName
from alerts.receiver import AlertBook, Ended, keep_s
from alerts.rule import DEGRADING
from monitors.redlines import AlertLines, RedLines


def takes_s(watched: Mapping[str, Alert], lines: RedLines) -> dict[str, float]:
    """How long a Prometheus that has come back takes until it must have fired each alert: its
    window fills, its `for` passes, and Alertmanager tells again of what it had told before. The
    ladder's end comes after what it reads: an alert that is answered by degrading, which may
    pause by then for as long as the ladder's end looks back."""
    found = {name: each.window_s + each.for_s for name, each in watched.items()}
    acting = (found[name] for name, each in watched.items() if each.action in DEGRADING)
    found[AlertName.LADDER_EXHAUSTED] += max(acting, default=0.0)
    return {name: seconds + lines.alerts.repeat_s for name, seconds in found.items()}


@dataclass(frozen=True)
class _Last:
    """How an alert is shown, what was said of it, and when that was last said by who can see."""

    shown: Firing
    said: Firing
    said_at: float


class Handover:
    """Chooses between a book and an evaluation at each look. `now` is monotonic seconds.

    `takes`: of each alert that is evaluated here, how long Prometheus must have been back to have
    fired it, seconds (`takes_s`).
    """

    def __init__(
        self, book: AlertBook, takes: Mapping[str, float], lines: AlertLines, *, prometheus: bool
    ) -> None:
        self._book = book
        self._takes = takes
        self._lines = lines
        self._prometheus = prometheus
        self._hold_s = keep_s(lines)
        self._back_since: float | None = None  # since when Prometheus beats; None: it is silent
        self._beats_since: float | None = None
        self._last: dict[Labels, _Last] = {}

    def source(self, now: float) -> Source:
        """Who is asked first."""
        silent = prometheus_is_silent(self._book.heartbeat_age(now), self._lines)
        return Source.EMBEDDED if silent or not self._prometheus else Source.PROMETHEUS

    def settle(self, evaluation: Evaluation, now: float) -> tuple[Firing, ...]:
        """What fires as far as anybody can tell, the earliest first."""
        beats_since = self._book.beats_since
        if self.source(now) is Source.EMBEDDED:
            self._back_since = None
        elif self._back_since is None or beats_since != self._beats_since:
            self._back_since = now  # it is back, or another one that knows no more than that
        self._beats_since = beats_since
        said = {self._key(each): each for each in self._said(evaluation, now)}
        held = {self._key(each): each for each in self._held(evaluation, now)}
        self._last = {
            key: self._noted(key, each, key in said, now) for key, each in {**held, **said}.items()
        }
        shown = (last.shown for last in self._last.values())
        return tuple(sorted(shown, key=lambda each: (each.starts_at, each.alert)))

    def _said(self, evaluation: Evaluation, now: float) -> Iterable[Firing]:
        """What those who can see say. Of an alert that both name, the last word is shown."""
        if not self._prometheus:
            return evaluation.firing
        told = self._book.firing(now)
        if self._back_since is None:
            return (*(f for f in told if f.alert not in self._takes), *evaluation.firing)
        early = (f for f in evaluation.firing if not self._prometheus_had_time(f, now))
        return (*early, *told)

    def _prometheus_had_time(self, firing: Firing, now: float) -> bool:
        """Whether, by its heartbeats, it has watched for long enough to have fired it."""
        age_s = self._book.heartbeat_age(now)
        if age_s is None or self._back_since is None:
            return False
        return now - age_s - self._back_since >= self._takes[firing.alert]

    def _held(self, evaluation: Evaluation, now: float) -> Iterable[Firing]:
        """What fired and was not seen to end: the tables show it still, or cannot tell yet."""
        ended = self._ended(now)
        if self._back_since is not None:
            here = (f for f in evaluation.firing if self._key(f) in self._last)
            rumours = (e.firing for e in ended if not e.confirmed)
            return (*here, *(f for f in rumours if self._is_undecided(f, evaluation)))
        told = self._book.firing(now) if self._prometheus else ()
        fired = [last.said for last in self._last.values() if now - last.said_at < self._hold_s]
        known = (*(e.firing for e in ended), *told, *fired)
        return [f for f in known if self._is_undecided(f, evaluation)]

    def _ended(self, now: float) -> tuple[Ended, ...]:
        return self._book.ended(now) if self._prometheus else ()

    def _noted(self, key: Labels, firing: Firing, is_said: bool, now: float) -> _Last:
        last = self._last.get(key)
        said_at = now if is_said or last is None else last.said_at
        return _Last(self._as_known(key, firing), firing, said_at)

    def _key(self, firing: Firing) -> Labels:
        return firing.identity if firing.alert in self._takes else firing.all_labels

    def _is_undecided(self, firing: Firing, evaluation: Evaluation) -> bool:
        return firing.alert in self._takes and firing.alert not in evaluation.decided

    def _as_known(self, key: Labels, said: Firing) -> Firing:
        """The same firing goes on, by its first name, where only its source has changed."""
        last = self._last.get(key)
        if last is None:
            return said
        goes_on = said.source is not last.said.source or said.starts_at == last.said.starts_at
        named = {"labels": last.shown.labels, "starts_at": last.shown.starts_at}
        return msgspec.structs.replace(said, **named) if goes_on else said
