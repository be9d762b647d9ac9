"""`redline maintenance`: what is listed, and what is refused before anything is asked."""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from alerts.policy import make
from alerts.routing import render_alertmanager
from monitors.redlines import RedLines
from redline.cli import app
from redline.settings import Stack
from tests.support.http_server import Answer, recording_server

SUNDAY = {"days": ["sunday"], "from": "02:00", "to": "04:00", "reason": 'disks: "new"'}


@pytest.mark.parametrize(
    ("windows", "says"),
    [
        ([], "no maintenance: notices wake people\n"),
        (
            [SUNDAY, {**SUNDAY, "reason": "backups"}],
            """none by hand: notices wake people outside the policy's windows
every week, by the policy: maintenance 1: disks: "new"
every week, by the policy: maintenance 2: backups
""",
        ),
    ],
)
def test_the_policys_windows_are_listed_with_their_reasons(
    windows: list[dict[str, object]], says: str, tmp_path: Path
) -> None:
    policy = make(RedLines(), {}, windows)
    config = render_alertmanager(policy, webhook_url="http://a/", credentials_file="/t")
    # Somebody else's interval is none of ours.
    config += "" if windows else "time_intervals: [{name: nights}]\n"
    with recording_server() as server:
        server.answers["/api/v2/silences"] = Answer(b"[]")
        running = {"config": {"original": config}}
        server.answers["/api/v2/status"] = Answer(msgspec.json.encode(running))
        stack = Stack(runtime_url="http://r", control_url="http://c", token="t")
        stack.model_copy(update={"alertmanager_url": server.url}).save(tmp_path)
        outcome = CliRunner().invoke(app, ["maintenance", "--state-dir", str(tmp_path)])
    assert outcome.stdout == says


@pytest.mark.parametrize("wrong", [["--reason", "x"], ["--for", "5m", "--end"]])
def test_a_maintenance_that_is_half_said_does_nothing(wrong: list[str], tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["maintenance", *wrong, "--state-dir", str(tmp_path)])
    assert outcome.exit_code == 2
