"""All dashboards as Grafana's JSON, and the files they are provisioned from."""

from collections.abc import Callable
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from dashboards import engine, oncall, rollout
from monitors.redlines import RedLines

BUILDERS: dict[str, Callable[[RedLines], dashboard.Dashboard]] = {
    "oncall": oncall.build,
    "rollout": rollout.build,
    "engine": engine.build,
}


def build_all(lines: RedLines) -> dict[str, str]:
    """Dashboard JSON by name: a pure function of the red lines, the same text every time."""
    encoder = JSONEncoder(indent=2, sort_keys=True)
    return {name: encoder.encode(build(lines)) + "\n" for name, build in BUILDERS.items()}


def write_all(folder: Path, lines: RedLines) -> list[Path]:
    """Write `NAME.json` for each dashboard into an existing `folder`; the paths written."""
    written: list[Path] = []
    for name, text in build_all(lines).items():
        path = folder / f"{name}.json"
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
