"""The alert policy as data: what each alert means, when it fires and what Redline then does."""

import re
from dataclasses import dataclass
from enum import StrEnum

from alerts.promql import duration, gained, percent, select
from monitors import catalog, recorded
from monitors.cache_table import GB
from monitors.contract import MediaRung
from monitors.labels import Action, Milestone, Outcome, Role, Severity
from monitors.metric import Label, Table
from monitors.redlines import RedLines

RUNTIME_JOB, CONTROL_JOB = "redline-runtime", "redline-control"
_ANSWERS_TAKE = 10  # windows, at most: its first output is that much older than an answer's end


class AlertName(StrEnum):
    """Every alert Redline raises. Each has a page in `docs/runbooks`."""

    CACHE_BELOW_FLOOR = "RedlineCacheBelowFloor"
    LATENCY_DEGRADE = "RedlineLatencyDegrade"
    FAULT_RATE = "RedlineFaultRate"
    FIRST_PACKET_SLOW = "RedlineFirstPacketSlow"
    LADDER_EXHAUSTED = "RedlineLadderExhausted"
    NO_DATA = "RedlineNoData"
    NO_TRAFFIC = "RedlineNoTraffic"
    RESIDENT_DOWN = "RedlineResidentDown"
    DATA_PLANE_DOWN = "RedlineDataPlaneDown"
    CONTROL_PLANE_DOWN = "RedlineControlPlaneDown"
    ROLLBACK_INCOMPLETE = "RedlineRollbackIncomplete"
    JOURNAL_UNWRITABLE = "RedlineJournalUnwritable"
    WATCHDOG = "RedlineWatchdog"

    @property
    def slug(self) -> str:
        """The runbook's file name without `.md`: `redline-cache-below-floor`."""
        return slug(self.value)


def slug(alert: str) -> str:
    """`RedlineCacheBelowFloor` as a file name: `redline-cache-below-floor`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", alert).lower()


@dataclass(frozen=True)
class Alert:
    """One alert. `when` is the rule in words, `expr` the same in PromQL, held for `for_s`."""

    name: AlertName
    when: str
    expr: str
    for_s: float
    severity: Severity
    action: Action
    summary: str  # a Prometheus template: $labels and $value
    table: Table | None = None


def policy(lines: RedLines) -> tuple[Alert, ...]:
    """All alerts at these red lines. `RedlineLadderExhausted` reads the ones before it."""
    return (
        _cache_below_floor(lines),
        _latency_degrade(lines),
        _fault_rate(lines),
        _first_packet_slow(lines),
        _ladder_exhausted(lines),
        _no_data(lines),
        _no_traffic(lines),
        _resident_down(lines),
        _plane_down(AlertName.DATA_PLANE_DOWN, "data plane", RUNTIME_JOB, lines),
        _plane_down(AlertName.CONTROL_PLANE_DOWN, "control plane", CONTROL_JOB, lines),
        _rollback_incomplete(),
        _journal_unwritable(lines),
        _watchdog(),
    )


# ---------------------------------------------------------------- the red lines
def _cache_below_floor(lines: RedLines) -> Alert:
    """S4.1. Both conditions at once: a cold or idle pool may miss as long as memory is free."""
    cache = lines.cache
    both = (
        f"below {percent(cache.hit_rate_floor)} with more than {cache.gpu_mem_gb:g} GB of KV live"
    )
    return Alert(
        name=AlertName.CACHE_BELOW_FLOOR,
        when=f"The cache hit rate of a version is {both}.",
        expr=f"{recorded.HIT_RATE.name} < {cache.hit_rate_floor}\n"
        f"and {recorded.LIVE_BYTES_BY_VERSION.name} > {cache.gpu_mem_gb} * {GB:g}",
        for_s=cache.hold_s,
        severity=Severity.ACTION,
        action=Action.QUANTISE_KV,
        summary="Cache hit rate of {{ $labels.version }} is {{ $value | humanizePercentage }}, "
        + both,
        table=Table.CACHE,
    )


def _latency_degrade(lines: RedLines) -> Alert:
    """S4.2. At once, and exact: counts over the line, never an interpolated quantile."""
    latency = lines.latency
    over = f"past {latency.degrade_s * 1000:.0f} ms"
    return Alert(
        name=AlertName.LATENCY_DEGRADE,
        when=f"Of at least {latency.min_count} requests in {duration(latency.window_s)}, more than "
        f"{percent(latency.degrade_exceedance)} are {over} to one first output, given or not.",
        expr=f"{recorded.OVERDUE_SHARE.name} > {latency.degrade_exceedance}\n"
        f"and {recorded.FIRST_OUTPUT_REQUESTS.name} >= {latency.min_count}",
        for_s=0.0,
        severity=Severity.ACTION,
        action=Action.DEGRADE_MEDIA,
        summary="{{ $value | humanizePercentage }} of the requests on {{ $labels.version }} are "
        + over
        + " to {{ $labels.milestone }}",
        table=Table.LATENCY,
    )


def _fault_rate(lines: RedLines) -> Alert:
    """S4.3. The ring moves with traffic only, so what it holds is news only while some comes: what
    goes into the ring, not what left before it reached the version."""
    faults = lines.faults
    finished = gained(select(catalog.SERVED_REQUESTS), faults.recent_s, Label.VERSION)
    return Alert(
        name=AlertName.FAULT_RATE,
        when=f"Of the last {faults.window_requests:,} finished requests of a version (at least "
        f"{faults.min_count:,}), more than {percent(faults.rate)} are faulted, and "
        "requests still finish.",
        expr=f"{recorded.FAULT_RATE.name} > {faults.rate}\n"
        f"and sum by ({Label.VERSION}) ({select(catalog.FAULT_WINDOW_REQUESTS)})"
        f" >= {faults.min_count}\n"
        f"and {finished} > 0",
        for_s=0.0,
        severity=Severity.PAGE,
        action=Action.ROLL_BACK,
        summary="{{ $value | humanizePercentage }} of the last requests on {{ $labels.version }} "
        f"are faulted, over {percent(faults.rate)}",
        table=Table.FAULTS,
    )


def _first_packet_slow(lines: RedLines) -> Alert:
    """S4.5, a p95 line. Held for a window of its own, so that the ladder may mend it first."""
    latency = lines.latency
    audio = f'{{{Label.MILESTONE}="{Milestone.FIRST_AUDIO_PACKET}"}}'
    line = f"{latency.first_packet_s * 1000:.0f} ms"
    return Alert(
        name=AlertName.FIRST_PACKET_SLOW,
        when=f"Of at least {latency.min_count} spoken answers in {duration(latency.window_s)}, "
        f"more than {percent(latency.first_packet_exceedance)} had no first packet within {line}.",
        expr=f"{recorded.SLOW_SHARE.name}{audio} > {latency.first_packet_exceedance}\n"
        f"and {recorded.FIRST_OUTPUT_REQUESTS.name}{audio} >= {latency.min_count}",
        for_s=latency.window_s,
        severity=Severity.PAGE,
        action=Action.NONE,
        summary="{{ $value | humanizePercentage }} of the spoken answers of {{ $labels.version }} "
        f"had no first packet within {line}",
        table=Table.LATENCY,
    )


def _ladder_exhausted(lines: RedLines) -> Alert:
    """An alert that only acts wakes nobody: somebody must be told when acting was no help."""
    acting = f'ALERTS{{alertstate="firing",severity="{Severity.ACTION}"}}'
    return Alert(
        name=AlertName.LADDER_EXHAUSTED,
        when="An alert that Redline answers by degrading still fires after every rung of the "
        "ladder had its dwell.",
        expr=f"max by ({Label.VERSION}) ({acting})",
        for_s=lines.ladder.dwell_s * len(MediaRung),
        severity=Severity.PAGE,
        action=Action.NONE,
        summary="Degrading {{ $labels.version }} has not brought it back inside its red line",
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
        _ANSWERS_TAKE * lines.latency.window_s,
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
        f"{duration(_ANSWERS_TAKE * lines.latency.window_s)}, or there is no resident at all.",
        expr="\nor ".join(missing),
        for_s=lines.rollout.evidence_stale_s,
        severity=Severity.TICKET,
        action=Action.NONE,
        summary="No data in table {{ $labels.table }} {{ with $labels.version }}of {{ . }}"
        "{{ end }}: its red line is not watched",
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
    )
