"""The command line's own words: help, durations, sentences for mistakes."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from redline.cli import app
from redline.operate import parse_duration

run = CliRunner().invoke


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), ("30", 30.0)]
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "ten", "10 weeks", "-5s"])
def test_other_durations_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write 90s, 10m or 1h"):
        parse_duration(text)


def test_help_names_every_command() -> None:
    shown = run(app, ["--help"]).output
    for command in ("up", "send", "tables", "status", "drill", "freeze", "rollout", "generate"):
        assert command in shown


def test_a_missing_clip_is_named(tmp_path: Path) -> None:
    result = run(app, ["send", str(tmp_path / "no.mp4"), "--state-dir", str(tmp_path)])
    assert result.exit_code == 2
    assert "no such file" in result.output


def test_without_a_stack_a_command_says_what_to_do(tmp_path: Path) -> None:
    result = run(app, ["rollout", "status", "--state-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "redline up" in result.output


def test_a_wrong_key_in_redline_yaml_is_named(tmp_path: Path) -> None:
    lines = tmp_path / "redline.yaml"
    lines.write_text("cache: {hit_rate_flor: 0.8}")
    result = run(app, ["up", "--lines", str(lines), "--state-dir", str(tmp_path)])
    assert result.exit_code == 2
    assert "cache.hit_rate_flor" in result.output
