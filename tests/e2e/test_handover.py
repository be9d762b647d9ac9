"""A Prometheus that dies while an alert fires, and comes back: one firing, one move, no gap."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from alerts.firing import NEWS
from alerts.names import AlertName
from alerts.policy import make
from bench.alerts_gateway import Breach, Gateway, serving
from bench.alerts_paths import client_of, commands, until_evaluated
from monitors.redlines import AlertLines, LadderLines, LatencyLines, RedLines
from tests.support.ports import free_ports
from tests.support.prometheus import needs_prometheus

LINES = RedLines(
    latency=LatencyLines(window_s=10.0, min_count=20),
    alerts=AlertLines(repeat_s=5.0),
    ladder=LadderLines(dwell_s=900.0, relapse_s=1.0),  # so that one rung is all that it moves
)
POLICY = make(LINES)
SETTLE_S = 17.0  # window and repeat, until Prometheus decides alone
WHO = "r1"


@contextmanager
def process(log: Path, command: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("ab") as out:
        running = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield running
    finally:
        running.kill()
        running.wait(10)


@asynccontextmanager
async def breaching(gateway: Gateway) -> AsyncIterator[None]:
    """Requests of one resident hang, every second."""

    async def breach() -> None:
        while True:
            gateway.breach(WHO, Breach.LATENCY)
            await asyncio.sleep(1.0)

    task = asyncio.create_task(breach())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Eye:
    """Looks at the status again and again, and remembers what it saw."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.missed: list[float] = []
        self.sources: list[str] = []

    async def until(self, holds: Callable[[dict[str, Any]], bool], within_s: float) -> float:
        """How long it took; notes each look at which the alert did not fire."""
        began = time.monotonic()
        while time.monotonic() - began < within_s:
            status = (await self._client.get("/api/status")).json()
            if self.sources[-1:] != [status["rule_source"]]:
                self.sources.append(status["rule_source"])
            if not fires(status):
                self.missed.append(time.monotonic() - began)
            if holds(status):
                return time.monotonic() - began
            await asyncio.sleep(0.2)
        raise TimeoutError(f"not so within {within_s} s: {status}")

    async def watch(self, seconds: float) -> None:
        with pytest.raises(TimeoutError):
            await self.until(lambda _: False, seconds)


def fires(status: dict[str, Any]) -> bool:
    return any(
        (each["alert"], each["version"]) == (AlertName.LATENCY_DEGRADE, "v1")
        for each in status["firing"]
    )


@pytest.mark.slow
@needs_prometheus
async def test_a_prometheus_that_dies_and_comes_back_drops_no_firing_and_moves_nothing_twice(
    tmp_path: Path,
) -> None:
    gateway, ports, log = Gateway(LINES, 4), free_ports(4), tmp_path / "log"
    control, alertmanager, prometheus = commands(tmp_path, ports, POLICY, prometheus=True)
    async with serving(gateway, ports[0]), client_of(ports[1]) as client, breaching(gateway):
        with process(log, control), process(log, alertmanager):
            with process(log, prometheus):
                await until_evaluated(client, "prometheus")
                await Eye(client).until(fires, 60)
                await asyncio.sleep(SETTLE_S)
            eye = Eye(client)
            silent_s = await eye.until(lambda s: s["rule_source"] == "embedded", 60)
            # The last heartbeat comes up to five seconds after the end: Alertmanager repeats it.
            assert LINES.alerts.heartbeat_silence_s - 6 < silent_s < 45
            await eye.watch(10)
            with process(log, prometheus):
                await eye.until(lambda s: s["rule_source"] == "prometheus", 60)
                await eye.watch(SETTLE_S + 5)
            assert eye.missed == []
            assert eye.sources == ["prometheus", "embedded", "prometheus"]
            entries = (await client.get("/api/journal")).json()
    news = [e["body"] for e in entries if e["kind"] == NEWS and e["body"]["version"] == "v1"]
    told = [n["state"] for n in news if n["alert"] == AlertName.LATENCY_DEGRADE]
    assert told == ["firing"]
    assert [e["body"]["rung"] for e in entries if e["kind"] == "ladder.moved"] == [1]
