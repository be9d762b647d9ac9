"""The summary of an alert about the machinery, as Prometheus fills its template."""

import re
from collections.abc import Mapping

_WITH = re.compile(r"\{\{ *with \$labels\.(\w+) *\}\}(.*?)\{\{ *end *\}\}", re.DOTALL)
_DOT = re.compile(r"\{\{ *\. *\}\}")
_LABEL = re.compile(r"\{\{ *\$labels\.(\w+) *\}\}")


def with_labels(template: str, labels: Mapping[str, str]) -> str:
    """The template with its labels put in. Actions other than `$labels` and `with` stay."""
    text = _WITH.sub(lambda m: _DOT.sub(labels[m[1]], m[2]) if labels.get(m[1]) else "", template)
    return _LABEL.sub(lambda m: labels.get(m[1], ""), text)
