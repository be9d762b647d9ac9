"""An alert's summary as Prometheus fills its template, for alerts that are found here."""

import math
import re
from collections.abc import Callable, Mapping

_WITH = re.compile(r"\{\{ *with \$labels\.(\w+) *\}\}(.*?)\{\{ *end *\}\}", re.DOTALL)
_DOT = re.compile(r"\{\{ *\. *\}\}")
_LABEL = re.compile(r"\{\{ *\$labels\.(\w+) *\}\}")
_VALUE = re.compile(r"\{\{ *\$value *\| *(\w+) *\}\}")
_LARGE, _SMALL = ("", "k", "M", "G", "T", "P", "E", "Z", "Y"), ("", "m", "u", "n", "p", "f", "a")


def summarise(template: str, labels: Mapping[str, str], value: float | None = None) -> str:
    """The template with its labels and its value in. What it cannot fill stays as it is."""
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
