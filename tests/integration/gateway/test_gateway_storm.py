"""A storm: clients that come and go, orders and deaths at random; the books balance at its end."""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from monitors import catalog
from monitors.labels import Outcome
from tests.support.gateway import A, B, Gateway, running_gateway, settings_for, until

STORM_S = 3.0
CLIENTS = 8


async def a_client(gateway: Gateway, chance: random.Random, over: asyncio.Event) -> None:
    """Asks this and that; leaves in the middle of some answers."""
    while not over.is_set():
        text = chance.choice(["hi", "hi", "talk", "@hang", "@fail", "@bad", "@shed"])
        more: dict[str, Any] = {"max_tokens": chance.choice([1, 3, 40])}
        more["stream"] = chance.random() < 0.6
        more["headers"] = {"X-Redline-Session": f"s{chance.randrange(50)}"}
        asking = asyncio.create_task(gateway.chat(text, **more))
        if text == "@hang" or chance.random() < 0.3:
            await asyncio.sleep(0.3 * chance.random())
            asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def an_operator(gateway: Gateway, chance: random.Random, over: asyncio.Event) -> None:
    """Routes, drains, flushes, probes and kills; an order may be refused."""
    resident = f"/residents/{A}"
    while not over.is_set():
        match chance.choice(["route", "route", "drain", "flush", "probe", "kill"]):
            case "route":
                await gateway.route(chance.choice([0, 5, 50, 100]))
            case "drain":
                mode = chance.choice(["abort", "finish"])
                await gateway.led("POST", f"{resident}/drain", mode=mode, timeout_s=0.2)
            case "flush":
                epoch = gateway.plane.min_pool_epoch(A) + 1
                await gateway.led("POST", f"{resident}/flush", min_pool_epoch=epoch)
            case "probe":
                epoch = gateway.plane.min_pool_epoch(A)
                await gateway.led("POST", f"{resident}/probe", pool_epoch=epoch)
            case _ if chance.random() < 0.3:
                await gateway.drill(A, "kill")
        assert sum(gateway.plane.router.weight(name) for name in (A, B)) == 100
        await asyncio.sleep(0.1 * chance.random())


async def a_storm(gateway: Gateway, seed: int) -> None:
    over, chance = asyncio.Event(), random.Random(seed)
    asyncio.get_running_loop().call_later(STORM_S, over.set)
    async with asyncio.TaskGroup() as all_of_them:
        for _ in range(CLIENTS):
            all_of_them.create_task(a_client(gateway, chance, over))
        all_of_them.create_task(an_operator(gateway, chance, over))


async def test_after_a_storm_every_request_has_ended_once_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    async with running_gateway(settings_for(tmp_path)) as gateway:
        await asyncio.gather(*(gateway.chat("hi") for _ in range(CLIENTS + 2)))  # connections
        unserved = counted_unserved(gateway)
        tasks, files = len(asyncio.all_tasks()), psutil.Process().num_fds()
        await a_storm(gateway, seed=1)
        await until(lambda: len(gateway.plane.ready()) == 2)
        await until(lambda: not gateway.app.state.flights._flights)

        await gateway.settled()
        endings = gateway.bodies("finished")
        assert len(endings) > 50
        assert set(Counter((e.request_id, e.resident) for e in endings).values()) == {1}
        told = Counter(str(e.body.outcome) for e in endings)  # type: ignore[union-attr]
        counted = counts((await gateway.client.get("/metrics")).text)
        assert told + unserved == counted
        for name in (A, B):
            assert (await gateway.plane.supervisors[name].resident.observe()).running == 0
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        assert psutil.Process().num_fds() <= files


def counted_unserved(gateway: Gateway) -> Counter[str]:
    """From now on: requests that never reached a resident, of which there is no evidence."""
    found, count = Counter[str](), gateway.plane.book.unserved

    def unserved(version: str, outcome: Outcome) -> None:
        found[str(outcome)] += 1
        count(version, outcome)

    gateway.plane.book.unserved = unserved
    return found


def counts(exposed: str) -> Counter[str]:
    """Requests by outcome, all versions together."""
    found: Counter[str] = Counter()
    for line in exposed.split("\n"):
        if line.startswith(f"{catalog.REQUESTS.name}{{"):
            count = round(float(line.split()[-1]))
            found[line.split('outcome="')[1].split('"')[0]] += count
    return +found  # without the zeros
