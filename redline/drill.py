"""`redline drill`: break one resident's engine on purpose, to watch the system answer."""

from monitors.contract import DrillKind, DrillOrder, DrillReport
from redline.client import ask
from redline.settings import Stack

DEFAULT_AMOUNT: dict[DrillKind, float] = {
    DrillKind.SLOW: 0.3,  # seconds a step
    DrillKind.DESYNC: 0.4,  # seconds of sound against picture
    DrillKind.PRESSURE: 0.9,  # share of the pool
}
"""Of the kinds that have an amount; the others are all or nothing."""


def start(
    stack: Stack, kind: DrillKind, resident: str, seconds: float, amount: float | None
) -> DrillReport:
    """Tell the data plane; the drill ends by itself after `seconds` (0 ends it now)."""
    order = DrillOrder(
        kind=kind,
        seconds=seconds,
        amount=DEFAULT_AMOUNT.get(kind, 0.0) if amount is None else amount,
    )
    url = f"{stack.runtime_url}/control/residents/{resident}/drill"
    return ask(stack, "POST", url, DrillReport, order)
