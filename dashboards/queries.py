"""Every query of a dashboard, variables filled in: so that a test can put each to a real server."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from dashboards import view

Language = Literal["promql", "logql"]

# What Grafana itself fills in; a caller may override them.
BUILT_IN = {"__rate_interval": "30s", "__interval": "10s", "__range": "30m", "__all": ".*"}

_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))")
_LABEL_VALUES = re.compile(r"label_values\((?P<selector>.+), *\w+\)")
_LANGUAGES: dict[str, Language] = {"prometheus": "promql", "loki": "logql"}


class UnknownVariable(ValueError):
    """A query names a variable that was given no value."""


@dataclass(frozen=True)
class Query:
    """One expression as Grafana would send it. `panel`: its title, or what it serves."""

    panel: str
    ref: str
    language: Language
    expr: str
    instant: bool


def queries(dashboard_json: str, variables: Mapping[str, str]) -> list[Query]:
    """The queries of all panels, annotations and variables.

    `variables` are values as a regular expression would take them, as `{"version": "a|b"}`; a
    variable not among them stands for all of its values. Raises `UnknownVariable` for one that
    the dashboard does not declare.
    """
    dashboard = view.read(dashboard_json)
    everything = {v.name: v.all_value for v in dashboard.templating.list if v.all_value}
    values = {**BUILT_IN, **everything, **variables}
    return [
        *_panel_queries(dashboard, values),
        *_annotation_queries(dashboard, values),
        *_variable_queries(dashboard, values),
    ]


def _panel_queries(dashboard: view.Dashboard, values: Mapping[str, str]) -> Iterator[Query]:
    for panel in dashboard.panels:
        for target in panel.targets:
            yield Query(
                panel=panel.title,
                ref=target.ref_id,
                language=_LANGUAGES[target.datasource.type],
                expr=interpolate(target.expr, values),
                instant=target.instant,
            )


def _annotation_queries(dashboard: view.Dashboard, values: Mapping[str, str]) -> Iterator[Query]:
    for mark in dashboard.annotations.list:
        language = _LANGUAGES[mark.datasource.type]
        expr = interpolate(mark.expr, values)
        yield Query(f"annotation {mark.name}", "A", language, expr, instant=False)


def _variable_queries(dashboard: view.Dashboard, values: Mapping[str, str]) -> Iterator[Query]:
    for variable in dashboard.templating.list:
        if variable.type == "query" and (found := _LABEL_VALUES.fullmatch(variable.query)):
            expr = interpolate(found["selector"], values)
            yield Query(f"variable {variable.name}", "A", "promql", expr, instant=True)


def interpolate(expr: str, values: Mapping[str, str]) -> str:
    """Fill in `$name`, `${name}` and `${name:format}`."""

    def value_of(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in values:
            raise UnknownVariable(f"${name} in {expr!r} has no value; known are {sorted(values)}")
        return values[name]

    return _VARIABLE.sub(value_of, expr)


def variables_in(expr: str) -> set[str]:
    """The names of the variables an expression mentions."""
    return {match[1] or match[2] for match in _VARIABLE.finditer(expr)}
