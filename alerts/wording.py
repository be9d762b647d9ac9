"""A rule in words: what it says of itself, and what it says when it fires."""

import re
from collections.abc import Mapping

from alerts.columns import Column, ColumnUnit
from alerts.figures import in_words, shown
from alerts.promql import percent
from alerts.rule import Comparison, Condition, Rule, RuleError
from monitors.labels import Milestone
from monitors.metric import Label, Table
from monitors.redlines import RedLines

_PLACE = re.compile(r"\{([^{}]*)\}")
_LATER = ("version", "milestone", "value")  # known only once it fires
_WORDS = {
    Comparison.BELOW: "below",
    Comparison.AT_MOST: "at most",
    Comparison.ABOVE: "above",
    Comparison.AT_LEAST: "at least",
}
_HUMAN = {
    ColumnUnit.SHARE: "{{ $value | humanizePercentage }}",
    ColumnUnit.GB: "{{ $value | humanize }}B",
    ColumnUnit.COUNT: "{{ $value | humanize }}",
}
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def limit_in_words(condition: Condition) -> str:
    """`90 %`, `25 GB`, `100`."""
    match condition.column.unit:
        case ColumnUnit.SHARE:
            return percent(condition.limit)
        case ColumnUnit.GB:
            return f"{condition.limit:g} GB"
        case ColumnUnit.COUNT:
            return f"{condition.limit:,g}"


def describe(rule: Rule, lines: RedLines) -> str:
    """What a rule fires on, in a sentence made from its own data."""
    conditions = " and ".join(_in_words(each, lines) for each in rule.conditions)
    output = rule.milestone or "one first output"
    of = f", to {output}" if rule.table is Table.LATENCY else ""
    window = f" requests in {in_words(lines.latency.window_s)}"
    unit = window if rule.table is Table.LATENCY else ""
    count = "" if rule.min_count is None else f", of at least {rule.min_count:,}{unit}"
    traffic = " Requests still finish." if rule.table is Table.FAULTS else ""
    return f"Of a version{of}: {conditions}{count}.{traffic}"


def _in_words(condition: Condition, lines: RedLines) -> str:
    meaning = fill(condition.column.meaning, lines)
    return f"the {meaning} is {_WORDS[condition.comparison]} {limit_in_words(condition)}"


def fill(text: str, lines: RedLines, known: Mapping[str, str] | None = None) -> str:
    """`text` with red lines and `known` words in; what is known later stays.

    Raises `UnknownFigure` for any other place.
    """
    words = {**(known or {}), **{name: f"{{{name}}}" for name in _LATER}}

    def word(place: re.Match[str]) -> str:
        return words[place[1]] if place[1] in words else shown(lines, place[1])

    return _PLACE.sub(word, text)


def summary(text: str, conditions: tuple[Condition, ...], table: Table, lines: RedLines) -> str:
    """A rule's summary with its limit and red lines in. Raises `RuleError`."""
    if "{milestone}" in text and table is not Table.LATENCY:
        raise RuleError(f"table {table} knows no {{milestone}}")
    return fill(text, lines, {"limit": limit_in_words(conditions[0])})


def as_template(rule: Rule) -> str:
    """The summary as a Prometheus template."""
    return (
        rule.summary.replace("{version}", f"{{{{ $labels.{Label.VERSION} }}}}")
        .replace("{milestone}", f"{{{{ $labels.{Label.MILESTONE} }}}}")
        .replace("{value}", _HUMAN[rule.conditions[0].column.unit])
    )


def tell(rule: Rule, version: str, milestone: Milestone | None, value: float) -> str:
    """The summary as Prometheus would have it; `value`: of the first condition's column."""
    words = {"version": version, "milestone": milestone or "", "value": ""}
    words["value"] = _humanised(rule.conditions[0].column, value)
    return _PLACE.sub(lambda place: words[place[1]], rule.summary)


def _humanised(column: Column, value: float) -> str:
    """As `humanizePercentage` and `humanize` of Prometheus do."""
    if column.unit is ColumnUnit.SHARE:
        return f"{value * 100:.4g}%"
    raw = value * column.scale
    divisor, prefix = next(((d, p) for d, p in _PREFIXES if raw >= d), (1.0, ""))
    return f"{raw / divisor:.4g}{prefix}" + ("B" if column.unit is ColumnUnit.GB else "")
