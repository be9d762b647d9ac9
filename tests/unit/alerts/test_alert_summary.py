"""Summaries of alerts that are found here, word for word as Prometheus would write them."""

import pytest

from alerts.wording import summarise


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [
        ("{{ $value | humanizePercentage }} of it", 0.11111, "11.11% of it"),
        ("{{$value|humanizePercentage}}", 0.9, "90%"),
        ("{{ $value | humanize }}B live", 26e9, "26GB live"),
        ("{{ $value | humanize }}", 1234567.0, "1.235M"),
        ("{{ $value | humanize }}", 999.0, "999"),
        ("{{ $value | humanize }}", 0.0025, "2.5m"),
        ("{{ $value | humanize }}", 0.0, "0"),
        ("{{ $value | humanizeDuration }}", 3.0, "{{ $value | humanizeDuration }}"),
        ("on {{ $labels.version }} to {{ $labels.milestone }}", 1.0, "on v1 to "),
        ("down {{ with $labels.version }}at {{ . }}{{ end }}", None, "down at v1"),
        ("down {{ with $labels.instance }}at {{ . }}{{ end }}", None, "down "),
    ],
)
def test_a_template_is_filled_as_prometheus_fills_it(template: str, value: float | None, text: str):
    assert summarise(template, {"version": "v1"}, value) == text
