"""What panels turn red at: the limits of the rules themselves, in the place of their red lines."""

from dataclasses import dataclass

from alerts.policy import Policy
from alerts.rule import Comparison, Condition
from monitors.metric import Table
from monitors.redlines import RedLines

_LOW = (Comparison.BELOW, Comparison.AT_MOST)
_HIGH = (Comparison.ABOVE, Comparison.AT_LEAST)


@dataclass(frozen=True)
class _Drawn:
    """The red line that a panel draws for a column, and on which side of it the panel is red."""

    section: str
    figure: str
    red: tuple[Comparison, ...]

    @property
    def name(self) -> str:
        return f"{self.section}.{self.figure}"


_DRAWN = {
    (Table.CACHE, "hit_rate"): _Drawn("cache", "hit_rate_floor", _LOW),
    (Table.CACHE, "gpu_mem_gb"): _Drawn("cache", "gpu_mem_gb", _HIGH),
    (Table.LATENCY, "over_share"): _Drawn("latency", "degrade_exceedance", _HIGH),
    (Table.LATENCY, "slow_share"): _Drawn("latency", "first_packet_exceedance", _HIGH),
    (Table.FAULTS, "rate"): _Drawn("faults", "rate", _HIGH),
}


def thresholds(policy: Policy) -> RedLines:
    """The red lines as panels should draw them: where a rule was given a number of its own for a
    column, that number. Of several rules on a column the first counts: those that ship are first.

    For panels alone: what a rule may compare with is more than what a red line may be.
    """
    drawn = policy.lines
    for each, limits in _limits(policy).items():
        section = getattr(drawn, each.section).model_copy(update={each.figure: limits[0]})
        drawn = drawn.model_copy(update={each.section: section})
    return drawn


def others(policy: Policy) -> dict[str, tuple[float, ...]]:
    """The limits of the other rules on those columns, by the red line's dotted name."""
    return {
        each.name: more
        for each, limits in _limits(policy).items()
        if (more := tuple(limit for limit in limits[1:] if limit != limits[0]))
    }


def _limits(policy: Policy) -> dict[_Drawn, list[float]]:
    """Every rule's limits by the red line that is drawn there, in the order of the rules. A panel
    is red on one side: a limit of the other one is not its."""
    found: dict[_Drawn, list[float]] = {}
    for rule in policy.rules:
        for condition in rule.conditions:
            drawn = _drawn(rule.table, condition)
            if drawn is not None:
                found.setdefault(drawn, []).append(condition.limit)
    return found


def _drawn(table: Table, condition: Condition) -> _Drawn | None:
    drawn = _DRAWN.get((table, condition.column.name))
    return drawn if drawn is not None and condition.comparison in drawn.red else None
