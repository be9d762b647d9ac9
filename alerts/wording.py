"""A rule in words: what it says of itself, and what it says when it fires."""

import math
import re
from collections.abc import Callable, Mapping

from alerts.columns import ColumnUnit
from alerts.figures import in_words, shown
from alerts.promql import percent
from alerts.rule import Comparison, Condition, Rule, RuleError
from monitors.metric import Label, Table
from monitors.redlines import RedLines

_PLACE = re.compile(r"\{([^{}]*)\}")
_WITH = re.compile(r"\{\{ *with \$labels\.(\w+) *\}\}(.*?)\{\{ *end *\}\}", re.DOTALL)
_DOT = re.compile(r"\{\{ *\. *\}\}")
_LABEL = re.compile(r"\{\{ *\$labels\.(\w+) *\}\}")
_VALUE = re.compile(r"\{\{ *\$value *\| *(\w+) *\}\}")
_LARGE, _SMALL = ("", "k", "M", "G", "T", "P", "E", "Z", "Y"), ("", "m", "u", "n", "p", "f", "a")
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


# ---------------------------------------------------------------- as Prometheus fills it
def summarise(template: str, labels: Mapping[str, str], value: float | None = None) -> str:
    """The template of an alert that is found here, with its labels and its value in. What it cannot
    fill stays as it is."""
    text = _WITH.sub(lambda m: _DOT.sub(labels[m[1]], m[2]) if labels.get(m[1]) else "", template)
    text = _LABEL.sub(lambda m: labels.get(m[1], ""), text)
    if value is None:
        return text
    return _VALUE.sub(lambda m: _FORMATS[m[1]](value) if m[1] in _FORMATS else m[0], text)


def _percentage(value: float) -> str:
    return f"{value * 100:.4g}%"


def _humanised(value: float) -> str:
    """To three decimal places of a power of a thousand: 26 GB of bytes are `26G`."""
    if value == 0.0 or not math.isfinite(value):
        return f"{value:.4g}"
    prefixes, factor = (_LARGE, 1e-3) if abs(value) >= 1.0 else (_SMALL, 1e3)
    place = 0
    while place + 1 < len(prefixes) and not 1.0 <= abs(value) < 1000.0:
        value, place = value * factor, place + 1
    return f"{value:.4g}{prefixes[place]}"


_FORMATS: Mapping[str, Callable[[float], str]] = {
    "humanizePercentage": _percentage,
    "humanize": _humanised,
}
