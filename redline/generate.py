"""`redline generate`: everything under version control that is made from the policy."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redline.options import LinesFile, policy_of
from redline.sentences import fail

if TYPE_CHECKING:
    from alerts.policy import Policy


def command(
    root: Annotated[Path, typer.Option(help="The project's folder.")] = Path(),
    lines: LinesFile = None,
) -> None:
    """Write rules, routes, runbook heads and dashboards into deploy/, docs/ and dashboards/."""
    policy = policy_of(lines)
    try:
        written = write_all(root, policy)
    except (OSError, ValueError) as err:
        fail(err, 2)
    for path in written:
        typer.echo(f"wrote {path}")


def write_all(root: Path, policy: "Policy") -> list[Path]:
    """Write rules, routes, runbook heads and dashboards below `root`, the project's folder.

    Raises `OSError`, and `ValueError` for an alert without a runbook page.
    """
    from alerts import generate as alerts
    from alerts.thresholds import others, thresholds
    from dashboards import build

    written = alerts.write_all(root, policy)
    return written + build.write_all(
        root / "dashboards" / "json", thresholds(policy), others(policy)
    )
