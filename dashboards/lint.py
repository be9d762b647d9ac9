"""What must hold of every dashboard, as pure functions: each returns complaints in words."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations

from dashboards import view
from dashboards.panels import BYTES, SECONDS, SHARE
from dashboards.queries import BUILT_IN, variables_in
from monitors import catalog, recorded
from monitors.metric import Kind, Metric
from monitors.redlines import RedLines

# Series that Prometheus makes itself.
PROMETHEUS_OWN = frozenset({"up", "ALERTS", "ALERTS_FOR_STATE"})

_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')
_MATCHERS = re.compile(r"\{[^{}]*\}")
_LABEL_LISTS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\b\s*\([^()]*\)")
_DURATIONS = re.compile(r"\[[^\]]*\]|\boffset\s+\w+")
_NAME = re.compile(r"(?<![\w.:])[a-zA-Z_:][\w:]*(?!\s*\()(?![\w:])")
_KEYWORDS = frozenset({"and", "or", "unless", "bool", "group_left", "group_right", "inf", "nan"})
_AGGREGATORS = frozenset({"sum", "max", "min", "avg", "count", "topk", "bottomk", "quantile"})

Rule = Callable[[view.Dashboard], Iterable[str]]


def problems(dashboard_json: str, lines: RedLines) -> list[str]:
    """All complaints about one dashboard; empty is good."""
    dashboard = view.read(dashboard_json)
    known, allowed = known_series(), red_line_values(lines)
    rules: tuple[Rule, ...] = (
        ids_are_unique,
        panels_do_not_overlap,
        panels_explain_themselves,
        data_sources_are_variables,
        variables_are_declared_and_used,
        lambda d: metrics_are_known(d, known),
        lambda d: limits_are_red_lines(d, allowed),
        is_read_only,
    )
    return [f"{dashboard.title}: {complaint}" for rule in rules for complaint in rule(dashboard)]


def is_read_only(dashboard: view.Dashboard) -> Iterator[str]:
    if dashboard.editable:
        yield "can be edited in the browser, where a change would be lost"


def ids_are_unique(dashboard: view.Dashboard) -> Iterator[str]:
    for number, times in Counter(p.id for p in dashboard.panels).items():
        if times > 1 or number < 1:
            yield f"panel id {number} is used {times} times; ids start at 1 and differ"


def panels_do_not_overlap(dashboard: view.Dashboard) -> Iterator[str]:
    for panel in dashboard.panels:
        if panel.grid_pos.x + panel.grid_pos.w > 24:
            yield f"{panel.title!r} reaches past column 24"
    for one, other in combinations(dashboard.panels, 2):
        if one.grid_pos.overlaps(other.grid_pos):
            yield f"{one.title!r} and {other.title!r} overlap"


def panels_explain_themselves(dashboard: view.Dashboard) -> Iterator[str]:
    """A title, a description, a unit, and a word for no data on every panel."""
    for panel in _real_panels(dashboard):
        defaults = panel.field_config.defaults
        for what, given in {
            "title": panel.title,
            "description": panel.description,
            "unit": defaults.unit,
            "word for no data": defaults.no_value,
            "query": panel.targets,
        }.items():
            if not given:
                yield f"panel {panel.id} {panel.title!r} has no {what}"


def data_sources_are_variables(dashboard: view.Dashboard) -> Iterator[str]:
    """No panel, query or annotation is tied to one data source by its id."""
    used = [
        *((p.title, p.datasource) for p in _real_panels(dashboard)),
        *((p.title, t.datasource) for p in dashboard.panels for t in p.targets),
        *((a.name, a.datasource) for a in dashboard.annotations.list),
    ]
    for title, source in used:
        if source is None or not source.uid.startswith("${"):
            yield f"{title!r} is tied to a data source; use the page's variable"


def variables_are_declared_and_used(dashboard: view.Dashboard) -> Iterator[str]:
    declared = {v.name for v in dashboard.templating.list}
    used = {name for text in _texts(dashboard) for name in variables_in(text)} - BUILT_IN.keys()
    for name in sorted(used - declared):
        yield f"${name} is used and not declared"
    for name in sorted(declared - used):
        yield f"${name} is declared and not used"


def metrics_are_known(dashboard: view.Dashboard, known: frozenset[str]) -> Iterator[str]:
    """Every PromQL name is exported, recorded, or Prometheus' own."""
    for title, expr in _promql(dashboard):
        found = series_in(expr)
        if not found:
            yield f"{title!r} asks for no series: {expr}"
        for name in sorted(found - known):
            yield f"{title!r} asks for {name}, which nothing exports or records"


def limits_are_red_lines(
    dashboard: view.Dashboard, allowed: dict[str, frozenset[float]]
) -> Iterator[str]:
    for panel in dashboard.panels:
        for unit, value in panel.limits():
            if value not in allowed.get(unit or "", frozenset()):
                yield f"{panel.title!r} has a limit of {value} {unit}, which is no red line"


# ---------------------------------------------------------------- what is known
def known_series() -> frozenset[str]:
    """The names of all series there can be."""
    exported = {name for metric in catalog.ALL for name in exposed_names(metric)}
    return frozenset(
        exported | {r.name for r in (*recorded.RECORDED, *recorded.BUDGETS)} | PROMETHEUS_OWN
    )


def exposed_names(metric: Metric) -> tuple[str, ...]:
    """The series names of one family, as `/metrics` shows them."""
    if metric.kind is Kind.HISTOGRAM:
        return tuple(metric.name + suffix for suffix in ("_bucket", "_sum", "_count"))
    return (metric.name + "_info",) if metric.kind is Kind.INFO else (metric.name,)


def red_line_values(lines: RedLines) -> dict[str, frozenset[float]]:
    """The figures a limit may have, by Grafana unit."""
    cache, latency = lines.cache, lines.latency
    return {
        SHARE: frozenset(
            {
                cache.hit_rate_floor,
                cache.pressure_hit_rate,
                latency.first_packet_exceedance,
                latency.degrade_exceedance,
                lines.faults.rate,
                lines.scheduler.shed_utilisation,
                lines.scheduler.resume_utilisation,
            }
        ),
        SECONDS: frozenset({latency.first_packet_s, latency.degrade_s}),
        BYTES: frozenset({cache.gpu_mem_gb * 1e9}),
    }


def series_in(expr: str) -> frozenset[str]:
    """The series names of a PromQL expression.

    Strings, matchers, label lists and durations are taken out first; of what is left, a name
    that is neither a keyword nor called like a function is a series.
    """
    bare = _DURATIONS.sub("", _MATCHERS.sub("", _QUOTED.sub('""', expr)))
    bare = _LABEL_LISTS.sub("", bare)
    found = {name for name in _NAME.findall(bare) if name.lower() not in _KEYWORDS}
    return frozenset(found - _AGGREGATORS)


# ---------------------------------------------------------------- walking a dashboard
def _real_panels(dashboard: view.Dashboard) -> Iterator[view.Panel]:
    return (panel for panel in dashboard.panels if not panel.is_row)


def _promql(dashboard: view.Dashboard) -> Iterator[tuple[str, str]]:
    for panel in dashboard.panels:
        for target in panel.targets:
            if target.datasource.type == "prometheus":
                yield panel.title, target.expr
    for mark in dashboard.annotations.list:
        yield mark.name, mark.expr
    for variable in dashboard.templating.list:
        if variable.type == "query":
            yield variable.name, variable.query.rsplit(",", 1)[0].removeprefix("label_values(")


def _texts(dashboard: view.Dashboard) -> Iterator[str]:
    """Everything in which a variable can stand."""
    for panel in dashboard.panels:
        for target in panel.targets:
            yield target.expr
            yield target.datasource.uid
    for mark in dashboard.annotations.list:
        yield mark.expr
