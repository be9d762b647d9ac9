"""Orders that make a resident ready for a rollout: a rehearsed breach in the evidence log."""

import msgspec
import pytest

from monitors.preparing import RehearsalReport
from monitors.redlines import RedLines
from rollout.plan import make_plan
from rollout.rehearsal import Rehearsal
from tests.support.gateway import VERSIONS, A, B, Gateway

pytestmark = pytest.mark.asyncio(loop_scope="package")

PLAN = make_plan(RedLines(), stable=B, canary=A, version=VERSIONS[A])


async def shown(gateway: Gateway) -> list[object]:
    """The fault table, and the requests that went wrong."""
    tables, wrong = [await gateway.client.get(path) for path in ("/tables", "/requests")]
    return [tables.json()["faults"], wrong.json()]


async def test_a_rehearsed_breach_is_called_by_who_reads_the_log_and_counts_nowhere(
    gateway: Gateway,
) -> None:
    before = await shown(gateway)
    rehearsal = Rehearsal(PLAN, "r1", 0.0, 5.0)
    order = msgspec.to_builtins(rehearsal.order(gateway.plane.router.fence.leader_epoch))
    answer = await gateway.order("POST", f"/residents/{A}/rehearse", **order)
    report = msgspec.json.decode(answer.content, type=RehearsalReport)
    entries = [e for tag in ("fault", "finished") for e in gateway.bodies(tag, A, rehearsed=True)]
    assert report.entries == len(entries)
    assert all(entry.operator and entry.rehearsal == "r1" for entry in entries)
    log = gateway.plane.book.evidence
    rehearsal.take((await log.after(log.incarnation, gateway.since)).entries, 0.5)
    assert rehearsal.proof is not None
    assert await shown(gateway) == before


async def test_a_stale_leader_rehearses_nothing(gateway: Gateway) -> None:
    await gateway.route(0, leader_epoch=gateway.plane.router.fence.leader_epoch + 1)
    order = {"leader_epoch": 0, "rehearsal": "r2", "requests": 3}
    assert (await gateway.order("POST", f"/residents/{A}/rehearse", **order)).status_code == 409
    assert gateway.bodies("fault", rehearsed=True) == []


@pytest.mark.parametrize("requests", [0, 1_001])
async def test_a_rehearsal_of_no_or_too_many_requests_is_refused(
    gateway: Gateway, requests: int
) -> None:
    answer = await gateway.led(
        "POST", f"/residents/{A}/rehearse", rehearsal="r3", requests=requests
    )
    assert answer.status_code == 422
