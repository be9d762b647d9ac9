"""Speech judged behind the client's back: nobody waits for a verdict, and none is lost or late."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from monitors.contract import Evidence
from monitors.detectors.finding import Verdict
from monitors.labels import Detector, Outcome
from tests.support.gateway import (
    VERSIONS,
    A,
    B,
    Gateway,
    events_of,
    running_gateway,
    settings_for,
    until,
)

pytestmark = pytest.mark.asyncio(loop_scope="package")

SPEECH = {"modalities": ["text", "audio"], "audio": {"voice": "ethan", "format": "pcm16"}}


@contextmanager
def judge_held_up(gateway: Gateway) -> Iterator[None]:
    """While inside, the threads that judge have something else to judge."""
    gate = threading.Event()

    def judge() -> Verdict:
        gate.wait(20.0)
        return ()

    for name in VERSIONS:
        gateway.plane.verdicts.ask(name, {Detector.SPEECH: judge}, lambda _: None)
    try:
        yield
    finally:
        gate.set()


async def ask(gateway: Gateway, text: str, *, stream: bool = True, **more: Any) -> httpx.Response:
    """Without waiting for the verdict."""
    message = {"role": "user", "content": text}
    body = {"model": "redline", "messages": [message], "stream": stream, **SPEECH, **more}
    return await gateway.client.post("/v1/chat/completions", json=body)


def endings(gateway: Gateway) -> Counter[tuple[str, str]]:
    found = gateway.bodies("finished")
    return Counter((e.resident, str(e.body.outcome)) for e in found)  # type: ignore[union-attr]


def told(gateway: Gateway, resident: str) -> list[str]:
    """Rules of faults, and endings, in the order of the log."""
    log = gateway.plane.book.evidence
    entries: tuple[Evidence, ...] = log._batch(gateway.since, 100_000).entries  # pyright: ignore[reportPrivateUsage]
    named = [(e.resident, getattr(e.body, "rule", getattr(e.body, "outcome", ""))) for e in entries]
    return [str(what) for name, what in named if name == resident and what]


async def test_no_client_waits_for_a_verdict(gateway: Gateway) -> None:
    with judge_held_up(gateway):
        streamed = await asyncio.wait_for(ask(gateway, "talk", max_tokens=3), 10.0)
        whole = await asyncio.wait_for(ask(gateway, "talk", stream=False, max_tokens=3), 10.0)
        assert events_of(streamed.text)[-1]["choices"][0]["finish_reason"] == "stop"
        assert whole.json()["choices"][0]["message"]["audio"]["data"]
        assert endings(gateway) == Counter()
        assert gateway.plane.in_flight(B) == 0
    await gateway.settled()
    assert endings(gateway) == {(B, Outcome.OK): 2}


async def test_speech_under_the_drill_is_a_fault_and_its_request_is_faulted(
    gateway: Gateway,
) -> None:
    await gateway.drill(B, "truncate")
    await ask(gateway, "talk", max_tokens=4)
    await gateway.settled()
    rules = told(gateway, B)
    assert rules[-1] == Outcome.OK
    assert "samples_lost" in rules[:-1]
    (ending,) = gateway.bodies("finished", B)
    assert ending.body.faulted  # type: ignore[union-attr]
    (fault,) = [e.body for e in gateway.bodies("fault", B) if e.body.rule == "samples_lost"]  # type: ignore[union-attr]
    assert fault.detector is Detector.SPEECH  # type: ignore[union-attr]
    assert fault.value < fault.limit  # type: ignore[union-attr,operator]


async def test_speech_that_is_cut_over_has_one_ending_behind_its_fault(gateway: Gateway) -> None:
    await gateway.route(100)
    talking = asyncio.create_task(ask(gateway, "talk", max_tokens=200))
    await until(lambda: len(gateway.bodies("milestone", A)) == 2, 5)
    await gateway.route(0)
    drained = await gateway.led("POST", f"/residents/{A}/drain", mode="abort", timeout_s=5.0)
    assert drained.json()["aborted"] == 1
    assert events_of((await talking).text)[-1]["error"]["code"] == "resident_cut_over"
    await gateway.settled()
    rules = told(gateway, A)
    assert rules[-1] == Outcome.LOST
    assert rules.count("no_final_event") == 1
    assert endings(gateway) == {(A, Outcome.LOST): 1}


async def test_speech_that_its_client_left_has_one_ending_and_no_fault(gateway: Gateway) -> None:
    talking = asyncio.create_task(ask(gateway, "talk", max_tokens=200))
    await until(lambda: len(gateway.bodies("milestone", B)) == 2, 5)
    talking.cancel()
    await until(lambda: gateway.plane.in_flight(B) == 0)
    await gateway.settled()
    assert endings(gateway) == {(B, Outcome.CANCELLED): 1}
    assert gateway.bodies("fault", B) == []


async def test_a_flush_waits_for_what_is_still_to_be_said_of_its_resident(
    gateway: Gateway,
) -> None:
    """Else a fault of before would count against the epoch after."""
    await gateway.route(100)
    await gateway.drill(A, "truncate")
    with judge_held_up(gateway):
        await ask(gateway, "talk", max_tokens=4)
        await gateway.route(0)
        epoch = gateway.plane.pool_epoch(A)
        assert epoch is not None
        path = f"/residents/{A}/flush"
        flushing = asyncio.create_task(gateway.led("POST", path, min_pool_epoch=epoch + 1))
        await asyncio.sleep(0.2)
        assert not flushing.done()
    assert (await flushing).json()["complete"]
    assert endings(gateway)[A, Outcome.OK] == 1
    rows = gateway.plane.book.faults.rows()
    assert [row for row in rows if row.version == "v2"] == []


async def test_a_detector_that_hangs_on_one_resident_holds_up_no_flush_for_long(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway.plane.verdicts, "_wait_s", 0.1)
    with judge_held_up(gateway):
        await ask(gateway, "talk", max_tokens=3)
        epoch = gateway.plane.pool_epoch(B)
        assert epoch is not None
        path = f"/residents/{B}/flush"
        flushed = await asyncio.wait_for(gateway.led("POST", path, min_pool_epoch=epoch + 1), 10.0)
        assert flushed.json()["complete"]
        assert endings(gateway) == {(B, Outcome.OK): 1}
    await gateway.settled()
    assert endings(gateway) == {(B, Outcome.OK): 1}


async def test_every_verdict_is_written_before_the_gateway_ends(tmp_path: Path) -> None:
    async with running_gateway(settings_for(tmp_path)) as gateway:
        held_up = ExitStack()
        held_up.enter_context(judge_held_up(gateway))
        await ask(gateway, "talk", max_tokens=3)
        asyncio.get_running_loop().call_later(0.3, held_up.close)
        assert endings(gateway) == Counter()
    assert endings(gateway) == {(B, Outcome.OK): 1}
