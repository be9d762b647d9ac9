"""Alerts about the machinery: no data, nothing serving, nobody watching, help that did not help.

They are code, not YAML: each has a shape of its own. Their durations are red lines.
"""

from alerts.alert import Alert
from alerts.names import AlertName
from alerts.promql import duration, gained, select
from alerts.rule import DEGRADING
from monitors import catalog
from monitors.contract import MediaRung
from monitors.labels import Action, Judgement, Outcome, Role, Severity
from monitors.metric import Label, Table
from monitors.redlines import RedLines

RUNTIME_JOB, CONTROL_JOB = "redline-runtime", "redline-control"
ANSWERS_TAKE = 10  # windows, at most: its first output is that much older than an answer's end


def machinery(lines: RedLines) -> tuple[Alert, ...]:
    """These alerts at these red lines. `RedlineLadderExhausted` reads the alerts of the rules."""
    return (
        _ladder_exhausted(lines),
        _no_data(lines),
        _no_traffic(lines),
        _detector_broken(lines),
        _resident_down(lines),
        _plane_down(AlertName.DATA_PLANE_DOWN, "data plane", RUNTIME_JOB, lines),
        _plane_down(AlertName.CONTROL_PLANE_DOWN, "control plane", CONTROL_JOB, lines),
        _no_way_back(lines),
        _rollback_incomplete(),
        _journal_unwritable(lines),
        _watchdog(),
    )


def _ladder_exhausted(lines: RedLines) -> Alert:
    """An alert that only acts wakes nobody: somebody must be told when acting was no help, and
    what is left is to take fewer requests.

    One that ends and fires again within a window of its table goes on here: a breach that hovers
    about its line would else begin its `for` anew at each pause, and never be told.
    """
    firing = f'ALERTS{{alertstate="firing",action=~"{"|".join(DEGRADING)}"}}'
    pause = duration(lines.latency.window_s)
    return Alert(
        name=AlertName.LADDER_EXHAUSTED,
        when="An alert that Redline answers by degrading media or KV still fires after every rung "
        f"of them had its dwell; pauses of up to {pause} are none.",
        expr=f"max by ({Label.VERSION}) (max_over_time({firing}[{pause}]))",
        for_s=lines.ladder.dwell_s * len(MediaRung),
        severity=Severity.PAGE,
        action=Action.LIMIT_ADMISSION,
        summary="Degrading {{ $labels.version }} has not brought it back inside its red line",
        runbook=AlertName.LADDER_EXHAUSTED.page,
        window_s=lines.latency.window_s,
    )


# ---------------------------------------------------------------- no data is not good news
def _no_data(lines: RedLines) -> Alert:
    """Table 3 has no part: an answer is counted there in the same act as the answer itself."""
    ready = f"max by ({Label.VERSION}) ({select(catalog.RESIDENT_UP)}) == 1"
    answered = gained(
        select(catalog.REQUESTS, f'{Label.OUTCOME}="{Outcome.OK}"'),
        lines.latency.window_s,
        Label.VERSION,
    )
    came = gained(
        select(catalog.FIRST_OUTPUT, suffix="_count"),
        ANSWERS_TAKE * lines.latency.window_s,
        Label.VERSION,
    )
    able = select(catalog.SHOWS_TABLE, f'{Label.TABLE}="{Table.CACHE}"')
    missing = (
        _without(ready, f"{select(catalog.LIVE_BYTES)} or {able} == 0", Table.CACHE),
        _without(f"{answered} > 0", f"{came} > 0", Table.LATENCY),
        f'label_replace(absent({select(catalog.RESIDENT_UP)}), "table", "all", "", "")',
    )
    return Alert(
        name=AlertName.NO_DATA,
        when="A ready resident has no cache table though its engine can show one, or a version "
        "answers requests and has measured no first output for "
        f"{duration(ANSWERS_TAKE * lines.latency.window_s)}, or there is no resident at all.",
        expr="\nor ".join(missing),
        for_s=lines.rollout.evidence_stale_s,
        severity=Severity.TICKET,
        action=Action.NONE,
        summary="No data in table {{ $labels.table }} {{ with $labels.version }}of {{ . }}"
        "{{ end }}: its red line is not watched",
        runbook=AlertName.NO_DATA.page,
        window_s=ANSWERS_TAKE * lines.latency.window_s,
    )


def _without(present: str, series: str, table: Table) -> str:
    lacking = f"({present}) unless on ({Label.VERSION}) ({series})"
    return f'label_replace({lacking}, "table", "{table}", "", "")'


def _no_traffic(lines: RedLines) -> Alert:
    answered = select(catalog.REQUESTS, f'{Label.OUTCOME}="{Outcome.OK}"')
    gain = gained(answered, lines.latency.window_s, Label.VERSION)
    return Alert(
        name=AlertName.NO_TRAFFIC,
        when="A version that new sessions are sent to has not answered a single request.",
        expr=f"max by ({Label.VERSION}) ({select(catalog.WEIGHT)}) > 0\n"
        f"unless on ({Label.VERSION}) {gain} > 0",
        for_s=lines.rollout.bake_s,
        severity=Severity.TICKET,
        action=Action.NONE,
        summary="No request has been answered on {{ $labels.version }}",
        runbook=AlertName.NO_TRAFFIC.page,
        window_s=lines.latency.window_s,
    )


def _detector_broken(lines: RedLines) -> Alert:
    """A detector that breaks fails no request, and the faults it looks for look like health."""
    failed = select(catalog.DETECTOR_JUDGEMENTS, f'{Label.JUDGEMENT}="{Judgement.FAILED}"')
    window_s = ANSWERS_TAKE * lines.latency.window_s
    return Alert(
        name=AlertName.DETECTOR_BROKEN,
        when=f"A detector broke on something it examined in the last {duration(window_s)}: what "
        "it looks for goes unseen.",
        expr=f"{gained(failed, window_s, Label.DETECTOR)} > 0",
        for_s=0.0,
        severity=Severity.TICKET,
        action=Action.NONE,
        summary="The detector {{ $labels.detector }} breaks: what it looks for goes unseen",
        runbook=AlertName.DETECTOR_BROKEN.page,
        window_s=window_s,
    )


# ---------------------------------------------------------------- the machinery itself
def _resident_down(lines: RedLines) -> Alert:
    """A resident that is loading has no weight yet; the stable one is missed at any weight."""
    stable = select(catalog.RESIDENT_INFO, f'{Label.ROLE}="{Role.STABLE}"', suffix="_info")
    return Alert(
        name=AlertName.RESIDENT_DOWN,
        when="The stable resident, or one that new sessions are sent to, is not ready.",
        expr=f"max by ({Label.VERSION}) ({select(catalog.RESIDENT_UP)}) == 0\n"
        f"and on ({Label.VERSION}) ({select(catalog.WEIGHT)} > 0 or {stable})",
        for_s=lines.alerts.down_s,
        severity=Severity.PAGE,
        action=Action.NONE,
        summary="The resident of {{ $labels.version }} is not ready and should serve",
        runbook=AlertName.RESIDENT_DOWN.page,
    )


def _plane_down(name: AlertName, plane: str, job: str, lines: RedLines) -> Alert:
    up = f'up{{job="{job}"}}'
    return Alert(
        name=name,
        when=f"Prometheus cannot scrape the {plane}, or does not know it.",
        expr=f"{up} == 0\nor absent({up})",
        for_s=lines.alerts.down_s,
        severity=Severity.PAGE,
        action=Action.NONE,
        summary=f"The {plane} does not answer {{{{ with $labels.instance }}}}at {{{{ . }}}}"
        "{{ end }}",
        runbook=name.page,
    )


def _no_way_back(lines: RedLines) -> Alert:
    """Its weight is 0 and its role the canary's, so that it is no resident that is missed."""
    return Alert(
        name=AlertName.NO_WAY_BACK,
        when="A rollout has given everybody to a version that is still judged, and the one before "
        "it, which a rollback would give everybody, cannot serve.",
        expr=f"{select(catalog.WAY_BACK)} == 0",
        for_s=lines.alerts.down_s,
        severity=Severity.PAGE,
        action=Action.NONE,
        summary="There is no way back: a rollback now would leave nobody to serve",
        runbook=AlertName.NO_WAY_BACK.page,
    )


def _rollback_incomplete() -> Alert:
    return Alert(
        name=AlertName.ROLLBACK_INCOMPLETE,
        when="A rollback could not be proved complete.",
        expr=f"{select(catalog.ROLLBACK_INCOMPLETE)} == 1",
        for_s=0.0,
        severity=Severity.PAGE,
        action=Action.NONE,
        summary="A rollback is not proved complete: state of the bad version may survive",
        runbook=AlertName.ROLLBACK_INCOMPLETE.page,
    )


def _journal_unwritable(lines: RedLines) -> Alert:
    return Alert(
        name=AlertName.JOURNAL_UNWRITABLE,
        when="The control plane cannot write its journal: only moves toward the stable version are "
        "made, and nobody can take over from a leader that dies.",
        expr=f"{select(catalog.JOURNAL_WRITABLE)} == 0",
        for_s=lines.alerts.down_s,
        severity=Severity.PAGE,
        action=Action.NONE,
        summary="The control plane's journal cannot be written: its disk is full or read-only",
        runbook=AlertName.JOURNAL_UNWRITABLE.page,
    )


def _watchdog() -> Alert:
    return Alert(
        name=AlertName.WATCHDOG,
        when="Always: its silence is the alarm.",
        expr="vector(1)",
        for_s=0.0,
        severity=Severity.HEARTBEAT,
        action=Action.NONE,
        summary="Prometheus and Alertmanager are alive",
        runbook=AlertName.WATCHDOG.page,
    )
