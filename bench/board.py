"""How a figure is said: against its bar, beside its peer."""

import argparse
import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from rich.console import Console
from rich.markup import escape
from rich.table import Table


class Direction(StrEnum):
    """Which side of its target a value must be on."""

    AT_MOST = "<="
    AT_LEAST = ">="


@dataclass(frozen=True)
class Figure:
    """One measured value, with its 95 % interval where there is one.

    `target`: the bar in `direction`, `None` for what is only published; `peer`: what others
    reach, or the baseline; `reason`: why nothing was measured, where `value` is `None`.
    """

    bar: str
    value: float | None
    unit: str
    target: float | None
    peer: str
    direction: Direction = Direction.AT_MOST
    low: float | None = None
    high: float | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if (self.value is None) != bool(self.reason):
            raise ValueError(f"{self.bar}: give a value, or the reason why there is none")

    @property
    def holds(self) -> bool | None:
        """`None` where nothing was measured, or nothing is asked."""
        if self.value is None or self.target is None:
            return None
        if self.direction is Direction.AT_MOST:
            return self.value <= self.target
        return self.value >= self.target


def unmeasured(bar: str, reason: str, *, target: float | None = None, peer: str = "") -> Figure:
    """A figure that this machine or installation cannot show."""
    return Figure(bar, None, "", target, peer, reason=reason)


def parser(what: str) -> argparse.ArgumentParser:
    """The command line that all benches share."""
    made = argparse.ArgumentParser(description=what)
    made.add_argument("--json", action="store_true", help="print JSON instead of a table")
    made.add_argument("--quick", action="store_true", help="fewer repetitions")
    return made


def options(what: str) -> argparse.Namespace:
    """What was asked of a bench that has no options of its own."""
    return parser(what).parse_args()


def show(figures: list[Figure], *, as_json: bool) -> None:
    """Print them."""
    if as_json:
        print(json.dumps([asdict(f) | {"holds": f.holds} for f in figures], indent=2))
        return
    table = Table()
    for head in ("bar", "value", "target", "holds", "peer"):
        table.add_column(head)
    for f in figures:
        table.add_row(escape(f.bar), escape(_value(f)), _target(f), _HOLDS[f.holds], escape(f.peer))
    Console().print(table)


_HOLDS = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}


def _value(f: Figure) -> str:
    if f.value is None:
        return f"not measured: {f.reason}"
    interval = "" if f.low is None or f.high is None else f" [{f.low:.3f}, {f.high:.3f}]"
    return f"{f.value:.3f}{interval} {f.unit}"


def _target(f: Figure) -> str:
    return "" if f.target is None else f"{f.direction} {f.target:g}"
