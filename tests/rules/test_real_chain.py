"""From a counter to the alert book through a real Prometheus and a real Alertmanager."""

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from alerts.names import AlertName
from alerts.policy import make
from alerts.receiver import AlertBook, is_authorised
from alerts.routing import render_alertmanager
from alerts.rules import prometheus_flags, render_prometheus, render_rules
from monitors import catalog
from monitors.labels import Action, Milestone
from monitors.redlines import AlertLines, FaultLines, LatencyLines, RedLines

TOKEN = "a-token-for-this-test"
FEW = make(RedLines(latency=LatencyLines(min_count=20), faults=FaultLines(min_count=20)))
PATIENCE_S = 60.0  # a bound for a starved machine; it takes about five seconds


class Planes(ThreadingHTTPServer):
    """Both planes in one: `/metrics` with one latency row, and the webhook."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.book = AlertBook(AlertLines())
        self.in_time, self.overdue = 0, 0
        self.unauthorised = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def metrics(self) -> str:
        labels = f'version="v1",milestone="{Milestone.FIRST_TOKEN}"'
        bucket = f"{catalog.FIRST_OUTPUT.name}_bucket"
        return (
            f'{bucket}{{{labels},le="0.4"}} {self.in_time}\n'
            f'{bucket}{{{labels},le="+Inf"}} {self.in_time + self.overdue}\n'
            f"{catalog.OVERDUE.name}{{{labels}}} {self.overdue}\n"
        )


class _Handler(BaseHTTPRequestHandler):
    server: Planes

    def do_GET(self) -> None:
        self._answer(200, self.server.metrics().encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not is_authorised(self.headers["Authorization"], TOKEN):
            self.server.unauthorised += 1
            self._answer(401, b"")
            return
        self.server.book.receive(body, time.monotonic())
        self._answer(200, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture
def planes() -> Iterator[Planes]:
    with Planes() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(folder: Path, *command: str) -> Iterator[None]:
    assert shutil.which(command[0]), f"{command[0]} is missing: deploy/debian-packages ..."
    with (folder / f"{command[0]}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def alerting(planes: Planes, tmp_path: Path) -> Iterator[None]:
    """Prometheus and Alertmanager, configured as everywhere, on free ports."""
    prometheus, alertmanager = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    (tmp_path / "token").write_text(TOKEN + "\n")
    (tmp_path / "rules.yml").write_text(render_rules(FEW))
    (tmp_path / "prometheus.yml").write_text(
        render_prometheus(
            runtime=planes.address,
            control=planes.address,
            alertmanager=alertmanager,
            rule_file="rules.yml",
        )
    )
    (tmp_path / "alertmanager.yml").write_text(
        render_alertmanager(
            FEW,
            webhook_url=f"http://{planes.address}/alerts",
            credentials_file=str(tmp_path / "token"),
        )
    )
    with (
        running(
            tmp_path,
            "prometheus-alertmanager",
            f"--config.file={tmp_path}/alertmanager.yml",
            f"--storage.path={tmp_path}/alertmanager",
            f"--web.listen-address={alertmanager}",
            "--cluster.listen-address=",
        ),
        running(
            tmp_path,
            "prometheus",
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/prometheus",
            f"--web.listen-address={prometheus}",
            *prometheus_flags(AlertLines()),
        ),
    ):
        yield


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


@pytest.mark.usefixtures("alerting")
def test_a_breach_travels_to_the_alert_book_and_leaves_it_again(planes: Planes):
    def firing() -> set[str]:
        return {each.alert for each in planes.book.firing(time.monotonic())}

    wait_for(lambda: planes.book.heartbeat_age(time.monotonic()) is not None)
    assert AlertName.LATENCY_DEGRADE not in firing()
    planes.in_time, planes.overdue = 40, 5
    wait_for(lambda: AlertName.LATENCY_DEGRADE in firing())
    degrade = next(
        each
        for each in planes.book.firing(time.monotonic())
        if each.alert == AlertName.LATENCY_DEGRADE
    )
    assert (degrade.action, degrade.version) == (Action.DEGRADE_MEDIA, "v1")
    assert degrade.summary == "11.11% of the requests on v1 are past 400 ms to first_token"
    planes.in_time += 2_000
    wait_for(lambda: AlertName.LATENCY_DEGRADE not in firing())
    assert planes.unauthorised == 0
