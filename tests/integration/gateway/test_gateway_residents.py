"""Engines that die, hang or never start: the others keep serving, and nothing stays behind."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from monitors import catalog
from monitors.contract import KvRung
from monitors.redlines import EntropyThresholds, RedLines
from runtime.residents.local import LocalResident, ResidentLost
from runtime.residents.port import (
    Failed,
    Finished,
    Generate,
    ResidentError,
    Snapshot,
    TextPart,
    Turn,
)
from runtime.settings import ResidentSpec
from tests.support.gateway import (
    SCRIPTED,
    A,
    B,
    Gateway,
    events_of,
    running_gateway,
    settings_for,
    until,
)


def a_request(text: str, request_id: str = "r", max_tokens: int = 3) -> Generate:
    return Generate(
        request_id=request_id,
        session="s",
        turns=(Turn(role="user", parts=(TextPart(text=text),)),),
        max_tokens=max_tokens,
        speech=False,
        voice="v",
        salt="",
    )


def a_resident(folder: Path, checkpoint: Path | None = None, **more: Any) -> LocalResident:
    spec = ResidentSpec(name="a", version="v2", checkpoint=checkpoint or folder)
    lines = folder / "lines.json"
    lines.write_text(RedLines().model_dump_json())
    given = {
        "state_dir": folder, "lines": lines, "min_epoch": 3, "on_snapshot": lambda _: None,
        "worker": SCRIPTED,
    }  # fmt: skip
    return LocalResident(spec, **{**given, **more})


# ---------------------------------------------------------------- one resident alone
async def test_a_resident_serves_and_is_reaped_when_it_is_closed(tmp_path: Path) -> None:
    resident = a_resident(tmp_path)
    ready = await resident.load()
    assert (ready.version, ready.pool_epoch) == ("v2", 3)
    events = [event async for event in resident.generate(a_request("hi"), [])]
    assert isinstance(events[-1], Finished)
    assert await resident.set_kv(KvRung.INT8) == 1
    assert (await resident.observe()).kv is KvRung.INT8
    pid = resident.pid
    assert pid is not None
    await resident.close()
    assert not psutil.pid_exists(pid)
    assert [name for name in os.listdir(tmp_path) if name.endswith(".sock")] == []
    with pytest.raises(ResidentLost):
        await resident.observe()


async def test_an_engine_that_cannot_start_says_why(tmp_path: Path) -> None:
    resident = a_resident(tmp_path, checkpoint=tmp_path / "nowhere")
    with pytest.raises(ResidentLost, match=r"code 1.*no checkpoint at .*nowhere"):
        await resident.load()


async def test_a_state_folder_too_deep_for_a_socket_is_an_error_that_says_so(
    tmp_path: Path,
) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    with pytest.raises(ResidentError, match="cannot be started"):
        await a_resident(deep).load()


async def test_a_death_ends_every_request_and_call_in_flight(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("the words of an earlier life\n")
    resident = a_resident(tmp_path)
    await resident.load()
    streams = [
        asyncio.create_task(_last(resident, a_request("@hang", request_id=f"r{i}")))
        for i in range(3)
    ]
    await asyncio.sleep(0.05)
    assert resident.pid is not None
    os.kill(resident.pid, signal.SIGSTOP)
    call = asyncio.create_task(resident.observe())
    await asyncio.sleep(0.05)
    os.kill(resident.pid, signal.SIGKILL)
    lasts = await asyncio.gather(*streams)
    assert [(e.kind, e.request_id) for e in lasts] == [("lost", f"r{i}") for i in range(3)]
    with pytest.raises(ResidentLost, match="code -9; the end of its log: empty"):
        await call
    await resident.kill()


async def test_a_death_is_noticed_even_if_its_log_is_gone(tmp_path: Path) -> None:
    resident = a_resident(tmp_path)
    await resident.load()
    (tmp_path / "a.log").unlink()
    assert resident.pid is not None
    os.kill(resident.pid, signal.SIGKILL)
    assert "cannot be read (No such file" in await asyncio.wait_for(resident.lost, 10)
    await resident.kill()


async def test_a_message_that_fails_here_ends_the_engine_instead_of_all_listening(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: Snapshot) -> None:
        raise KeyError("no such metric")

    resident = a_resident(tmp_path, on_snapshot=fails)
    with suppress(ResidentLost):  # the first snapshot comes with the first words
        await resident.load()
    assert "no such metric" in await asyncio.wait_for(resident.lost, 10)
    assert "an engine's message failed here" in caplog.text
    await resident.kill()


async def _last(resident: LocalResident, request: Generate) -> Failed:
    last = None
    async for event in resident.generate(request, []):
        last = event
    assert isinstance(last, Failed)
    return last


async def test_an_engine_that_falls_silent_is_lost(tmp_path: Path) -> None:
    resident = a_resident(tmp_path, silence_s=0.8)
    await resident.load()
    failed = await asyncio.wait_for(_last(resident, a_request("@stall")), 10)
    assert "said nothing for 0.8 s" in failed.message
    await resident.kill()


async def test_a_request_that_is_let_go_is_cancelled_in_the_engine(tmp_path: Path) -> None:
    resident = a_resident(tmp_path)
    await resident.load()
    events = resident.generate(a_request("talk", max_tokens=500), [])
    await anext(events)
    assert (await resident.observe()).running == 1
    await events.aclose()
    assert (await resident.observe()).running == 0
    await resident.close()


# ---------------------------------------------------------------- two behind a gateway
async def test_a_kill_of_the_canary_hurts_its_own_streams_alone_and_it_comes_back(
    fresh: Gateway,
) -> None:
    await fresh.route(50)
    sessions = {name: await _session_of(fresh, name) for name in (A, B)}
    streams = {
        name: asyncio.create_task(
            fresh.chat(
                "talk", max_tokens=100, stream=True, headers={"X-Redline-Session": sessions[name]}
            )
        )
        for name in (A, B)
    }
    await until(lambda: all(_talks(fresh, name) for name in (A, B)))
    pid = (await fresh.status(A))["pid"]
    os.kill(pid, signal.SIGKILL)

    broken = events_of((await streams[A]).text)
    assert broken[-1]["error"]["code"] == "resident_lost"
    assert len(broken) > 1, "what was sent before the kill stays sent"
    assert (await fresh.status(A))["weight"] == 0
    assert (await fresh.chat("hi", headers={"X-Redline-Session": sessions[A]})).headers[
        "X-Redline-Version"
    ] == "v1", "its sessions are B's now"
    whole = events_of((await streams[B]).text)
    assert len(whole) == 101, "B did not notice"

    (lost,) = [e.body for e in fresh.bodies("finished", A) if e.session == sessions[A]][-1:]
    assert (lost.outcome, lost.faulted) == ("lost", True)
    states = dict.fromkeys(e.body.state for e in fresh.bodies("resident", A))
    assert list(states)[1] == "dead"
    await until(lambda: fresh.plane.is_ready(A))
    status = await fresh.status(A)
    assert (status["restarts"], status["weight"]) == (1, 0)
    assert status["pid"] != pid
    assert (await fresh.route(50)).status_code == 200
    answer = await fresh.chat("hi", headers={"X-Redline-Session": sessions[A]})
    assert answer.headers["X-Redline-Version"] == "v2"


async def _session_of(gateway: Gateway, name: str) -> str:
    """A session that is routed to a resident."""
    return next(f"s{i}" for i in range(999) if gateway.plane.router.pick(f"s{i}") == name)


def _talks(gateway: Gateway, name: str) -> bool:
    return gateway.plane.in_flight(name) == 1 and bool(gateway.bodies("milestone", name))


async def test_a_request_of_a_dead_canary_is_answered_by_the_stable_one_if_nothing_was_sent(
    fresh: Gateway,
) -> None:
    await fresh.route(100)
    await fresh.drill(A, "slow", amount=30.0)
    silent = asyncio.create_task(fresh.chat("not a word yet", stream=True))
    await until(lambda: fresh.plane.in_flight(A) == 1)
    await asyncio.sleep(0.05)
    await fresh.drill(A, "kill")
    answer = await silent
    assert (answer.status_code, answer.headers["X-Redline-Version"]) == (200, "v1")
    endings = [(e.resident, e.body.outcome) for e in fresh.bodies("finished")]  # type: ignore[union-attr]
    assert endings == [(A, "lost"), (B, "ok")]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_engine_that_dies_in_mid_answer_is_an_error_to_its_client(
    fresh: Gateway, stream: bool
) -> None:
    answer = await fresh.chat("@die", stream=stream)
    if stream:
        assert events_of(answer.text)[-1]["error"]["code"] == "resident_lost"
    else:
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "resident_lost")
        assert "Retry-After" in answer.headers


async def test_without_a_stable_resident_the_answer_is_a_503_with_retry_after(
    tmp_path: Path,
) -> None:
    settings = settings_for(tmp_path)
    (tmp_path / "v1").rmdir()  # B's checkpoint: it cannot start
    async with running_gateway(settings, wait=False) as gateway:
        await until(lambda: gateway.plane.is_ready(A))
        answer = await gateway.chat("hi")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_resident")
        assert "Retry-After" in answer.headers
        assert (await gateway.client.get("/readyz")).status_code == 503
        assert (await gateway.client.get("/healthz")).status_code == 200
        await until(lambda: "no checkpoint" in gateway.plane.supervisors[B].detail)
        assert (await gateway.route(5)).status_code == 409, "a canary needs both"
        pinned = await gateway.chat("hi", headers={"X-Redline-Resident": A})
        assert pinned.status_code == 200


async def test_an_engine_that_is_loading_is_flushed_once_it_is_there(tmp_path: Path) -> None:
    async with running_gateway(settings_for(tmp_path), wait=False) as gateway:
        await until(lambda: gateway.plane.supervisors[A].pid)
        assert not gateway.plane.is_ready(A)
        flushed = await gateway.led("POST", f"/residents/{A}/flush", min_pool_epoch=9)
        assert (flushed.json()["new_epoch"], flushed.json()["complete"]) == (9, True)
        status = await gateway.status(A)
        assert (status["pool_epoch"], status["restarts"]) == (9, 0)


async def test_a_restart_of_the_data_plane_forgets_no_fence_and_gives_the_canary_nothing(
    tmp_path: Path,
) -> None:
    settings = settings_for(tmp_path)
    async with running_gateway(settings) as gateway:
        await gateway.route(50, route_epoch=7, leader_epoch=4)
        await gateway.led("POST", f"/residents/{A}/flush", min_pool_epoch=9)
        incarnation = gateway.plane.incarnation
    async with running_gateway(settings) as gateway:
        observed = (await gateway.client.get("/control")).json()
        assert observed["incarnation"] != incarnation
        assert (observed["leader_epoch"], observed["route_epoch"]) == (4, 7)
        assert observed["canary_weight"] == 0
        status = await gateway.status(A)
        assert (status["min_pool_epoch"], status["pool_epoch"]) == (9, 9)
        assert (await gateway.route(5, route_epoch=6)).status_code == 409
        assert (await gateway.route(50, route_epoch=7)).status_code == 200


async def test_a_resident_without_a_role_is_not_shown_in_its_former_one(fresh: Gateway) -> None:
    async def shown() -> list[str]:
        lines = (await fresh.client.get("/metrics")).text.split("\n")
        return sorted(line for line in lines if line.startswith("redline_resident_info{"))

    assert ['role="canary"' in line for line in await shown()] == [True, False]
    await fresh.route(0, stable=A, canary=None)
    (alone,) = await shown()
    assert 'resident="a",role="stable"' in alone


async def test_swapped_roles_survive_a_restart(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    async with running_gateway(settings) as gateway:
        await gateway.route(0, stable=A, canary=B)
    async with running_gateway(settings) as gateway:
        assert (await gateway.chat("hi")).headers["X-Redline-Version"] == "v2"


async def test_no_engine_outlives_its_gateway(tmp_path: Path) -> None:
    async with running_gateway(settings_for(tmp_path)) as gateway:
        pids = [(await gateway.status(name))["pid"] for name in (A, B)]
        assert all(psutil.pid_exists(pid) for pid in pids)
    assert not any(psutil.pid_exists(pid) for pid in pids)


async def test_the_end_of_a_kill_drill_kills_nobody(fresh: Gateway) -> None:
    before = (await fresh.status(A))["pid"]
    assert (await fresh.drill(A, "kill", seconds=0.0)).json()["running"] is False
    assert (await fresh.chat("hi", headers={"X-Redline-Resident": A})).status_code == 200
    assert (await fresh.status(A))["pid"] == before


async def test_what_only_a_dead_engine_knew_is_unknown(fresh: Gateway) -> None:
    waiting = f'{catalog.WAITING.name}{{version="v2"}}'
    await until(lambda: {A, B} <= fresh.plane.snapshots.keys())
    cells = f'{catalog.LIVE_BYTES.name}{{layer_id="0",modality="text",version="v2"}}'
    before = (await fresh.client.get("/metrics")).text
    assert waiting in before
    assert cells in before
    await fresh.drill(A, "kill")
    await until(lambda: not fresh.plane.is_ready(A))
    after = (await fresh.client.get("/metrics")).text
    assert waiting not in after
    assert cells not in after
    assert fresh.plane.kv_in_use(A) is None
    assert A in fresh.plane.snapshots, "a flush of the dead one tells what went with it"
    shown = fresh.plane.book.tables()
    assert {row.version for row in (*shown.cache, *shown.cache_summary)} == {"v1"}


async def test_an_operators_request_to_one_that_is_not_ready_is_nobodys_traffic(
    fresh: Gateway,
) -> None:
    refused = f'{catalog.REQUESTS.name}{{outcome="refused",version="v2"}}'
    await fresh.drill(A, "kill")
    await until(lambda: not fresh.plane.is_ready(A))
    assert (await fresh.chat("hi", headers={"X-Redline-Resident": A})).status_code == 503
    assert f"{refused} 0.0" in (await fresh.client.get("/metrics")).text


async def test_the_red_lines_of_the_settings_reach_the_engines(tmp_path: Path) -> None:
    lines = RedLines(entropy=EntropyThresholds(text=0.123))
    async with running_gateway(settings_for(tmp_path, lines=lines)) as gateway:
        await until(lambda: B in gateway.plane.snapshots)
        assert [cell.entropy_th for cell in gateway.plane.snapshots[B].cells] == [0.123]


async def test_the_sockets_of_a_data_plane_that_was_killed_are_cleared_away(
    tmp_path: Path,
) -> None:
    settings = settings_for(tmp_path)
    settings.state_dir.mkdir()
    left = settings.state_dir / "a.1f.sock"
    left.touch()
    async with running_gateway(settings) as gateway:
        assert not left.exists()
        assert (await gateway.chat("hi")).status_code == 200


async def test_the_level_is_set_again_on_an_engine_that_restarted(fresh: Gateway) -> None:
    await fresh.level(B, kv=1)
    await until(lambda: B in fresh.plane.snapshots and fresh.plane.snapshots[B].kv == 1)
    await fresh.drill(B, "kill")
    await until(lambda: not fresh.plane.is_ready(B))
    await until(lambda: fresh.plane.is_ready(B))
    fresh.plane.snapshots.clear()
    await until(lambda: B in fresh.plane.snapshots and fresh.plane.snapshots[B].kv == 1)
