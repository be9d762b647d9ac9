"""Both planes answer without Nagle's algorithm, which costs 40 ms where the client waits with its
acknowledgement: asyncio switches it off only on sockets that say that they are TCP."""

import socket
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from redline.control.app import serve as serve_control
from redline.control.settings import ControlSettings
from runtime.gateway import serve as serve_gateway
from tests.support.gateway import settings_for
from tests.support.ports import free_ports


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Protocols of the sockets that a server was told to listen on; it does not start."""
    found: list[int] = []

    def run(_: uvicorn.Server, sockets: list[socket.socket]) -> None:
        found.extend(each.proto for each in sockets)

    monkeypatch.setattr(uvicorn.Server, "run", run)
    monkeypatch.setattr("monitors.logs.configure", lambda *_: None)  # the log is pytest's
    return found


def test_the_control_plane_listens_on_a_socket_that_says_so(
    tmp_path: Path, listening: list[int]
) -> None:
    more: dict[str, Any] = {"port": free_ports(1)[0], "state_dir": tmp_path / "state"}
    serve_control(ControlSettings(runtime_url="http://127.0.0.1:1", token="t", **more))
    assert listening == [socket.IPPROTO_TCP]


def test_the_gateway_listens_on_a_socket_that_says_so(tmp_path: Path, listening: list[int]) -> None:
    serve_gateway(settings_for(tmp_path, port=free_ports(1)[0]))
    assert listening == [socket.IPPROTO_TCP]
