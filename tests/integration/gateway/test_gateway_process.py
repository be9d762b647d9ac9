"""The gateway as a process: a clean end by signal, one sentence where it cannot start."""

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from runtime.settings import RuntimeSettings
from tests.support.gateway import settings_for, until
from tests.support.ports import free_ports

SCRIPT = str(Path(__file__).parents[2] / "support" / "scripted_gateway.py")


@asynccontextmanager
async def a_process(
    settings: RuntimeSettings, *, ready: bool = True
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The gateway in a process; with `ready`, once its stable resident can serve."""
    file = settings.state_dir.with_suffix(".json")
    file.write_text(settings.model_dump_json())
    process = await asyncio.create_subprocess_exec(
        sys.executable, SCRIPT, str(file), stderr=asyncio.subprocess.PIPE
    )
    try:
        if ready:
            url = f"http://127.0.0.1:{settings.port}/readyz"
            await until(lambda: process.returncode is not None or _answers(url))
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def a_client(settings: RuntimeSettings) -> httpx.AsyncClient:
    url = f"http://127.0.0.1:{settings.port}"
    return httpx.AsyncClient(base_url=url, timeout=30, trust_env=False)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=1, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def on_free_port(folder: Path, **more: Any) -> RuntimeSettings:
    return settings_for(folder, port=free_ports(1)[0], **more)


async def test_sigterm_ends_it_cleanly_and_tells_the_streams_in_flight(tmp_path: Path) -> None:
    settings = on_free_port(tmp_path)
    async with a_process(settings) as process, a_client(settings) as client:
        engines = psutil.Process(process.pid).children()
        assert len(engines) == 2
        body = {"model": "redline", "messages": [{"role": "user", "content": "@hang"}]}
        stream = asyncio.create_task(client.post("/v1/chat/completions", json=body))
        await asyncio.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), 15)
        assert process.returncode == 0, errors.decode()
        assert (await stream).json()["error"]["code"] == "server_stopping"
    assert psutil.wait_procs(engines, timeout=0)[1] == []


async def test_sigint_ends_it_cleanly_and_lets_a_long_poll_go(tmp_path: Path) -> None:
    settings = on_free_port(tmp_path)
    async with a_process(settings) as process, a_client(settings) as client:
        seen = (await client.get("/evidence")).json()
        after = f"incarnation={seen['incarnation']}&after={seen['next_seq'] - 1}"
        poll = asyncio.create_task(client.get(f"/evidence?{after}&wait=30"))
        await asyncio.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, errors = await asyncio.wait_for(process.communicate(), 15)
        assert process.returncode == 0, errors.decode()
        assert (await poll).status_code == 200


async def test_engines_end_by_themselves_when_it_dies_without_a_word(tmp_path: Path) -> None:
    async with a_process(on_free_port(tmp_path)) as process:
        engines = psutil.Process(process.pid).children()
        assert len(engines) == 2
        process.kill()
        await process.wait()
    gone, alive = psutil.wait_procs(engines, timeout=10)
    assert (len(gone), alive) == (2, [])


async def test_a_port_that_is_taken_is_one_clear_sentence_and_exit_code_2(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with a_process(settings_for(tmp_path, port=port), ready=False) as process:
            _, errors = await process.communicate()
    assert process.returncode == 2
    (sentence,) = errors.decode().splitlines()
    assert sentence.startswith(f"redline runtime: port {port} of 127.0.0.1 is taken")


async def test_a_fence_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    settings = on_free_port(tmp_path)
    settings.state_dir.mkdir()
    (settings.state_dir / "fence.json").write_text("{")
    async with a_process(settings, ready=False) as process:
        _, errors = await process.communicate()
    assert process.returncode == 2
    assert "fence.json" in errors.decode()


@pytest.mark.parametrize("content", ["{", '{"port": 1, "shape": "round"}'])
async def test_settings_that_make_no_sense_stop_the_start(tmp_path: Path, content: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(content)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "runtime.gateway", "--settings", str(file),
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert str(file) in errors.decode()
