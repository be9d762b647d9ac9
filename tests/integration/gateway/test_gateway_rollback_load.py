"""Cut over again and again under load: nothing starts on A once weight 0 is acknowledged, and every
client gets an answer or an error that says what to do."""

import asyncio
import base64
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from monitors.contract import Route
from runtime import turns
from runtime.fence import FenceFile
from runtime.orders import Orders
from runtime.residents.local import LocalResident
from tests.support import media
from tests.support.gateway import A, Gateway, events_of, running_gateway, settings_for, until

CLIENTS = 12
CUT_OVERS = 15
PICTURE = f"data:image/png;base64,{base64.b64encode(media.png(64, 48)).decode()}"


class Watcher:
    """What starts on A, and whether A may be given work: from the order of a weight on (the order
    itself is on its way) until weight 0 is acknowledged. All of it is on one event loop."""

    def __init__(self, patch: pytest.MonkeyPatch, chance: random.Random) -> None:
        self.open = False
        self.started = 0
        self.late: list[str] = []
        self._generate, self._route = LocalResident.generate, Orders.route
        self._store, self._build = FenceFile.store, turns.build
        self._chance = chance
        watcher = self
        patch.setattr(LocalResident, "generate", lambda *given: watcher.generate(*given))
        patch.setattr(Orders, "route", lambda *given: watcher.route(*given))
        patch.setattr(FenceFile, "store", lambda *given: watcher.slowly(watcher._store, *given))
        patch.setattr(turns, "build", lambda *given: watcher.slowly(watcher._build, *given))

    async def generate(self, resident: LocalResident, request: Any, arrays: Any) -> Any:
        if resident.name == A:
            self.started += 1
            if not self.open:
                self.late.append(request.request_id)
        events = self._generate(resident, request, arrays)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    async def route(self, orders: Orders, route: Route) -> None:
        given = route.canary_weight > 0 or route.mirror_weight > 0
        self.open = self.open or given
        await self._route(orders, route)
        self.open = given

    def slowly(self, really: Any, *given: Any) -> Any:
        """Disks and decoders take their time, so that orders and requests overtake each other."""
        time.sleep(0.03 * self._chance.random())
        return really(*given)


def a_body(chance: random.Random) -> dict[str, Any]:
    words: list[dict[str, Any]] = [{"type": "text", "text": "talk"}]
    if chance.random() < 0.5:
        words.append({"type": "image_url", "image_url": {"url": PICTURE}})
    return {
        "model": "redline",
        "stream": chance.random() < 0.5,
        "max_tokens": chance.choice([1, 4, 20]),
        "messages": [{"role": "user", "content": words}],
    }


def ending(answer: httpx.Response, streamed: bool) -> str:
    """How a client's answer ended: `whole`, or the code of an error that it may ask again after."""
    error = None
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert "Retry-After" in answer.headers
    elif streamed:
        error = events_of(answer.text)[-1].get("error")
    if error is None:
        return "whole"
    assert error["retryable"] is True
    assert error["message"].endswith("ask again")
    return error["code"]


async def a_client(
    gateway: Gateway, chance: random.Random, over: asyncio.Event, told: Counter[str]
) -> None:
    while not over.is_set():
        body = a_body(chance)
        answer = await gateway.client.post("/v1/chat/completions", json=body)
        told[ending(answer, body["stream"])] += 1


async def a_leader(
    gateway: Gateway, chance: random.Random, over: asyncio.Event, watcher: Watcher
) -> None:
    for turn in range(CUT_OVERS):
        before = watcher.started
        weight, copies = ((100, 0), (50, 0), (0, 100), (50, 100))[turn % 4]
        assert (await gateway.route(weight, mirror_weight=copies)).status_code == 200
        await until(lambda: watcher.started > before)  # noqa: B023 - it is awaited right here
        await asyncio.sleep(0.05 * chance.random())
        assert (await gateway.route(0)).status_code == 200
        assert gateway.plane.router.weight(A) == 0
        path = f"/residents/{A}/drain"
        report = await gateway.led("POST", path, mode="abort", timeout_s=5.0)
        assert report.json()["remaining"] == 0
        await asyncio.sleep(0.05 * chance.random())
    over.set()


async def test_nothing_starts_on_a_after_the_acknowledgement_and_every_client_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, over, told = random.Random(7), asyncio.Event(), Counter[str]()
    watcher = Watcher(monkeypatch, chance)
    async with running_gateway(settings_for(tmp_path)) as gateway:
        gateway.plane.busy_share = lambda name: 0.1  # nothing stands against copies
        async with asyncio.TaskGroup() as all_of_them:
            for _ in range(CLIENTS):
                all_of_them.create_task(a_client(gateway, chance, over, told))
            all_of_them.create_task(a_leader(gateway, chance, over, watcher))
        await until(lambda: not gateway.app.state.flights._flights)
        await gateway.settled()
    assert watcher.late == []
    assert watcher.started >= CUT_OVERS, "A had work to lose, each time"
    assert set(told) <= {"whole", "resident_cut_over"}
    assert told["whole"]
