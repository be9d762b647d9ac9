"""The table of `redline calibrate --policy learned`."""

from typing import TYPE_CHECKING

from redline.calibrate import loss_words

if TYPE_CHECKING:
    from rich.console import Group

    from runtime.quality.calibrate_learned import LearnedReport


def draw(report: "LearnedReport") -> "Group":
    """A row for each layer and modality, and what all of them together cost."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table

    table = Table(
        title=f"{report.version} ({report.weights_digest[:12]})\n"
        f"learned reuse at a loss of {100 * report.budget:g} %, {report.clips} clips of"
        f" {report.seconds} s, {report.trials} trials, seed {report.seed}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for name in ("layer", "modal", "weights", "foretold nats", "aliased %"):
        table.add_column(name, justify="left" if name == "modal" else "right")
    for row in report.cells:
        aliased = f"{100 * row.aliased_share:.0f}"
        words = (str(row.layer), str(row.modality), str(row.parameters), f"{row.foretold:.2g}")
        table.add_row(*words, aliased if report.calibration else "[dim]never[/]")
    return Group(table, _together(report))


def _together(report: "LearnedReport") -> str:
    return (
        f"together, on {report.clips} other clips (attempt {report.attempts}):\n"
        f"  aliased {report.aliased_share:.1%}, loss % {loss_words(report.joint)}\n"
        f"  at random {report.random_share:.1%}, loss % {loss_words(report.random)}\n"
        f"  nats a token from full KV {report.divergence.value:.2g}\n"
        "loss: rise of the right answers' perplexity; in brackets: intervals of 95 %"
    )
