"""Shares of counted items as figures, with their exact intervals."""

from bench.board import Direction, Figure, unmeasured
from monitors.intervals import exact_interval

ONE_SIDED = 0.90  # the upper end of a 90 % interval is a one-sided 95 % bound


def recall(bar: str, hits: int, of: int, target: float | None, peer: str) -> Figure:
    """`hits` of `of`, to be at least the target; the exact 95 % interval beside it."""
    if not of:
        return Figure(bar, None, "", target, peer, Direction.AT_LEAST, reason="no such item")
    low, high = exact_interval(hits, of)
    said = f"{hits}/{of}" + (f": {peer}" if peer else "")
    return Figure(bar, hits / of, "", target, said, Direction.AT_LEAST, low, high)


def upper_bound(bar: str, hits: int, of: int, line: float, more: str = "") -> Figure:
    """The one-sided 95 % bound of a share that should be under a line."""
    _, high = exact_interval(hits, of, ONE_SIDED)
    return Figure(f"{bar}: upper 95 % bound", high, "", line, f"{hits} of {of}{more}")


def share(bar: str, hits: int, of: int, more: str = "") -> Figure:
    """`hits` of `of`, which is only published; the exact 95 % interval beside it."""
    if not of:
        return unmeasured(bar, "no such item")
    low, high = exact_interval(hits, of)
    said = f"{hits}/{of}" + (f": {more}" if more else "")
    return Figure(bar, hits / of, "", None, said, low=low, high=high)
