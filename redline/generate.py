"""`redline generate`: everything under version control that is made from the red lines."""

from pathlib import Path

from alerts import generate as alerts
from dashboards import build
from monitors.redlines import RedLines


def write_all(root: Path) -> list[Path]:
    """Write rules, routes, runbook heads and dashboards below `root`, the project's folder."""
    lines = RedLines()
    written = alerts.write_all(root, lines)
    return written + build.write_all(root / "dashboards" / "json", lines)
