"""Copies of B's requests on A: evidence of A, and nothing that a client could notice."""

import asyncio
from typing import Any

import pytest

from monitors.client_key import digest_of
from runtime.mirror import MOST
from tests.support.gateway import A, B, Gateway, until

pytestmark = pytest.mark.asyncio(loop_scope="package")

SPEECH: dict[str, Any] = {"modalities": ["text", "audio"], "stream": True}


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch, shared: Gateway) -> dict[str, float | None]:
    """How busy each engine is said to be: a test need not wait until that is known."""
    busy: dict[str, float | None] = {A: 0.1, B: 0.1}
    monkeypatch.setattr(shared.plane, "busy_share", busy.__getitem__)
    return busy


async def mirrored(gateway: Gateway, weight: int = 0, **more: Any) -> None:
    answer = await gateway.route(weight, mirror_weight=100, **more)
    assert answer.status_code == 200, answer.text
    assert answer.json()["mirror_weight"] == 100


async def at_rest(gateway: Gateway) -> None:
    await until(lambda: gateway.plane.mirror_status().running == 0)
    await gateway.settled()


def so_far(gateway: Gateway) -> tuple[int, int]:
    """Copies started and given up."""
    status = gateway.plane.mirror_status()
    return status.started, status.dropped


async def test_a_copy_is_evidence_of_a_alone_and_its_answer_is_nobodys(gateway: Gateway) -> None:
    await mirrored(gateway)
    counted = gateway.plane.book.tables().faults
    headers = {"X-Redline-Session": "s-1"}
    answer = await gateway.chat("hello", headers=headers, **SPEECH)
    assert answer.headers["X-Redline-Version"] == "v1"
    assert '"content":"v1 "' in answer.text
    assert '"content":"v2 "' not in answer.text
    await at_rest(gateway)
    for kind, entries in (("milestone", 2), ("finished", 1)):
        own, copied = gateway.bodies(kind, B), gateway.bodies(kind, A)
        assert len(own) == len(copied) == entries
        assert not any(entry.mirror for entry in own)
        assert all(entry.mirror and not entry.operator for entry in copied)
        assert {entry.session for entry in (*own, *copied)} == {"s-1"}
        assert {e.request_id for e in copied}.isdisjoint(e.request_id for e in own)
    rows = gateway.plane.book.tables().faults
    assert [r for r in rows if r.version == "v2"] == [r for r in counted if r.version == "v2"]


async def test_a_fault_that_only_a_has_is_found_in_the_copy(gateway: Gateway) -> None:
    await mirrored(gateway)
    await gateway.drill(A, "truncate")
    await gateway.chat("hello", **SPEECH)
    await at_rest(gateway)
    assert [e.body.faulted for e in gateway.bodies("finished", A)] == [True]  # type: ignore[union-attr]
    assert [e.body.faulted for e in gateway.bodies("finished", B)] == [False]  # type: ignore[union-attr]


async def test_copies_beyond_the_most_are_given_up_and_no_client_waits(gateway: Gateway) -> None:
    await mirrored(gateway)
    await gateway.drill(A, "slow", amount=60.0)
    started, dropped = so_far(gateway)
    for _ in range(MOST + 2):
        answer = await gateway.chat("hi")
        assert (answer.status_code, answer.headers["X-Redline-Version"]) == (200, "v1")
    assert so_far(gateway) == (started + MOST, dropped + 2)
    assert (await gateway.status(A))["in_flight"] == MOST
    await until(lambda: len(gateway.bodies("line", A)) == 2 * MOST)
    assert gateway.bodies("line", B) == []

    await gateway.route(0)
    path = f"/residents/{A}/drain"
    report = (await gateway.led("POST", path, mode="finish", timeout_s=5.0)).json()
    assert (report["remaining"], report["finished"], report["aborted"]) == (0, 0, 0)
    assert (await gateway.status(A))["in_flight"] == 0
    endings = [e.body for e in gateway.bodies("finished", A)]
    assert [(e.outcome, e.faulted) for e in endings] == [("cancelled", False)] * MOST  # type: ignore[union-attr]


async def test_a_death_under_copies_is_evidence_and_no_clients_trouble(gateway: Gateway) -> None:
    await mirrored(gateway)
    await gateway.drill(A, "slow", amount=60.0)
    assert (await gateway.chat("hi")).status_code == 200
    await gateway.drill(A, "kill")
    await at_rest(gateway)
    (ending,) = gateway.bodies("finished", A)
    assert (ending.mirror, ending.body.outcome, ending.body.faulted) == (True, "lost", True)  # type: ignore[union-attr]
    started, _ = so_far(gateway)
    assert (await gateway.chat("hi")).status_code == 200
    assert so_far(gateway)[0] == started, "the route was dropped with A"
    await until(lambda: gateway.plane.is_ready(A))


@pytest.mark.parametrize("name", [A, B])
@pytest.mark.parametrize("busy", [None, 0.9])
async def test_there_are_no_copies_while_either_works_hard_or_nobody_knows(
    gateway: Gateway, idle: dict[str, float | None], name: str, busy: float | None
) -> None:
    await mirrored(gateway)
    idle[name] = busy
    started, dropped = so_far(gateway)
    assert (await gateway.chat("hi")).status_code == 200
    assert so_far(gateway) == (started, dropped + 1)


@pytest.mark.parametrize("name", [A, B])
async def test_there_are_no_copies_while_either_is_degraded(gateway: Gateway, name: str) -> None:
    await mirrored(gateway)
    await gateway.level(name, media=1)
    started, dropped = so_far(gateway)
    await gateway.chat("hi")
    assert so_far(gateway) == (started, dropped + 1)


async def test_only_clients_own_requests_that_b_serves_are_copied(gateway: Gateway) -> None:
    started, dropped = so_far(gateway)
    await gateway.chat("nothing is ordered")
    await mirrored(gateway, clients={"deny": [digest_of("k")]})
    await gateway.chat("of a denied client", headers={"Authorization": "Bearer k"})
    await gateway.chat("an operator's", headers={"X-Redline-Resident": B})
    await mirrored(gateway, weight=100)
    await gateway.chat("on A")
    await mirrored(gateway, lease_s=0.1)
    await asyncio.sleep(0.15)
    await gateway.chat("after the lease")
    assert so_far(gateway) == (started, dropped)


async def test_what_a_copy_left_in_the_cache_proves_a_flush(gateway: Gateway) -> None:
    await mirrored(gateway)
    await gateway.chat("five words that are kept")
    await at_rest(gateway)
    await gateway.route(0)
    epoch = (gateway.plane.pool_epoch(A) or 0) + 1
    await gateway.led("POST", f"/residents/{A}/flush", min_pool_epoch=epoch)
    probe = (await gateway.led("POST", f"/residents/{A}/probe", pool_epoch=epoch)).json()
    assert (probe["verified"], probe["witness_tokens"], probe["cached_tokens"]) == (True, 5, 0)
