"""A rule's summary as Prometheus would write it: the few template actions that ours use."""

import re
from collections.abc import Mapping

_WITH = re.compile(r"\{\{ *with \$labels\.(\w+) *\}\}(.*?)\{\{ *end *\}\}", re.DOTALL)
_DOT = re.compile(r"\{\{ *\. *\}\}")
_LABEL = re.compile(r"\{\{ *\$labels\.(\w+) *\}\}")
_VALUE = re.compile(r"\{\{ *\$value *(?:\| *(\w+) *)?\}\}")


def summarise(template: str, labels: Mapping[str, str], value: float | None) -> str:
    """The template with its labels and its value put in. An action that is not known stays."""
    text = _WITH.sub(lambda m: _DOT.sub(labels[m[1]], m[2]) if labels.get(m[1]) else "", template)
    text = _LABEL.sub(lambda m: labels.get(m[1], ""), text)
    return _VALUE.sub(lambda m: _formatted(m[0], m[1], value), text)


def _formatted(action: str, formatter: str | None, value: float | None) -> str:
    if value is None:
        return "unknown"
    match formatter:
        case None:
            return f"{value:g}"
        case "humanizePercentage":
            return f"{100 * value:.4g}%"
        case _:
            return action
