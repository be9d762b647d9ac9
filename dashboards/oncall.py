"""The on-call dashboard: is it broken, what do the three tables say, what did Redline do."""

from collections.abc import Mapping

from grafana_foundation_sdk.builders.common import TableSortByFieldState
from grafana_foundation_sdk.models import dashboard

from dashboards.budgets import budgets
from dashboards.page import Row, cell_variables, logs_variable, page, version_variable
from dashboards.panels import (
    BYTES,
    GREEN,
    NATS,
    PLAIN,
    RED,
    SECONDS,
    SHARE,
    SINCE,
    Column,
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
    rows_by,
    rung_styles,
    states,
)
from dashboards.rollout import phases, pool_epochs, proof, rollbacks, weights
from monitors import catalog, recorded
from monitors.contract import Admission, KvRung, MediaRung, Shed
from monitors.labels import Mark, Milestone, Severity
from monitors.metric import Metric
from monitors.recorded import Recorded
from monitors.redlines import RedLines

UID = "redline-oncall"


def build(lines: RedLines, others: Mapping[str, tuple[float, ...]]) -> dashboard.Dashboard:
    """The page that whoever is woken opens first. `others`: as `dashboards.build.build_all`."""
    return page(
        UID,
        "Redline: on call",
        "Is it broken, what do the three tables say, and what has Redline done about it.",
        [
            Row("Is it broken?", [*worst(lines, others), alerts(), who_serves()]),
            Row(
                "How fast are budgets spent, who looks, is there a way back?",
                [budgets(lines), evaluator(), way_back()],
            ),
            Row("Three tables", [latency_table(lines), fault_table(lines), cache_table(lines)]),
            Row(
                "What Redline did",
                [ladder(), phases(), weights(width=8), pool_epochs(), rollbacks(), proof()],
            ),
            Row("First outputs over time", [p99(lines), first_packets(lines)]),
            Row("Logs", [warnings()]),
        ],
        [logs_variable(), version_variable(), *cell_variables()],
    )


# ---------------------------------------------------------------- is it broken
# This row looks at everything: a choice made below must not hide a breach.
def worst(lines: RedLines, others: Mapping[str, tuple[float, ...]]) -> list[Panel]:
    """The worst value of each red line over all versions."""

    def also(name: str) -> tuple[float, ...]:
        return others.get(name, ())

    cache, latency, faults = lines.cache, lines.latency, lines.faults
    first_packet = f'milestone="{Milestone.FIRST_AUDIO_PACKET}"'
    return [
        figure(
            "Worst cache hit rate",
            f"Below {cache.hit_rate_floor:.0%} with live KV memory above {cache.gpu_mem_gb:g} GB "
            f"for {cache.hold_s:g} s, the pool is quantised (S4.1).",
            f"min({everything(recorded.HIT_RATE)})",
            SHARE,
            above(cache.hit_rate_floor, *also("cache.hit_rate_floor")),
        ),
        figure(
            "Most live KV memory",
            "Bytes of live device pages of the fullest pool; the other half of the cache rule.",
            f"max({everything(recorded.LIVE_BYTES_BY_VERSION)})",
            BYTES,
            below(cache.gpu_mem_gb * 1e9, *(gb * 1e9 for gb in also("cache.gpu_mem_gb"))),
        ),
        figure(
            f"First packets over {latency.first_packet_s * 1000:.0f} ms",
            f"The worst version's share; {latency.first_packet_exceedance:.0%} may be (S4.5).",
            f"max({everything(recorded.SLOW_SHARE, first_packet)})",
            SHARE,
            below(latency.first_packet_exceedance, *also("latency.first_packet_exceedance")),
        ),
        figure(
            f"First outputs over {latency.degrade_s * 1000:.0f} ms",
            f"The worst milestone's share; above {latency.degrade_exceedance:.0%} media degrade "
            "(S4.2).",
            f"max({everything(recorded.OVERDUE_SHARE)})",
            SHARE,
            below(latency.degrade_exceedance, *also("latency.degrade_exceedance")),
        ),
        figure(
            "Worst fault rate",
            f"Of the last {faults.window_requests:,} finished requests; above {faults.rate:.1%} "
            "the version is rolled back (S4.3).",
            f"max({everything(recorded.FAULT_RATE)})",
            SHARE,
            below(faults.rate, *also("faults.rate")),
        ),
        figure(
            "Versions ready",
            "Versions whose engine takes requests now.",
            f"sum({everything(catalog.RESIDENT_UP)})",
            PLAIN,
        ),
    ]


def alerts() -> Panel:
    heartbeat = f'severity!="{Severity.HEARTBEAT}"'
    firing = f'ALERTS{{alertstate="firing",{heartbeat}}}'
    since = f"ALERTS_FOR_STATE{{{heartbeat}}} * 1000 and ignoring (alertstate) {firing}"
    keys = {"alertname": "alert", "severity": "severity", "version": "version"}
    panel = rows_by(
        "Firing alerts",
        "What fires now, heartbeats apart. Each alert has a runbook of its name.",
        keys,
        [Column("since", f"max by ({', '.join(keys)}) ({since})", SINCE)],
        height=6,
    )
    any_version = dashboard.DynamicConfigValue(id_val="noValue", value="any")
    return panel.no_value("nothing fires").override_by_name("version", [any_version])


def who_serves() -> Panel:
    keys = {
        "version": "version",
        "role": "role",
        "resident": "resident",
        "weights_digest": "weights digest",
        "epoch": "pool epoch",
        "rung": "rung",
    }
    info = f"max by ({', '.join(keys)}) ({everything(catalog.RESIDENT_INFO, suffix='_info')})"
    weight = f"max by (version) ({everything(catalog.WEIGHT)})"
    ready = f"max by (version) ({everything(catalog.RESIDENT_UP)})"
    return rows_by(
        "Who serves",
        "Each resident version, its role, and its share of new sessions.",
        keys,
        [
            Column("weight", f"{info} * on (version) group_left () {weight}", SHARE, 0),
            Column("ready", ready, PLAIN, names=names({0: ("no", RED), 1: ("yes", GREEN)})),
            Column("in flight", f"max by (version) ({everything(catalog.IN_FLIGHT)})", PLAIN, 0),
        ],
        height=6,
    )


# ---------------------------------------------------------------- who looks, and who is there
def evaluator() -> Panel:
    return figure(
        "Rules evaluated by",
        "The control plane evaluates them itself while no Watchdog comes. Then nobody is paged by "
        "Alertmanager: see the runbook of RedlineWatchdog.",
        f"max({everything(catalog.RULES_EMBEDDED)})",
        PLAIN,
        width=6,
        height=6,
    ).mappings(names({0: ("Prometheus", GREEN), 1: ("the control plane", RED)}))


def way_back() -> Panel:
    return (
        figure(
            "Way back",
            "While a rollout has given everybody to a version that is still judged: whether the "
            "one before it can serve. RedlineNoWayBack wakes somebody where it cannot.",
            f"min({everything(catalog.WAY_BACK)})",
            PLAIN,
            width=6,
            height=6,
        )
        .mappings(names({0: ("NONE", RED), 1: ("ready", GREEN)}))
        .no_value("not needed")
    )


# ---------------------------------------------------------------- the three tables
def latency_table(lines: RedLines) -> Panel:
    latency = lines.latency
    by = "version, milestone"
    limits = below(latency.degrade_s, latency.first_packet_s)
    quantiles = {
        "p50": recorded.FIRST_OUTPUT_P50,
        "p95": recorded.FIRST_OUTPUT_P95,
        "p99": recorded.FIRST_OUTPUT_P99,
    }
    return rows_by(
        "Table 2: latency of first outputs",
        "Quantiles are interpolated, to look at. The rule is exact: the share over "
        f"{latency.degrade_s * 1000:.0f} ms, above {latency.degrade_exceedance:.0%} media degrade "
        "(S4.2).",
        {"milestone": "first output", "version": "version"},
        [
            *(
                Column(name, f"max by ({by}) ({chosen(series)})", SECONDS, 3, limits)
                for name, series in quantiles.items()
            ),
            Column(
                f"over {latency.degrade_s * 1000:.0f} ms",
                f"max by ({by}) ({chosen(recorded.OVERDUE_SHARE)})",
                SHARE,
                2,
                below(latency.degrade_exceedance),
            ),
            Column(
                f"over {latency.first_packet_s * 1000:.0f} ms",
                f"max by ({by}) ({chosen(recorded.SLOW_SHARE)})",
                SHARE,
                2,
            ),
            Column(
                "requests",
                f"max by ({by}) ({chosen(recorded.FIRST_OUTPUT_REQUESTS)})",
                PLAIN,
                0,
            ),
        ],
    )


def fault_table(lines: RedLines) -> Panel:
    marks = {"hard": Mark.HARD, "soft": Mark.SOFT, "of the input": Mark.INPUT_ONLY}
    return rows_by(
        "Table 3: faults",
        f"Share of the last {lines.faults.window_requests:,} finished requests with a hard fault, "
        "between the ends of its 95 % interval; any fault, or a failed or lost request, above "
        f"{lines.faults.rate:.1%} rolls the version back (S4.3). Soft ones, and those that came in "
        "with the input, are only shown.",
        {"fault": "fault", "version": "version"},
        [
            Column(
                "rate",
                _any_and_each(recorded.FAULT_RATE, recorded.FAULT_RATE_BY_FAULT),
                SHARE,
                2,
                below(lines.faults.rate),
            ),
            *(
                Column(
                    heading,
                    _any_and_each(
                        catalog.FAULT_WINDOW_BOUND,
                        catalog.FAULT_WINDOW_BOUND_BY_FAULT,
                        f'bound="{end}"',
                    ),
                    SHARE,
                    2,
                )
                for heading, end in (("from", "low"), ("to", "high"))
            ),
            *(
                Column(
                    heading,
                    _any_and_each(
                        catalog.FAULT_WINDOW_FAULTED,
                        catalog.FAULT_WINDOW_BY_FAULT,
                        f'mark="{mark}"',
                    ),
                    PLAIN,
                    0,
                )
                for heading, mark in marks.items()
            ),
        ],
    )


def _any_and_each(any_fault: Metric | Recorded, each: Metric | Recorded, *matchers: str) -> str:
    """One row of any fault, and one of each."""
    of_any = f'label_replace({chosen(any_fault, *matchers)}, "fault", "any", "", "")'
    return f"max by (version, fault) ({of_any} or {chosen(each, *matchers)})"


def cache_table(lines: RedLines) -> Panel:
    by = "layer_id, modality, version"
    floor = lines.cache.hit_rate_floor
    panel = rows_by(
        "Table 1: cache",
        f"Each layer and modality. The rule takes the weighted hit rate ({floor:.0%}) and the sum "
        f"of the memory ({lines.cache.gpu_mem_gb:g} GB) of a version together (S4.1).",
        {"layer_id": "layer_id", "modality": "modal", "version": "version"},
        [
            Column("entropy_th", f"max by ({by}) ({chosen(catalog.ENTROPY_THRESHOLD)})", NATS, 2),
            Column(
                "hit_rate",
                f"max by ({by}) ({chosen(recorded.HIT_RATE_BY_CELL)})",
                SHARE,
                1,
                above(floor, lines.cache.pressure_hit_rate),
            ),
            Column("gpu_mem_gb", f"sum by ({by}) ({chosen(catalog.LIVE_BYTES)})", BYTES),
        ],
        width=24,
        height=10,
    )
    return panel.sort_by([TableSortByFieldState().display_name("hit_rate").desc(False)])


# ---------------------------------------------------------------- what Redline did
def ladder() -> Panel:
    """One bar for each part of each version's level; a part's numbers have names of their own."""
    panel = states(
        "Ladder level",
        "Each version's fidelity, of its sessions that have least; green is full. Media follow the "
        "latency line, kv the cache line.",
        [over_time(f"max by (version, part) ({chosen(catalog.LEVEL)})", "{{part}} {{version}}")],
    )
    parts = {"media": MediaRung, "kv": KvRung, "shed": Shed, "admission": Admission}
    for part, rungs in parts.items():
        panel.override_by_regexp(f"/^{part} /", rung_styles(rungs))
    return panel


# ---------------------------------------------------------------- over time, and logs
def p99(lines: RedLines) -> Panel:
    return _quantile_over_time(lines, 0.99, "p99 of each first output")


def first_packets(lines: RedLines) -> Panel:
    first_packet = f'milestone="{Milestone.FIRST_AUDIO_PACKET}"'
    return _quantile_over_time(lines, 0.95, "p95 of the first audio packet", first_packet)


def _quantile_over_time(lines: RedLines, q: float, title: str, *matchers: str) -> Panel:
    # From the buckets, not from the recorded quantile: exemplars hang on the buckets.
    buckets = chosen(catalog.FIRST_OUTPUT, *matchers, suffix="_bucket")
    rate = f"sum by (le, version, milestone) (rate({buckets}[$__rate_interval]))"
    latency = lines.latency
    return curves(
        title,
        f"Dashed: {latency.first_packet_s * 1000:.0f} ms, the first packet's p95 line, and "
        f"{latency.degrade_s * 1000:.0f} ms, the degrade line. A dot is one request: it opens its "
        "trace.",
        [
            over_time(
                f"histogram_quantile({q}, {rate})", "{{milestone}} {{version}}", exemplars=True
            )
        ],
        SECONDS,
        below(latency.degrade_s, latency.first_packet_s),
    )


def warnings() -> Panel:
    return log_lines(
        "Warnings and errors",
        "Of both planes. A line with a trace id opens its trace.",
        '{job="redline", level=~"warning|error|critical"} | json',
    )
