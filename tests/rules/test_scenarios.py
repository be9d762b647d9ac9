"""Every alert through promtool: it fires on time, and on none of its near misses."""

from pathlib import Path

from tests.rules.scenarios import promtool, written


def test_alerts_fire_on_time_and_only_then(tmp_path: Path):
    promtool(tmp_path, written())
