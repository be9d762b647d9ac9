"""The rules over tables at the red lines, until the policy gives them."""

from alerts.columns import column
from alerts.evaluator import Watched
from alerts.policy import AlertName, policy
from alerts.rule import Comparison, Condition, Rule
from alerts.witness import PROMETHEUS_ONLY
from monitors.labels import Milestone
from monitors.redlines import RedLines


def table_rules(lines: RedLines) -> tuple[Rule, ...]:
    cache, latency, faults = lines.cache, lines.latency, lines.faults
    asked = {
        AlertName.CACHE_BELOW_FLOOR: (
            None,
            None,
            (("hit_rate", Comparison.BELOW, cache.hit_rate_floor),
             ("gpu_mem_gb", Comparison.ABOVE, cache.gpu_mem_gb)),
        ),
        AlertName.LATENCY_DEGRADE: (
            latency.min_count,
            None,
            (("over_share", Comparison.ABOVE, latency.degrade_exceedance),),
        ),
        AlertName.FAULT_RATE: (
            faults.min_count,
            None,
            (("rate", Comparison.ABOVE, faults.rate),),
        ),
        AlertName.FIRST_PACKET_SLOW: (
            latency.min_count,
            Milestone.FIRST_AUDIO_PACKET,
            (("slow_share", Comparison.ABOVE, latency.first_packet_exceedance),),
        ),
    }  # fmt: skip
    rules: list[Rule] = []
    for alert in policy(lines):
        if alert.name in asked and alert.table is not None:
            min_count, milestone, conditions = asked[alert.name]
            rules.append(
                Rule(
                    name=alert.name.value, table=alert.table,
                    conditions=tuple(
                        Condition(column(alert.table, c), k, x) for c, k, x in conditions
                    ),
                    min_count=min_count, milestone=milestone, for_s=alert.for_s, keep_firing_s=0.0,
                    severity=alert.severity, action=alert.action, runbook=alert.name.slug,
                    summary=alert.summary,
                )
            )  # fmt: skip
    return tuple(rules)


def machinery(lines: RedLines) -> tuple[Watched, ...]:
    return tuple(
        Watched(a.name.value, a.for_s, 0.0, a.severity, a.action, a.summary)
        for a in policy(lines)
        if a.table is None and a.name not in PROMETHEUS_ONLY
    )
