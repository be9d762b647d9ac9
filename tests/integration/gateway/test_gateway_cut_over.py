"""What clients get when the resident that serves them is taken out of traffic (DESIGN 8)."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from monitors import catalog
from runtime import flight
from runtime.settings import MediaLimits
from tests.support import media
from tests.support.gateway import A, B, Gateway, events_of, running_gateway, settings_for, until

pytestmark = pytest.mark.asyncio(loop_scope="package")

PICTURE_BYTES = 64 * 48 * 3


async def in_flight_on_a(gateway: Gateway, words: Any, **more: Any) -> "asyncio.Task[Any]":
    """A request under way on A, which has all the sessions."""
    before = gateway.plane.in_flight(A)
    task = asyncio.create_task(gateway.chat(words, **more))
    await until(lambda: gateway.plane.in_flight(A) == before + 1)
    return task


async def cut_over(gateway: Gateway) -> dict[str, Any]:
    """A out of traffic, its streams aborted; the report."""
    await gateway.route(0)
    path = f"/residents/{A}/drain"
    return (await gateway.led("POST", path, mode="abort", timeout_s=5.0)).json()


def picture_and(words: str) -> list[dict[str, Any]]:
    url = f"data:image/png;base64,{base64.b64encode(media.png(64, 48)).decode()}"
    return [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": words}]


async def test_a_stream_that_had_begun_ends_in_an_error_that_says_what_to_do(
    gateway: Gateway,
) -> None:
    await gateway.route(100)
    talking = await in_flight_on_a(gateway, "talk", max_tokens=200, stream=True)
    await until(lambda: gateway.bodies("milestone", A), 5)
    assert (await cut_over(gateway))["aborted"] == 1
    answer = await talking
    last = events_of(answer.text)[-1]
    assert last["error"]["code"] == "resident_cut_over"
    assert (last["error"]["retryable"], last["error"]["retry_after_s"]) == (True, 1)
    assert last["error"]["message"].endswith("discard what came of this answer and ask again")
    assert last["redline"]["request_id"] == answer.headers["X-Redline-Request"]


async def test_a_request_that_is_replayed_counts_once_where_it_was_begun_again(
    gateway: Gateway,
) -> None:
    def served(version: str) -> float:
        shown = gateway.plane.render_metrics(None)[0].decode()
        (line,) = [x for x in shown.split("\n") if x.startswith(f'{name}{{version="{version}"}}')]
        return float(line.split()[-1])

    name = catalog.SERVED_REQUESTS.name
    before = {version: served(version) for version in ("v1", "v2")}
    await gateway.route(100)
    silent = await in_flight_on_a(gateway, "talk", max_tokens=60)
    await until(lambda: gateway.bodies("milestone", A), 5)
    assert (await cut_over(gateway))["replayed"] == 1
    assert (await silent).status_code == 200
    assert (served("v1") - before["v1"], served("v2") - before["v2"]) == (1.0, 0.0)
    endings = [(e.resident, e.body) for e in gateway.bodies("finished")]
    assert [(name, body.outcome, body.faulted) for name, body in endings] == [  # type: ignore[union-attr]
        (A, "replayed", False),
        (B, "ok", False),
    ]


async def test_a_line_that_was_crossed_before_a_replay_stays_crossed(gateway: Gateway) -> None:
    await gateway.route(100)
    await gateway.drill(A, "slow", amount=30.0)
    hung = await in_flight_on_a(gateway, "hi", max_tokens=1, stream=True)
    await until(lambda: len(gateway.bodies("line", A)) == 2, 5)
    assert (await cut_over(gateway))["replayed"] == 1
    assert (await hung).headers["X-Redline-Version"] == "v1"
    assert len(gateway.bodies("line", A)) == 2
    assert len(gateway.bodies("milestone", A)) == 0
    assert gateway.bodies("line", B) == [], "its clock begins with the second leg"


async def test_what_was_too_large_to_be_kept_is_told_and_counted(tmp_path: Path) -> None:
    limits = MediaLimits(replay_bytes=PICTURE_BYTES)
    async with running_gateway(settings_for(tmp_path, limits=limits)) as gateway:
        await gateway.route(100)
        await gateway.drill(A, "slow", amount=30.0)
        kept = await in_flight_on_a(gateway, picture_and("kept"), stream=True)
        inputs = gateway.plane.inputs
        await until(lambda: inputs.total == PICTURE_BYTES)
        unkept = await in_flight_on_a(gateway, picture_and("not kept"))
        words = await in_flight_on_a(gateway, "words are always kept")
        flights = gateway.app.state.flights
        await until(lambda: [f.held_bytes for f in flights.on(A)] == [PICTURE_BYTES, 0, 0])
        report = await cut_over(gateway)
        assert (report["replayed"], report["aborted"], report["unkept"]) == (2, 1, 1)
        told = await unkept
        assert (told.status_code, told.json()["error"]["code"]) == (503, "input_not_kept")
        assert told.json()["error"]["retryable"] is True
        assert told.headers["Retry-After"] == "1"
        for answer in (await kept, await words):
            assert (answer.status_code, answer.headers["X-Redline-Version"]) == (200, "v1")
        assert inputs.total == 0


async def test_a_death_is_told_in_the_same_way_where_inputs_were_not_kept(tmp_path: Path) -> None:
    limits = MediaLimits(replay_bytes=1)
    async with running_gateway(settings_for(tmp_path, limits=limits)) as gateway:
        await gateway.route(100)
        await gateway.drill(A, "slow", amount=30.0)
        unkept = await in_flight_on_a(gateway, picture_and("not kept"))
        await until(lambda: gateway.app.state.flights.on(A)[0].legs)
        await gateway.drill(A, "kill")
        assert (await unkept).json()["error"]["code"] == "input_not_kept"
        (ending,) = gateway.bodies("finished")
        assert (ending.resident, ending.body.outcome, ending.body.faulted) == (A, "lost", True)  # type: ignore[union-attr]


async def test_once_a_stream_has_begun_its_large_inputs_are_let_go(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "MAX_BYTES", PICTURE_BYTES - 1)
    talking = asyncio.create_task(gateway.chat(picture_and("talk"), max_tokens=60, stream=True))
    await until(lambda: gateway.plane.inputs.total == PICTURE_BYTES)
    await until(lambda: gateway.plane.inputs.total == 0)
    assert gateway.plane.in_flight(B) == 1, "it still talks"
    assert events_of((await talking).text)[-1]["choices"][0]["finish_reason"] == "stop"
