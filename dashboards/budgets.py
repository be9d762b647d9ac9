"""How fast the error budgets of the red lines are spent."""

from dashboards.panels import PLAIN, Column, Panel, rows_by
from monitors.recorded import BUDGET_WINDOWS, BURN_PAGES, Objective, missed
from monitors.redlines import RedLines


def budgets(lines: RedLines) -> Panel:
    """How many times as fast as it lasts a month's budget of each objective is spent."""
    shares = {
        Objective.CACHE: 1.0 - lines.cache.hit_rate_floor,
        Objective.FIRST_PACKET: lines.latency.first_packet_exceedance,
        Objective.FAULTS: lines.faults.rate,
    }

    def burns(window: str) -> str:
        return "\nor ".join(
            f'label_replace({missed(each, window).name} / {share:g}, "objective", "{each}", "", "")'
            for each, share in shares.items()
            if share > 0.0
        )

    return rows_by(
        "Error budgets",
        "How many times as fast as it lasts for a month each red line's budget is spent, of the "
        f"whole service: 1 uses it up in a month, {BURN_PAGES:g} over both 30m and 6h wakes "
        "somebody. Empty: nobody asked for anything.",
        {"objective": "objective"},
        [Column(f"burn in {window}", burns(window), PLAIN, 2) for window in BUDGET_WINDOWS],
        height=6,
    )
