"""What commands share of their options."""

import pytest
import typer

from redline.options import duration_of


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("30m", 1800.0), ("2h", 7200.0)])
def test_a_time_is_said_as_prometheus_does(text: str, seconds: float) -> None:
    assert duration_of(text, "--for") == seconds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0s", "--for: give a time above 0"),
        ("soon", "--for: 'soon' is not a duration; write 90s, 10m or 1h"),
        ("-5m", "--for: '-5m' is not a duration"),
        ("", "--for: '' is not a duration"),
    ],
)
def test_what_is_no_time_ends_the_command_as_wrong_usage(
    text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        duration_of(text, "--for")
    assert ended.value.exit_code == 2
    assert says in capsys.readouterr().err
