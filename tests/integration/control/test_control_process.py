"""A real control-plane process, with no data plane to talk to: it answers, refuses and says why."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from redline.control.settings import ControlSettings
from tests.support.ports import free_ports
from tests.support.stack import wait_until

TOKEN = "a-token-for-tests"


def start(tmp_path: Path, port: int, runtime_port: int) -> "subprocess.Popen[bytes]":
    settings = ControlSettings(
        port=port,
        state_dir=tmp_path / "state",
        runtime_url=f"http://127.0.0.1:{runtime_port}",
        token=TOKEN,
        leader_ttl_s=1.5,
    )
    path = tmp_path / f"control-{port}.json"
    path.write_text(settings.model_dump_json())
    with (tmp_path / f"control-{port}.log").open("w") as log:
        command = [sys.executable, "-m", "redline.cli", "control", "--settings", str(path)]
        return subprocess.Popen(command, stdout=log, stderr=log)


def answers(url: str, status: int = 200) -> bool:
    try:
        return httpx.get(url).status_code == status
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port, runtime_port = free_ports(2)
    process = start(tmp_path_factory.mktemp("control"), port, runtime_port)
    base = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: answers(f"{base}/readyz"), 30)
        yield base
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0


AUTH = {"Authorization": f"Bearer {TOKEN}"}
WATCHDOG = {
    "version": "4",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "RedlineWatchdog"},
            "annotations": {},
            "startsAt": "2026-01-01T00:00:00Z",
        }
    ],
}


def test_a_data_plane_that_is_away_is_unknown_not_zero(url: str) -> None:
    status = httpx.get(f"{url}/api/status").json()
    assert status["data_plane"] is None
    assert (status["firing"], status["watched"]) == ([], False)
    assert status["watchdog_age_s"] is None
    assert status["leader_epoch"] == 1
    assert status["rule_source"] == "embedded"


def test_the_webhook_wants_its_token_and_a_body_it_can_read(url: str) -> None:
    assert httpx.post(f"{url}/alerts", json=WATCHDOG).status_code == 401
    bad = httpx.post(f"{url}/alerts", content=b"{broken", headers=AUTH)
    assert bad.status_code == 400
    assert "Alertmanager webhook" in bad.json()["error"]
    assert httpx.post(f"{url}/alerts", json=WATCHDOG, headers=AUTH).status_code == 204
    assert httpx.get(f"{url}/api/status").json()["watchdog_age_s"] < 30
    shown = httpx.get(f"{url}/metrics").text
    assert 'redline_control_webhook_alerts_total{result="refused"} 2.0' in shown
    assert "redline_control_watchdog_age_seconds" in shown


def test_commands_are_guarded_and_refusals_are_words(url: str) -> None:
    order = {"actor": "me"}
    assert httpx.post(f"{url}/api/rollout/promote", json=order).status_code == 401
    refused = httpx.post(f"{url}/api/rollout/promote", json=order, headers=AUTH)
    assert refused.status_code == 409
    assert "idle" in refused.json()["error"]
    unknown = httpx.post(f"{url}/api/rollout/promise", json=order, headers=AUTH)
    assert unknown.status_code == 404
    assert "promote" in unknown.json()["error"]
    unreadable = httpx.post(f"{url}/api/rollout/start", json={"weight": 5}, headers=AUTH)
    assert unreadable.status_code == 422
    away = httpx.post(f"{url}/api/rollout/start", json=order, headers=AUTH)
    assert away.status_code == 502


def test_a_freeze_is_journalled_with_its_actor(url: str) -> None:
    assert httpx.post(f"{url}/api/freeze", json={"actor": "ann"}, headers=AUTH).status_code == 200
    assert httpx.get(f"{url}/api/status").json()["ladder_mode"] == "frozen"
    lines = httpx.get(f"{url}/api/journal").json()
    assert ("ann", "ladder.mode") in {(line["actor"], line["kind"]) for line in lines}
    assert httpx.post(f"{url}/api/unfreeze", json={"actor": "ann"}, headers=AUTH).status_code == 200
    assert httpx.get(f"{url}/api/status").json()["ladder_mode"] == "live"


def test_the_page_is_served(url: str) -> None:
    assert "<h2>Who serves</h2>" in httpx.get(url).text


def test_two_control_planes_on_one_journal_have_one_leader(tmp_path: Path) -> None:
    first_port, second_port, runtime_port = free_ports(3)
    first = start(tmp_path, first_port, runtime_port)
    second: subprocess.Popen[bytes] | None = None
    try:
        wait_until(lambda: answers(f"http://127.0.0.1:{first_port}/readyz"), 30)
        second = start(tmp_path, second_port, runtime_port)
        wait_until(lambda: answers(f"http://127.0.0.1:{second_port}/readyz", 503), 30)
        first.kill()
        first.wait()
        wait_until(lambda: answers(f"http://127.0.0.1:{second_port}/readyz"), 30)
        status = json.loads(httpx.get(f"http://127.0.0.1:{second_port}/api/status").content)
        assert status["leader_epoch"] == 2
    finally:
        for process in (first, second):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait(15)


def test_a_leader_that_wakes_up_replaced_ends_with_exit_code_1(tmp_path: Path) -> None:
    """As after a machine that slept, or an event loop that was blocked, for more than the lease."""
    first_port, second_port, runtime_port = free_ports(3)
    first = start(tmp_path, first_port, runtime_port)
    second: subprocess.Popen[bytes] | None = None
    try:
        wait_until(lambda: answers(f"http://127.0.0.1:{first_port}/readyz"), 30)
        second = start(tmp_path, second_port, runtime_port)
        wait_until(lambda: answers(f"http://127.0.0.1:{second_port}/readyz", 503), 30)
        first.send_signal(signal.SIGSTOP)
        wait_until(lambda: answers(f"http://127.0.0.1:{second_port}/readyz"), 30)
        first.send_signal(signal.SIGCONT)
        assert first.wait(20) == 1
        assert answers(f"http://127.0.0.1:{second_port}/readyz")
    finally:
        for process in (first, second):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                process.wait(15)


def cannot_start(tmp_path: Path, port: int) -> str:
    """What it says as it ends with exit code 2."""
    process = start(tmp_path, port, 1)
    assert process.wait(30) == 2
    return (tmp_path / f"control-{port}.log").read_text()


def test_a_taken_port_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = cannot_start(tmp_path, port)
    assert said == (
        f"redline: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "the setting is `port`\n"
    )


def test_a_journal_that_cannot_be_opened_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "journal.db").write_text("this is no database " * 100)
    (said,) = cannot_start(tmp_path, free_ports(1)[0]).splitlines()
    assert "the journal cannot be written" in said


def test_a_state_folder_that_cannot_be_made_is_one_sentence_and_exit_code_2(
    tmp_path: Path,
) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    (said,) = cannot_start(tmp_path, free_ports(1)[0]).splitlines()
    assert said.startswith("redline: ")
    assert "state" in said


def test_settings_that_make_no_sense_are_named(tmp_path: Path) -> None:
    path = tmp_path / "control.json"
    good = {"state_dir": str(tmp_path), "runtime_url": "http://127.0.0.1:1", "token": "t"}
    for bad in ({"token": ""}, {"runtime_url": "runtime:8080"}, {"port": 0}, {"shape": "round"}):
        path.write_text(json.dumps({**good, **bad}))
        with pytest.raises(ValidationError, match=next(iter(bad))):
            ControlSettings.model_validate_json(path.read_bytes())
