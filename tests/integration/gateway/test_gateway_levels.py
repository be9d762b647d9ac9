"""Levels over HTTP: who may order them, whom they are for, what they do, and who is told."""

import asyncio
import json
from typing import Any

import pytest

from monitors.contract import KvRung, SessionClass
from runtime.residents.port import ResidentError
from tests.support.gateway import A, B, Gateway, events_of, until

pytestmark = pytest.mark.asyncio(loop_scope="package")

BATCH = {"X-Redline-Class": "batch"}
LEVEL = {"media": 1, "kv": 0, "shed": 0, "admission": 0}


def order_of_level(resident: str, **more: Any) -> dict[str, Any]:
    given = {
        "operation_id": "op-7", "resident": resident, "classes": ["interactive", "batch"],
        "level": LEVEL, "lease_s": 60.0, "actor": "test", "reason": "test",
    }  # fmt: skip
    return {**given, **more}


def waiting(gateway: Gateway) -> int | None:
    """How many requests wait in B's engine; None before it told."""
    snapshot = gateway.plane.snapshots.get(B)
    return None if snapshot is None else snapshot.waiting


# ---------------------------------------------------------------- who may order
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/route", {"route_epoch": 99, "stable": B, "canary": A, "canary_weight": 0}),
        ("PUT", f"/levels/{B}", order_of_level(B)),
        ("POST", f"/residents/{A}/drain", {"mode": "finish", "timeout_s": 1.0}),
        ("POST", f"/residents/{A}/flush", {"min_pool_epoch": 99}),
        ("POST", f"/residents/{A}/probe", {"pool_epoch": 1}),
    ],
    ids=["route", "level", "drain", "flush", "probe"],
)
async def test_no_order_of_a_leader_that_was_replaced_is_taken(
    gateway: Gateway, method: str, path: str, body: dict[str, Any]
) -> None:
    await gateway.route(0, leader_epoch=5)
    before = [await gateway.status(name) for name in (A, B)]
    answer = await gateway.order(method, path, leader_epoch=4, **body)
    assert answer.status_code == 409
    assert answer.json()["leader_epoch"] == 5
    kept = ("level", "apart", "weight", "min_pool_epoch", "pool_epoch")
    for old in before:
        now = await gateway.status(old["name"])
        assert [now[key] for key in kept] == [old[key] for key in kept]


async def test_an_operation_id_means_one_level_and_repeats_change_nothing(
    gateway: Gateway,
) -> None:
    path, order = f"/levels/{B}", order_of_level(B)
    assert (await gateway.led("PUT", path, **order)).status_code == 200
    changes = len(gateway.bodies("resident", B))
    assert (await gateway.led("PUT", path, **order)).status_code == 200
    assert len(gateway.bodies("resident", B)) == changes
    reused = await gateway.led("PUT", path, **{**order, "level": {**LEVEL, "kv": 1}})
    assert reused.status_code == 409
    assert "'op-7' was another level before" in reused.json()["error"]
    assert (await gateway.status(B))["level"] == LEVEL


async def test_an_order_that_comes_too_late_is_refused_and_says_so(gateway: Gateway) -> None:
    newer = order_of_level(B, operation_id="op-9", classes=["batch"], sequence=9)
    assert (await gateway.led("PUT", f"/levels/{B}", **newer)).status_code == 200
    late = await gateway.led("PUT", f"/levels/{B}", **order_of_level(B, sequence=8))
    assert late.status_code == 409
    assert "order 8 is too late" in late.json()["error"]
    assert (await gateway.status(B))["level"]["media"] == 0


@pytest.mark.parametrize("classes", [[], ["everybody"]])
async def test_an_order_names_the_classes_it_is_for(gateway: Gateway, classes: list[str]) -> None:
    answer = await gateway.led("PUT", f"/levels/{B}", **order_of_level(B, classes=classes))
    assert answer.status_code == 422
    assert (await gateway.status(B))["level"]["media"] == 0


# ---------------------------------------------------------------- whom it is for
async def test_sessions_are_served_at_the_level_of_their_class(gateway: Gateway) -> None:
    await gateway.level(B, classes=[SessionClass.BATCH], media=2, kv=1)
    batch = await gateway.chat("hi", headers=BATCH)
    assert batch.headers["X-Redline-Level"] == "media=160x160+8k kv=int8"
    for headers in ({}, {"X-Redline-Class": "interactive"}):
        answer = await gateway.chat("hi", headers=headers)
        assert answer.headers["X-Redline-Level"] == "kv=int8", "the engine has one format"
    status = await gateway.status(B)
    assert (status["level"]["media"], status["apart"]["batch"]["media"]) == (0, 2)


async def test_evidence_says_whose_level_it_is(gateway: Gateway) -> None:
    """A rollout compares A and B class by class, also where one of them has no request of it."""
    gateway.since = gateway.plane.book.evidence.newest_seq
    await gateway.level(B, classes=[SessionClass.BATCH], media=2)
    await gateway.chat("hi", headers=BATCH)
    for tag in ("resident", "finished"):
        level_of = {e.session_class: e.level.media for e in gateway.bodies(tag, B)}
        assert level_of[SessionClass.BATCH] == 2
    assert {e.session_class for e in gateway.bodies("finished", B)} == {SessionClass.BATCH}
    told = {e.session_class: e.level.media for e in gateway.bodies("resident", B)}
    assert told == {SessionClass.INTERACTIVE: 0, SessionClass.BATCH: 2}
    by_hand = {e.session_class: set(e.by_hand) for e in gateway.bodies("resident", B)}
    assert by_hand[SessionClass.BATCH] == {"media", "kv", "shed", "admission"}
    assert by_hand[SessionClass.INTERACTIVE] >= {"kv", "shed"}, "the engine's are of all sessions"


async def test_the_metrics_tell_the_level_of_each_class(gateway: Gateway) -> None:
    await gateway.level(B, classes=[SessionClass.BATCH], media=2)
    exposed = (await gateway.client.get("/metrics")).text
    for session_class, rung in (("interactive", 0), ("batch", 2)):
        labels = f'part="media",session_class="{session_class}",version="v1"'
        assert f"redline_ladder_level{{{labels}}} {rung:.1f}" in exposed


async def test_a_class_that_there_is_not_is_a_bad_request_that_says_which_there_are(
    shared: Gateway,
) -> None:
    answer = await shared.chat("hi", headers={"X-Redline-Class": "urgent"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["type"]) == ("x-redline-class", "invalid_request_error")
    assert "'urgent' is not one of interactive, batch" in error["message"]


async def test_limited_admission_turns_away_new_sessions_of_its_class_until_it_is_over(
    gateway: Gateway,
) -> None:
    known = {**BATCH, "X-Redline-Session": "a known one"}
    await gateway.chat("hi", headers=known)
    await gateway.level(B, classes=[SessionClass.BATCH], admission=1)
    turned_away = await gateway.chat("hi", headers={**BATCH, "X-Redline-Session": "a new one"})
    assert (turned_away.status_code, turned_away.json()["error"]["code"]) == (
        429, "admission_limited",
    )  # fmt: skip
    assert int(turned_away.headers["Retry-After"]) > 0
    assert (await gateway.chat("hi", headers=known)).status_code == 200
    assert (await gateway.chat("hi")).status_code == 200
    await gateway.level(B)
    assert (await gateway.chat("hi", headers=BATCH)).status_code == 200


# ---------------------------------------------------------------- what it does
async def test_shedding_reaches_the_engine_and_is_undone(gateway: Gateway) -> None:
    """The scripted engine shows the order it was given in its count of the waiting."""
    await gateway.level(B, shed=1)
    await until(lambda: waiting(gateway) == 1, 5)
    assert gateway.plane.snapshots[A].waiting == 0
    await gateway.level(B)
    await until(lambda: waiting(gateway) == 0, 5)


async def test_what_an_engine_does_not_take_is_said_once_and_tried_until_it_does(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    resident = gateway.plane.supervisors[B].resident
    why, asked = ["no room"], list[KvRung]()

    async def refuses(kv: KvRung) -> int:
        asked.append(kv)
        raise ResidentError(why[0])

    def said() -> list[str]:
        return [r.getMessage() for r in caplog.records if "not applied" in r.getMessage()]

    monkeypatch.setattr(resident, "set_kv", refuses)
    await gateway.level(B, shed=1, kv=1)
    await until(lambda: len(asked) > 2, 5)
    assert said() == ["the level kv=int8 shed=on is not applied: no room"]
    assert (await gateway.status(B))["detail"] == said()[0]
    why[0] = "still no room"
    await until(lambda: len(said()) > 1, 5)
    monkeypatch.undo()
    await gateway.level(B)
    await until(lambda: waiting(gateway) == 0, 5)
    assert len(said()) == 2
    await until(lambda: not gateway.plane.observed().residents[1].detail, 5)


async def test_an_engine_that_was_restarted_is_brought_to_the_level_again(
    gateway: Gateway,
) -> None:
    await gateway.level(B, shed=1, kv=1)
    await until(lambda: waiting(gateway) == 1, 5)
    before = (await gateway.status(B))["restarts"]
    await gateway.drill(B, "kill")
    await until(lambda: gateway.plane.supervisors[B].restarts > before, 10)
    await until(lambda: gateway.plane.is_ready(B), 10)
    await until(lambda: waiting(gateway) == 1, 5)
    assert gateway.plane.snapshots[B].kv == 1


async def test_a_stream_keeps_its_level_and_tells_at_its_end_what_the_next_one_would_have(
    gateway: Gateway,
) -> None:
    body = {
        "model": "redline", "messages": [{"role": "user", "content": "talk"}], "stream": True,
        "stream_options": {"include_usage": True}, "max_tokens": 40,
    }  # fmt: skip
    running = asyncio.create_task(gateway.client.post("/v1/chat/completions", json=body))
    await until(lambda: gateway.plane.in_flight(B))
    await gateway.level(B, media=1)
    answer = await running
    assert answer.headers["X-Redline-Level"] == "full"
    told = events_of(answer.text)[-1]["redline"]
    assert (told["level"], told["level_now"]) == ("full", "media=360p+8k")
    whole = await gateway.chat("hi")
    assert json.loads(whole.content)["redline"]["level_now"] == "media=360p+8k"
