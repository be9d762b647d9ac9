"""How a figure is said: against its bar, beside its peer."""

import argparse
import json
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One measured value. `target`: what it must be at most; `peer`: what others reach."""

    bar: str
    value: float
    unit: str
    target: float
    peer: str

    @property
    def holds(self) -> bool:
        return self.value <= self.target


def options(what: str) -> argparse.Namespace:
    """The command line that all benches share."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    return parser.parse_args()


def show(figures: list[Figure], *, as_json: bool) -> None:
    """Print them."""
    if as_json:
        print(json.dumps([asdict(f) | {"holds": f.holds} for f in figures], indent=2))
        return
    table = Table()
    for head in ("bar", "value", "target", "holds", "peer"):
        table.add_column(head)
    for f in figures:
        holds = "[green]yes[/]" if f.holds else "[red]no[/]"
        table.add_row(f.bar, f"{f.value:.3f} {f.unit}", f"<= {f.target:g}", holds, f.peer)
    Console().print(table)
