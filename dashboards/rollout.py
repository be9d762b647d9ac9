"""The rollout dashboard: where it is, whether A is worse than B, and what a rollback proved."""

from grafana_foundation_sdk.models import dashboard

from dashboards.page import Row, logs_variable, page, version_variable
from dashboards.panels import (
    BLUE,
    GREEN,
    PLAIN,
    RED,
    SHARE,
    Panel,
    above,
    below,
    chosen,
    curves,
    everything,
    figure,
    log_lines,
    names,
    over_time,
    states,
)
from monitors import catalog, recorded
from monitors.labels import Milestone
from monitors.redlines import RedLines

UID = "redline-rollout"


def build(lines: RedLines) -> dashboard.Dashboard:
    """The page of whoever brings a new version to traffic (S4.4)."""
    return page(
        UID,
        "Redline: rollout",
        "Where the rollout is, whether A is worse than B, and what a rollback has proved.",
        [
            Row("Where is it?", [phases(), weights()]),
            Row("Is A worse than B?", [hit_rates(lines), slow_packets(lines), overdue(lines)]),
            Row("On how much evidence?", [faults(lines), ring(), up()]),
            Row("What did a rollback prove?", [rollbacks(), proof(), pool_epochs(), fences()]),
            Row("In its own words", [control_log()]),
        ],
        [logs_variable(), version_variable()],
    )


# ---------------------------------------------------------------- where is it
def phases() -> Panel:
    return states(
        "Rollout phase",
        "A bar while the rollout is in that phase. No bar: the control plane is not scraped.",
        [over_time(f"max by (phase) ({everything(catalog.ROLLOUT_PHASE)}) == 1", "{{phase}}")],
    ).mappings(names({1: ("in this phase", BLUE)}))


def weights(*, width: int = 12) -> Panel:
    return curves(
        "Who gets new sessions",
        "Share of the new sessions by version. A's share is a lease: it falls to 0 by itself when "
        "the control plane stops renewing it.",
        [over_time(f"max by (version) ({chosen(catalog.WEIGHT)})", "{{version}}")],
        SHARE,
        width=width,
        height=7,
    ).max(1)


# ---------------------------------------------------------------- is A worse than B
def hit_rates(lines: RedLines) -> Panel:
    floor = lines.cache.hit_rate_floor
    return curves(
        "Cache hit rate",
        f"Red line: {floor:.0%} (S4.5). A cold pool starts low; a canary's warm-up is left out of "
        "its verdict.",
        [over_time(f"max by (version) ({chosen(recorded.HIT_RATE)})", "{{version}}")],
        SHARE,
        above(floor),
        width=8,
    ).max(1)


def slow_packets(lines: RedLines) -> Panel:
    latency = lines.latency
    first_packet = f'milestone="{Milestone.FIRST_AUDIO_PACKET}"'
    expr = f"max by (version) ({chosen(recorded.SLOW_SHARE, first_packet)})"
    return curves(
        f"First packets over {latency.first_packet_s * 1000:.0f} ms",
        f"Red line: {latency.first_packet_exceedance:.0%} of the first audio packets may be later "
        "(S4.5).",
        [over_time(expr, "{{version}}")],
        SHARE,
        below(latency.first_packet_exceedance),
        width=8,
    )


def overdue(lines: RedLines) -> Panel:
    latency = lines.latency
    expr = f"max by (version, milestone) ({chosen(recorded.OVERDUE_SHARE)})"
    return curves(
        f"First outputs over {latency.degrade_s * 1000:.0f} ms",
        f"Red line: {latency.degrade_exceedance:.0%} of any first output may be later (S4.2). A "
        "request that hangs counts when it crosses the line.",
        [over_time(expr, "{{milestone}} {{version}}")],
        SHARE,
        below(latency.degrade_exceedance),
        width=8,
    )


# ---------------------------------------------------------------- on how much evidence
def faults(lines: RedLines) -> Panel:
    return curves(
        "Fault rate",
        f"Red line: {lines.faults.rate:.1%} of the last {lines.faults.window_requests:,} finished "
        "requests (S4.3). Faults that came in with the input are left out.",
        [over_time(f"max by (version) ({chosen(recorded.FAULT_RATE)})", "{{version}}")],
        SHARE,
        below(lines.faults.rate),
        width=8,
    )


def ring() -> Panel:
    expr = f"max by (version) ({chosen(catalog.FAULT_WINDOW_REQUESTS)})"
    return curves(
        "Requests behind the fault rate",
        "Finished requests in each version's ring. With few, a rate says little.",
        [over_time(expr, "{{version}}")],
        PLAIN,
        width=8,
    )


def up() -> Panel:
    return states(
        "Residents ready",
        "Whether each version's engine takes requests.",
        [over_time(f"max by (version) ({chosen(catalog.RESIDENT_UP)})", "{{version}}")],
        width=8,
        height=8,
    ).mappings(names({0: ("not ready", RED), 1: ("ready", GREEN)}))


# ---------------------------------------------------------------- what a rollback proved
def rollbacks() -> Panel:
    return figure(
        "Rollbacks",
        "Rollbacks that the control plane began since it started.",
        f"max({everything(catalog.ROLLBACKS)})",
        PLAIN,
        height=7,
    )


def proof() -> Panel:
    return figure(
        "Rollback proof",
        "Incomplete: a rollback has not proved that A is out of traffic and its pool is empty.",
        f"max({everything(catalog.ROLLBACK_INCOMPLETE)})",
        PLAIN,
        height=7,
    ).mappings(names({0: ("nothing open", GREEN), 1: ("INCOMPLETE", RED)}))


def pool_epochs() -> Panel:
    return curves(
        "Pool epochs",
        "A step up is a flush: nothing cached before it can be found after it.",
        [over_time(f"max by (version) ({chosen(catalog.POOL_EPOCH)})", "{{version}}")],
        PLAIN,
        width=8,
        height=7,
    )


def fences() -> Panel:
    return curves(
        "Route and leader epochs",
        "Each change of route and each change of leader raises one; older orders are refused.",
        [
            over_time(f"max({everything(catalog.ROUTE_EPOCH)})", "route", "A"),
            over_time(f"max({everything(catalog.LEADER_EPOCH)})", "leader", "B"),
        ],
        PLAIN,
        width=8,
        height=7,
    )


def control_log() -> Panel:
    return log_lines(
        "Control plane",
        "Decisions, orders and receipts as the control plane logs them. The journal has them all: "
        "`redline rollout log`.",
        '{job="redline", plane="control"} | json',
    )
