"""All dashboards as Grafana's JSON, and the files they are provisioned from."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from dashboards import engine, oncall, rollout
from monitors.redlines import RedLines

Others = Mapping[str, tuple[float, ...]]  # by the red line's dotted name
BUILDERS: dict[str, Callable[[RedLines, Others], dashboard.Dashboard]] = {
    "oncall": oncall.build,
    "rollout": lambda lines, _: rollout.build(lines),
    "engine": lambda lines, _: engine.build(lines),
}


def build_all(lines: RedLines, others: Others = MappingProxyType({})) -> dict[str, str]:
    """Dashboard JSON by name: a pure function of the red lines, the same text every time.

    `others`: further limits in the place of a red line, by its name; they show in amber.
    """
    encoder = JSONEncoder(indent=2, sort_keys=True)
    return {name: encoder.encode(build(lines, others)) + "\n" for name, build in BUILDERS.items()}


def write_all(folder: Path, lines: RedLines, others: Others = MappingProxyType({})) -> list[Path]:
    """Write `NAME.json` for each dashboard into an existing `folder`; the paths written."""
    written: list[Path] = []
    for name, text in build_all(lines, others).items():
        path = folder / f"{name}.json"
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
