"""The rules evaluated here: over `/tables`, while Prometheus is absent or its Watchdog is silent.

The states of an alert are Prometheus' own, the comparisons are the rules'.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from alerts.alert import Alert
from alerts.columns import Row, rows_of
from alerts.compile import alerts
from alerts.firing import Firing, Source
from alerts.names import AlertName
from alerts.policy import Policy
from alerts.rule import DEGRADING, Rule
from alerts.rules import runbook_of
from alerts.witness import Labels, Sight, Witness, Wrong
from alerts.wording import summarise
from monitors.contract import Observed
from monitors.labels import Milestone
from monitors.latency_table import LatencyRow
from monitors.metric import Label, Table
from monitors.redlines import AlertLines
from monitors.tables import Tables


def prometheus_is_silent(heartbeat_age_s: float | None, lines: AlertLines) -> bool:
    """Whether to evaluate here: no Watchdog has come, or none for too long."""
    return heartbeat_age_s is None or heartbeat_age_s > lines.heartbeat_silence_s


# ---------------------------------------------------------------- Prometheus' own states
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


# ---------------------------------------------------------------- looks
@dataclass(frozen=True)
class Evaluation:
    """What is so after one look.

    `decided`: the alerts whose lines were watched for as long as they must be crossed, so that
    one which does not fire has no reason to. `due`: the earliest monotonic time at which a
    pending one would fire; None: none is pending.
    """

    firing: tuple[Firing, ...]
    pending: tuple[Firing, ...]  # `starts_at`: since when the line is crossed
    watched: bool  # False: the tables could not be read, so of their rules nothing is known
    decided: frozenset[str]
    due: float | None


@dataclass(frozen=True)
class _Alive:
    """A pending or firing alert, and what it says of itself."""

    standing: Standing
    summary: str  # as of when its line was last crossed


Crossed = Mapping[Labels, str]  # the summary of each alert whose line is crossed


class Evaluator:
    """Looks once a tick, at all rules in their order. `watched`: the alerts that are evaluated."""

    def __init__(self, policy: Policy) -> None:
        self._rules = policy.rules
        self._witness = Witness(policy.lines)
        here = {*(rule.name for rule in policy.rules), *self._witness.looks}
        here.add(AlertName.LADDER_EXHAUSTED)
        self.watched = {each.name: each for each in alerts(policy) if each.name in here}
        self._pause_s = policy.lines.latency.window_s  # that is none (alerts.machinery)
        self._acted_at: dict[str, float] = {}  # when each version was last to be degraded
        self._alive: dict[str, dict[Labels, _Alive]] = {}
        self._since: dict[str, float] = {}  # since when each alert's line can be seen

    def tick(
        self, tables: Tables | None, observed: Observed | None, now: float, wall: float
    ) -> Evaluation:
        """One look. What cannot be read (None) is unknown: each `for` over it starts again.

        `now` is monotonic seconds, `wall` calendar seconds.
        """
        sight = Sight(tables, observed, now)
        self._witness.note(sight)
        for name, crossed in self._looks(sight):
            self._advance(self.watched[name], crossed, now, wall)
        return Evaluation(
            firing=tuple(self._shown(fires=True)),
            pending=tuple(self._shown(fires=False)),
            watched=tables is not None,
            decided=frozenset(name for name in self.watched if self._is_decided(name, now)),
            due=self._due(),
        )

    # ------------------------------------------------------------ what crosses which line
    def _looks(self, sight: Sight) -> Iterator[tuple[str, Crossed | None]]:
        """In order: a look at what fires sees what the looks before it found."""
        for rule in self._rules:
            crossed = None if sight.tables is None else self._crossing(rule, sight.tables, sight)
            yield rule.name, crossed
        for name, alert in self.watched.items():
            if name == AlertName.LADDER_EXHAUSTED:
                wrong = self._acting(sight)
            elif name in self._witness.looks:
                wrong = self._witness.looks[AlertName(name)](sight)
            else:
                continue
            yield name, None if wrong is None else _summarised(alert, wrong)

    def _crossing(self, rule: Rule, tables: Tables, sight: Sight) -> Crossed:
        first = rule.conditions[0].column
        return {
            (labels := _labels_of(row)): summarise(rule.summary, dict(labels), value * first.scale)
            for row in rows_of(tables, rule.table)
            if self._is_asked(rule, row, sight.now) and rule.holds(row)
            if (value := first.read(row)) is not None
        }

    def _is_asked(self, rule: Rule, row: Row, now: float) -> bool:
        if rule.table is Table.FAULTS:
            return self._witness.finishes(row.version, now)
        return rule.milestone is None or rule.milestone == _milestone_of(row)

    def _acting(self, sight: Sight) -> Wrong:
        """The versions for which an alert fires that Redline answers by degrading, or did a moment
        ago."""
        if sight.tables is None:
            self._acted_at.clear()
            return None
        version = Label.VERSION.value
        acting = {
            dict(labels)[version]: sight.now
            for name, found in self._alive.items()
            if self.watched[name].action in DEGRADING
            for labels, alive in found.items()
            if alive.standing.fires
        }
        known = {**self._acted_at, **acting}
        self._acted_at = {v: at for v, at in known.items() if sight.now - at <= self._pause_s}
        return tuple(((version, each),) for each in sorted(self._acted_at))

    # ------------------------------------------------------------ states
    def _advance(self, alert: Alert, crossed: Crossed | None, now: float, wall: float) -> None:
        if crossed is None:
            self._alive.pop(alert.name, None)
            self._since.pop(alert.name, None)
            return
        self._since.setdefault(alert.name, now)
        before = self._alive.get(alert.name, {})
        after = dict[Labels, _Alive]()
        for labels in {**before, **crossed}:
            known = before.get(labels)
            summary = crossed.get(labels, "" if known is None else known.summary)
            standing = advance(
                None if known is None else known.standing, labels in crossed,
                for_s=alert.for_s, keep_firing_s=alert.keep_firing_s, now=now, wall=wall,
            )  # fmt: skip
            if standing is not None:
                after[labels] = _Alive(standing, summary)
        self._alive[alert.name] = after

    def _is_decided(self, name: str, now: float) -> bool:
        since = self._since.get(name)
        return since is not None and now - since >= self.watched[name].for_s

    def _due(self) -> float | None:
        return min(
            (
                alive.standing.active_at + self.watched[name].for_s
                for name, found in self._alive.items()
                for alive in found.values()
                if not alive.standing.fires
            ),
            default=None,
        )

    def _shown(self, *, fires: bool) -> Iterator[Firing]:
        for name, found in self._alive.items():
            for labels, alive in found.items():
                if alive.standing.fires is fires:
                    yield _firing(self.watched[name], dict(labels), alive)


def _summarised(alert: Alert, wrong: tuple[Labels, ...]) -> Crossed:
    return {labels: summarise(alert.summary, dict(labels)) for labels in wrong}


def _milestone_of(row: Row) -> Milestone | None:
    return row.milestone if isinstance(row, LatencyRow) else None


def _labels_of(row: Row) -> Labels:
    version, milestone = (Label.VERSION.value, row.version), _milestone_of(row)
    return (version,) if milestone is None else (version, (Label.MILESTONE.value, milestone.value))


def _firing(alert: Alert, labels: dict[str, str], alive: _Alive) -> Firing:
    """Labelled as Prometheus would, so that both name the same firing."""
    standing = alive.standing
    given = {
        "alertname": alert.name,
        "severity": alert.severity.value,
        "action": alert.action.value,
    }
    table = {} if alert.table is None else {Label.TABLE.value: alert.table.value}
    return Firing(
        alert=alert.name,
        action=alert.action,
        version=labels.get(Label.VERSION.value),
        labels=labels | given | table,
        starts_at=standing.pending_at if standing.fired_at is None else standing.fired_at,
        summary=alive.summary,
        source=Source.EMBEDDED,
        runbook=runbook_of(alert),
    )
