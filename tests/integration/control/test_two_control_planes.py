"""Two control planes on two machines, one journal in a real PostgreSQL, one data plane."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from monitors.journal import JournalUnwritable
from redline.control.settings import ControlSettings
from rollout.rollback import Step
from tests.support.gateway import settings_for
from tests.support.office import Office, in_office, until
from tests.support.ports import free_ports
from tests.support.postgres import Cluster
from tests.support.sim_dataplane import SimDataPlane
from tests.support.stack import wait_until

TTL_S = 2.0
TOKEN = "the-token"
AUTH = {"Authorization": f"Bearer {TOKEN}"}
GATEWAY = Path(__file__).parents[2] / "support" / "scripted_gateway.py"


@contextmanager
def process(log: Path, command: list[str], **more: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Until the block ends, stopped or not."""
    with log.open("ab") as out:
        started = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **more})
    try:
        yield started
    finally:
        if started.poll() is None:
            started.send_signal(signal.SIGCONT)
            started.terminate()
            started.wait(20)


def control(folder: Path, name: str, port: int, runtime_port: int) -> list[str]:
    """A control plane with nothing in common with another one but what it is told."""
    settings = ControlSettings(
        port=port,
        state_dir=folder / name,
        runtime_url=f"http://127.0.0.1:{runtime_port}",
        token=TOKEN,
        leader_ttl_s=TTL_S,
        tick_s=0.2,
    )
    path = folder / f"{name}.json"
    path.write_text(settings.model_dump_json())
    return [sys.executable, "-m", "redline.cli", "control", "--settings", str(path)]


def status_of(port: int, path: str = "readyz") -> int | None:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/{path}", timeout=2, trust_env=False).status_code
    except httpx.HTTPError:
        return None


def post(port: int, path: str, **order: object) -> httpx.Response:
    url = f"http://127.0.0.1:{port}/api/{path}"
    body = {"actor": "ann", **order}
    return httpx.post(url, json=body, headers=AUTH, timeout=30, trust_env=False)


def test_the_other_takes_over_within_the_lease_and_the_one_revived_is_refused(
    tmp_path: Path, postgres: Cluster
) -> None:
    gateway_port, first_port, second_port = free_ports(3)
    settings = settings_for(tmp_path, port=gateway_port, control_token=TOKEN)
    (tmp_path / "gateway.json").write_text(settings.model_dump_json())
    url = {"REDLINE_JOURNAL_URL": postgres.fresh()}
    log = tmp_path / "log"
    with (
        process(log, [sys.executable, str(GATEWAY), str(tmp_path / "gateway.json")]),
        process(log, control(tmp_path, "first", first_port, gateway_port), **url) as first,
    ):
        wait_until(lambda: status_of(gateway_port) == 200, 60)
        wait_until(lambda: status_of(first_port) == 200, 60)
        with process(log, control(tmp_path, "second", second_port, gateway_port), **url):
            wait_until(lambda: status_of(second_port) == 503, 60)
            assert post(first_port, "rollout/start").status_code == 200
            first.send_signal(signal.SIGSTOP)
            began = time.monotonic()
            wait_until(lambda: status_of(second_port) == 200, 60)
            assert TTL_S / 2 < time.monotonic() - began < TTL_S + 8.0  # on a busy machine
            assert post(second_port, "rollout/hold").json()["plan"]["canary"] == "a"
            first.send_signal(signal.SIGCONT)
            assert first.wait(30) == 1
            late = {"leader_epoch": 1, "route_epoch": 99, "stable": "a", "lease_s": 1.0}
            route = f"http://127.0.0.1:{gateway_port}/control/route"
            refused = httpx.put(route, json=late, headers=AUTH, trust_env=False)
            assert refused.status_code == 409, refused.text
            lines = httpx.get(f"http://127.0.0.1:{second_port}/api/journal").json()
            assert [line["leader_epoch"] for line in lines] == sorted(
                line["leader_epoch"] for line in lines
            )
            assert {line["leader_epoch"] for line in lines} == {1, 2}


@pytest.fixture
def dataplane() -> SimDataPlane:
    return SimDataPlane(time.monotonic)  # pyright: ignore[reportArgumentType]


async def test_with_the_server_away_a_rollback_goes_ahead_and_is_journalled_later(
    tmp_path: Path, postgres: Cluster, dataplane: SimDataPlane
) -> None:
    office = Office(tmp_path, dataplane, journal_url=postgres.fresh())
    async with in_office(office) as running:
        controller = office.controller
        plan, _ = await controller.propose()
        await controller.start(plan, "ann")
        await until(lambda: dataplane.canary_weight)
        await controller.freeze("ann")
        postgres.stop()
        try:
            with pytest.raises(JournalUnwritable):
                await controller.unfreeze("ann")  # it would let A have more
            await controller.rollback("ann", "for a test")
            found = controller.status()
            assert (found.rollback and found.rollback.done, dataplane.canary_weight) == (True, 0)
            assert found.quarantined
            assert found.unjournalled > 0
            await until(lambda: "redline_control_journal_writable 0.0" in office.metrics())
            assert not running.done(), "nobody else leads"
        finally:
            postgres.start()
        await until(lambda: controller.status().unjournalled == 0)
        await controller.unfreeze("ann")
        told = [entry.kind for entry in office.plane.journal.read()]
        assert told.count("rollback.step") == 2 * (
            len(Step) - 1
        )  # begun and proved, but for the intent
        assert told[-1] == "rollout.state"
        assert not running.done()
        assert not office.deposed
