"""The control plane's HTTP over a plane in this process: who may, what is refused, and in words."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from fastapi.routing import APIRoute

from alerts.ladder import Mode
from alerts.names import AlertName
from monitors.journal import Entry, JournalUnwritable
from redline.control.app import create_app
from redline.control.ladder_events import MODE
from rollout.store import EVIDENCE_KIND, STATE_KIND
from tests.support.office import TOKEN, Office, in_office, until
from tests.support.sim_dataplane import SimDataPlane
from tests.support.webhook import webhook

AUTH = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def dataplane() -> SimDataPlane:
    return SimDataPlane(time.monotonic)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def office(tmp_path: Path, dataplane: SimDataPlane) -> Office:
    return Office(tmp_path, dataplane)


@pytest.fixture
def app(office: Office) -> FastAPI:
    return create_app(office.plane)


@pytest_asyncio.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Without the lifespan: a test says whether the plane leads."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://control") as made:
        yield made


async def order(client: httpx.AsyncClient, path: str, **more: object) -> httpx.Response:
    return await client.post(path, json={"actor": "ann", **more}, headers=AUTH)


async def test_every_route_that_changes_something_wants_the_token(
    app: FastAPI, client: httpx.AsyncClient, office: Office
) -> None:
    paths = [
        route.path.format(verb="promote")
        for route in app.routes
        if isinstance(route, APIRoute) and route.methods - {"GET", "HEAD"}
    ]
    assert len(paths) == 7
    async with in_office(office):
        for path in [*paths, "/api/freeze", "/api/rollout/rollback"]:
            for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer wrong"}):
                body = webhook(AlertName.WATCHDOG) if path == "/alerts" else b'{"actor": "eve"}'
                answer = await client.post(path, content=body, headers=headers)
                assert answer.status_code == 401, path
                assert "Authorization: Bearer TOKEN" in answer.json()["error"]
        assert office.plane.book.heartbeat_age(time.monotonic()) is None
        assert [e.actor for e in office.plane.journal.read() if e.actor == "eve"] == []


async def test_one_that_stands_by_answers_reads_and_refuses_commands(
    client: httpx.AsyncClient, office: Office
) -> None:
    assert (await client.get("/readyz")).status_code == 503
    status = (await client.get("/api/status")).json()
    assert (status["leader_epoch"], status["rollout"], status["firing"]) == (None, None, None)
    for path in ("/api/freeze", "/api/rollout/start", "/api/rollout/hold"):
        answer = await order(client, path)
        assert answer.status_code == 503
        assert "another control plane leads" in answer.json()["error"]
    await office.plane.close()


async def test_a_freeze_needs_no_disk_and_an_unfreeze_does(
    client: httpx.AsyncClient, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise JournalUnwritable("the disk is full: free some space")

    async with in_office(office):
        with monkeypatch.context() as disk:
            disk.setattr(office.plane.journal, "append", full)
            frozen = await order(client, "/api/freeze")
            assert frozen.status_code == 200
            assert (frozen.json()["frozen"], frozen.json()["unjournalled"]) == (True, 1)
            refused = await order(client, "/api/unfreeze")
            assert refused.status_code == 503
            assert "free some space" in refused.json()["error"]
            status = (await client.get("/api/status")).json()
            assert (status["ladder_mode"], status["rollout"]["frozen"]) == ("frozen", True)
        await until(lambda: office.plane.journal.last(MODE))
        assert (await order(client, "/api/unfreeze")).json()["frozen"] is False


async def test_a_freeze_waits_for_nobody_who_reads_the_journal(
    client: httpx.AsyncClient, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that comes has its ladder read from the journal, all of it."""
    reading, go_on = threading.Event(), threading.Event()
    read = office.plane.journal.read

    def slow(*args: Any, **kwargs: Any) -> list[Entry]:
        reading.set()
        assert go_on.wait(10)
        return read(*args, **kwargs)

    async with in_office(office):
        await until(lambda: office.plane.keeper and office.plane.keeper.status())
        monkeypatch.setattr(office.plane.journal, "read", slow)
        plane = office.plane._dataplane
        assert isinstance(plane, SimDataPlane)
        plane.residents["a"].version = "v7"
        try:
            await until(reading.is_set)
            async with asyncio.timeout(5):
                assert (await order(client, "/api/freeze")).json()["frozen"] is True
            assert office.plane.journal.last(MODE)
        finally:
            go_on.set()


async def test_a_freeze_stops_the_rollout_though_the_ladder_waits_for_the_disk(
    client: httpx.AsyncClient, office: Office
) -> None:
    async with in_office(office):
        assert office.plane.keeper is not None
        async with office.plane.keeper._writing:
            freeze = asyncio.create_task(order(client, "/api/freeze"))
            await until(lambda: office.controller.status().frozen, 5)
            assert office.plane.keeper.mode is Mode.FROZEN
            assert not freeze.done()
        assert (await freeze).status_code == 200


async def test_a_start_says_apart_whether_the_model_or_the_rollout_is_refused(
    client: httpx.AsyncClient, office: Office, dataplane: SimDataPlane
) -> None:
    async with in_office(office):
        dataplane.refuses_models = "no such folder"
        refused = await order(client, "/api/rollout/start", model="/models/v3")
        assert (refused.status_code, "no such folder" in refused.text) == (422, True)
        dataplane.refuses_models = ""
        assert (await order(client, "/api/rollout/start", model="/models/v3")).status_code == 200
        another = await order(client, "/api/rollout/start", model="/models/v3")
        assert (another.status_code, "a rollout is in" in another.text) == (409, True)


async def test_a_dry_run_is_ended_by_an_unfreeze(client: httpx.AsyncClient, office: Office) -> None:
    async with in_office(office):
        assert (await order(client, "/api/dry-run")).status_code == 200
        assert (await client.get("/api/status")).json()["ladder_mode"] == Mode.DRY_RUN
        assert (await order(client, "/api/unfreeze")).status_code == 200
        assert (await client.get("/api/status")).json()["ladder_mode"] == Mode.LIVE
        unknown = await order(client, "/api/thaw")
        assert unknown.status_code == 404
        assert "freeze, unfreeze, dry-run" in unknown.json()["error"]


async def test_a_webhook_that_is_repeated_is_heard_once_and_refusals_are_counted(
    client: httpx.AsyncClient, office: Office
) -> None:
    async with in_office(office):
        for name in (AlertName.WATCHDOG, *[AlertName.NO_TRAFFIC] * 3):
            body = webhook(name)
            assert (await client.post("/alerts", content=body, headers=AUTH)).status_code == 204
        await client.post("/alerts", content=webhook(AlertName.NO_TRAFFIC))
        await client.post("/alerts", content=b"{", headers=AUTH)
        await until(lambda: office.plane.watch and office.plane.watch.firing)
        firing = (await client.get("/api/status")).json()["firing"]
        assert [alert["alert"] for alert in firing] == [AlertName.NO_TRAFFIC]
        shown = office.metrics()
    for result, count in (("taken", 1), ("repeated", 3), ("refused", 2)):
        assert f'webhook_alerts_total{{result="{result}"}} {count}.0' in shown


async def test_one_broken_alert_in_a_batch_is_counted_and_its_reason_answered(
    client: httpx.AsyncClient, office: Office
) -> None:
    batch = json.loads(webhook(AlertName.NO_TRAFFIC)) | {"truncatedAlerts": 2}
    batch["alerts"] += [{"status": "firing"}]
    async with in_office(office):
        answer = await client.post("/alerts", json=batch, headers=AUTH)
        assert answer.status_code == 200, "another code would lose the batch, or bring it for ever"
        assert "1 alerts cannot be used, 2 were left out" in answer.json()["error"]
        assert "missing required field `labels`" in answer.json()["error"]
        shown = office.metrics()
    for result, count in (("taken", 1), ("refused", 3)):
        assert f'webhook_alerts_total{{result="{result}"}} {count}.0' in shown


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    client: httpx.AsyncClient, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redline.control.app._MOST_BYTES", 1_000)
    sent = 0

    async def parts() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b" " * 100

    answer = await client.post("/alerts", content=parts(), headers=AUTH)
    assert answer.status_code == 413
    assert "max_alerts" in answer.json()["error"]
    assert sent < 100
    assert 'webhook_alerts_total{result="refused"} 1.0' in office.metrics()
    await office.plane.close()


async def test_the_journal_is_served_in_bounds_whatever_is_in_it(
    client: httpx.AsyncClient, office: Office
) -> None:
    async with in_office(office):
        assert (await order(client, "/api/freeze")).status_code == 200
        office.plane.journal.append("ladder.moved", "an earlier release", {"old": "form"}, 1)
        lines = (await client.get("/api/journal?newest=3&told=true")).json()
        assert {line["kind"] for line in lines} == {"rollout.state", MODE, "ladder.moved"}
        assert lines[2]["story"] == '{"old":"form"}'
        for newest in (0, -1, 1_000_000):
            assert (await client.get(f"/api/journal?newest={newest}")).status_code == 422


@pytest.mark.parametrize("told", ["true", "false"])
async def test_the_evidence_that_an_earlier_release_journalled_crowds_out_no_rollout(
    client: httpx.AsyncClient, office: Office, told: str
) -> None:
    async with in_office(office):
        assert (await order(client, "/api/freeze")).status_code == 200
        for number in range(20):
            office.plane.journal.append(EVIDENCE_KIND, "rollout", {"number": number}, 1)
        lines = (await client.get(f"/api/journal?newest=5&told={told}")).json()
        assert STATE_KIND in {line["kind"] for line in lines}
        assert EVIDENCE_KIND not in {line["kind"] for line in lines}


def _is_apart(office: Office) -> bool:
    """Whether the plane has seen a class of sessions at a level of its own."""
    observed = office.plane.rounds and office.plane.rounds.observed
    return observed is not None and any(each.apart for each in observed.residents)


async def test_a_level_is_held_by_hand_over_http_and_told_in_the_journal(
    client: httpx.AsyncClient, office: Office
) -> None:
    async with in_office(office):
        await until(lambda: office.plane.keeper is not None and office.plane.keeper.status())
        wish = {"resident": "b", "classes": ["batch"], "parts": {"media": 2}, "for_s": 60.0}
        held = await order(client, "/api/ladder/set", **wish, reason="a fair")
        assert held.status_code == 200, held.text
        (ladder,) = [
            each
            for each in (await client.get("/api/status")).json()["ladders"]
            if each["resident"] == "b"
        ]
        assert ladder["apart"]["batch"]["media"] == 2
        assert ladder["override"]["actor"] == "ann"
        await until(lambda: _is_apart(office))
        levels = (await client.get("/api/status")).json()["levels"]
        assert levels == {"b": "full; batch: media=160x160+8k", "a": "full"}
        for wrong, status in (({"parts": {"kv": 1}}, 409), ({"parts": {"media": "low"}}, 422)):
            refused = await order(client, "/api/ladder/set", **{**wish, **wrong}, reason="")
            assert refused.status_code == status
        assert (await order(client, "/api/ladder/clear", resident="b")).json()["override"] is None
        stories = [line["story"] for line in (await client.get("/api/journal")).json()]
    assert stories[-2:] == [
        "v1: media at 160x160+8k for batch sessions by hand for 60 s (a fair)",
        "v1: held by hand no longer (cleared)",
    ]
