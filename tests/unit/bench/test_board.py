"""What a figure says of its bar, and what it never says."""

import json

import pytest

from bench.board import Direction, Figure, show, unmeasured


def figure(value: float, **changes: object) -> Figure:
    made = {"bar": "a bar", "value": value, "unit": "x", "target": 5.0, "peer": "none"}
    return Figure(**(made | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("direction", "value", "holds"),
    [
        (Direction.AT_MOST, 4.9, True),
        (Direction.AT_MOST, 5.0, True),
        (Direction.AT_MOST, 5.1, False),
        (Direction.AT_LEAST, 4.9, False),
        (Direction.AT_LEAST, 5.0, True),
        (Direction.AT_LEAST, 5.1, True),
    ],
)
def test_a_value_holds_on_the_right_side_of_its_target(
    direction: Direction, value: float, holds: bool
) -> None:
    assert figure(value, direction=direction).holds is holds


def test_a_bar_is_an_upper_one_unless_it_says_otherwise() -> None:
    assert Figure("a bar", 6.0, "s", 5.0, "").holds is False


def test_what_was_not_measured_never_holds() -> None:
    assert unmeasured("a bar", "no GPU", target=5.0).holds is None


def test_what_is_only_published_holds_nothing() -> None:
    assert figure(1.0, target=None).holds is None


def test_a_missing_value_needs_its_reason() -> None:
    with pytest.raises(ValueError, match="a bar"):
        Figure("a bar", None, "s", 5.0, "")


def test_a_measured_value_has_no_excuse() -> None:
    with pytest.raises(ValueError, match="a bar"):
        figure(1.0, reason="no GPU")


def test_json_carries_direction_interval_and_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [figure(6.0, direction=Direction.AT_LEAST, low=5.5, high=6.5), unmeasured("b", "why")]
    show(rows, as_json=True)
    first, second = json.loads(capsys.readouterr().out)
    assert first == {
        "bar": "a bar", "value": 6.0, "unit": "x", "target": 5.0, "peer": "none",
        "direction": ">=", "low": 5.5, "high": 6.5, "reason": "", "holds": True,
    }  # fmt: skip
    assert (second["value"], second["holds"], second["reason"]) == (None, None, "why")


def test_the_table_says_why_nothing_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    show([unmeasured("b", "no GPU")], as_json=False)
    assert "not measured: no GPU" in " ".join(capsys.readouterr().out.split())


def test_the_table_shows_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show([figure(6.0, low=5.5, high=6.5, bar="lost [a, b]")], as_json=False)
    out = capsys.readouterr().out
    assert "lost [a, b]" in out
    assert "[5.500, 6.500]" in " ".join(out.split())
