"""The few pieces of PromQL and of wording that rules are put together from."""

from monitors.metric import Metric


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
    return f"sum by ({', '.join(by)}) (increase({selector}[{duration(window_s)}]))"


def or_zero(expr: str, where: str) -> str:
    """`expr`, and 0 where only `where` has a series: a counter that nobody has touched yet."""
    return f"({expr} or {where} * 0)"
