"""The few pieces of PromQL and of wording that rules are put together from."""

import re

from monitors.metric import Metric

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, None: 1.0}


def parse_duration(text: str) -> float:
    """Seconds of `90s`, `10m`, `1.5h`, `3d`, `30`. Raises `ValueError` for anything else."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write 90s, 10m or 1h")
    return float(match[1]) * _UNIT_S[match[2]]


def duration(seconds: float) -> str:
    """A duration as Prometheus and Alertmanager read it: whole seconds or milliseconds."""
    whole = round(seconds)
    return f"{whole}s" if whole == seconds else f"{round(seconds * 1000)}ms"


def percent(share: float) -> str:
    """A share in words."""
    return f"{share * 100:g} %"


def select(metric: Metric, *matchers: str, suffix: str = "") -> str:
    """A selector of one family's series; `suffix` as in `_bucket`."""
    return metric.name + suffix + (f"{{{','.join(matchers)}}}" if matchers else "")


def gained(selector: str, window_s: float, *by: str) -> str:
    """What counters gained over the window, summed. A counter that restarts at 0 loses nothing."""
    return f"sum by ({', '.join(by)}) ({increase(selector, window_s)})"


def increase(selector: str, window_s: float) -> str:
    """What each counter gained over the window."""
    return f"increase({selector}[{duration(window_s)}])"


def or_zero(expr: str, where: str) -> str:
    """`expr`, and 0 where only `where` has a series: a counter that nobody has touched yet."""
    return f"({expr} or {where} * 0)"
