"""What panels turn red at: the limits of the rules themselves, in the place of their red lines."""

from alerts.policy import Policy
from monitors.metric import Table
from monitors.redlines import RedLines, parse

# The red line that a panel draws for each column.
_DRAWN = {
    (Table.CACHE, "hit_rate"): ("cache", "hit_rate_floor"),
    (Table.CACHE, "gpu_mem_gb"): ("cache", "gpu_mem_gb"),
    (Table.LATENCY, "over_share"): ("latency", "degrade_exceedance"),
    (Table.LATENCY, "slow_share"): ("latency", "first_packet_exceedance"),
    (Table.FAULTS, "rate"): ("faults", "rate"),
}


def thresholds(policy: Policy) -> RedLines:
    """The red lines as panels should draw them: where a rule was given a number of its own for a
    column, that number. Of several rules on a column the first counts: those that ship are first.
    """
    own: dict[str, dict[str, object]] = {}
    for (section, figure), limits in _limits(policy).items():
        own.setdefault(section, {})[figure] = limits[0]
    return parse(own, "thresholds", policy.lines)


def others(policy: Policy) -> dict[str, tuple[float, ...]]:
    """The limits of the other rules on those columns, by the red line's dotted name."""
    found = {".".join(name): limits for name, limits in _limits(policy).items()}
    return {
        name: more
        for name, limits in found.items()
        if (more := tuple(limit for limit in limits[1:] if limit != limits[0]))
    }


def _limits(policy: Policy) -> dict[tuple[str, str], list[float]]:
    """Every rule's limits by the red line that is drawn there, in the order of the rules."""
    found: dict[tuple[str, str], list[float]] = {}
    for rule in policy.rules:
        for condition in rule.conditions:
            drawn = _DRAWN.get((rule.table, condition.column.name))
            if drawn is not None:
                found.setdefault(drawn, []).append(condition.limit)
    return found
