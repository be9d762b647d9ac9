"""A rule in words: what it says of itself, and what it says when it fires."""

import re
from collections.abc import Mapping

from alerts.columns import ColumnUnit
from alerts.figures import in_words, shown
from alerts.promql import percent
from alerts.rule import Comparison, Condition, Rule, RuleError
from monitors.metric import Label, Table
from monitors.redlines import RedLines

_PLACE = re.compile(r"\{([^{}]*)\}")
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
    """`text` with red lines and `known` words in the braces. Raises `UnknownFigure`."""
    words = known or {}

    def word(place: re.Match[str]) -> str:
        return words[place[1]] if place[1] in words else shown(lines, place[1])

    return _PLACE.sub(word, text)


def summary(text: str, conditions: tuple[Condition, ...], table: Table, lines: RedLines) -> str:
    """A rule's summary as a Prometheus template; its places: `{version}`, `{milestone}`, `{value}`
    and `{limit}` of the first condition, and red lines by name.

    Raises `UnknownFigure`, and `RuleError` for a place that the table has not.
    """
    if "{milestone}" in text and table is not Table.LATENCY:
        raise RuleError(f"table {table} knows no {{milestone}}")
    first = conditions[0]
    places = {
        "version": f"{{{{ $labels.{Label.VERSION} }}}}",
        "milestone": f"{{{{ $labels.{Label.MILESTONE} }}}}",
        "value": _HUMAN[first.column.unit],
        "limit": limit_in_words(first),
    }
    return fill(text, lines, places)
