"""Red lines by their dotted names, as rules write them: `cache.hit_rate_floor`."""

import difflib
from functools import cache

from alerts.promql import percent
from monitors.redlines import RedLines, sections


class UnknownFigure(ValueError):
    """No red line has this name; the message says which are like it."""


@cache
def _shares() -> dict[str, bool]:
    """Every dotted name, and whether it is a share: a number from 0 to 1."""
    return {
        f"{section}.{name}": any(getattr(bound, "le", None) == 1.0 for bound in field.metadata)
        for section, part in sections().items()
        for name, field in part.model_fields.items()
    }


def figure(lines: RedLines, name: str) -> float:
    """The red line called `name`. Raises `UnknownFigure`."""
    if name not in _shares():
        near = difflib.get_close_matches(name, _shares(), n=3, cutoff=0.5)
        hint = f"; there are: {', '.join(near)}" if near else ", as cache.hit_rate_floor"
        raise UnknownFigure(f"{name} is neither a number nor a red line{hint}")
    section, _, leaf = name.partition(".")
    return float(getattr(getattr(lines, section), leaf))


def shown(lines: RedLines, name: str) -> str:
    """The red line in words: `90 %`, `400 ms`, `10,000`. Raises `UnknownFigure`."""
    value = figure(lines, name)
    if _shares()[name]:
        return percent(value)
    return in_words(value) if name.endswith("_s") else f"{value:,g}"


def in_words(seconds: float) -> str:
    """A duration for people: `250 ms`, `30 s`, `5 min`."""
    if seconds and seconds < 1.0:
        return f"{seconds * 1000:g} ms"
    if seconds >= 120.0 and seconds % 60.0 == 0.0:
        return f"{seconds / 60:g} min"
    return f"{seconds:g} s"
