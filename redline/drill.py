"""`redline drill`: break one resident's engine on purpose, to watch the system answer."""

from monitors.contract import DrillKind, DrillOrder, DrillReport
from redline.client import ask
from redline.settings import Stack

MEANINGS: dict[DrillKind, tuple[str, float]] = {
    DrillKind.SLOW: ("every engine step takes AMOUNT seconds longer", 0.3),
    DrillKind.TRUNCATE: ("speech stops early and loses its last samples", 1.0),
    DrillKind.DESYNC: ("audio shifts by AMOUNT seconds against video", 0.4),
    DrillKind.CORRUPT: ("frames reach the vision encoder damaged", 1.0),
    DrillKind.PRESSURE: ("ballast pins pages until AMOUNT of the pool is live", 0.9),
    DrillKind.KILL: ("the engine process dies", 0.0),
    DrillKind.LYING_FLUSH: ("a flush reports success and empties nothing", 0.0),
}


def start(
    stack: Stack, kind: DrillKind, resident: str, seconds: float, amount: float | None
) -> DrillReport:
    """Tell the data plane; the drill ends by itself after `seconds` (0 ends it now)."""
    order = DrillOrder(
        kind=kind, seconds=seconds, amount=MEANINGS[kind][1] if amount is None else amount
    )
    url = f"{stack.runtime_url}/control/residents/{resident}/drill"
    return ask(stack, "POST", url, DrillReport, order)
