"""`X-Redline-Resident`: an operator's smoke test of one resident, which counts nowhere else."""

import re

import pytest

from monitors import catalog
from tests.support.gateway import A, B, Gateway

pytestmark = pytest.mark.asyncio(loop_scope="package")

PINNED = {"X-Redline-Resident": A}
COUNTED = (catalog.REQUESTS, catalog.SERVED_REQUESTS, catalog.FIRST_OUTPUT, catalog.FAULTS)


def counts_of_a(gateway: Gateway) -> list[str]:
    """All that metrics and tables say of requests on A."""
    body = gateway.plane.render_metrics(None)[0].decode()
    names = "|".join(metric.name for metric in COUNTED)
    shown = re.findall(rf'^(?:{names})[a-z_]*{{.*version="v2".*$', body, re.M)
    tables = gateway.plane.book.tables()
    return [*shown, *(repr(r) for r in (*tables.latency, *tables.faults) if r.version == "v2")]


async def test_a_smoke_test_counts_in_no_table_and_no_evidence(gateway: Gateway) -> None:
    before = counts_of_a(gateway)
    assert before
    speech = {"modalities": ["text", "audio"], "stream": True}
    for words in ("hi", "@fail"):
        await gateway.chat(words, headers=PINNED, **speech)
    assert counts_of_a(gateway) == before
    log = [*gateway.bodies("milestone", A), *gateway.bodies("finished", A)]
    assert len(log) == 4
    assert all(entry.operator for entry in log)


async def test_a_smoke_test_makes_no_session_known_and_moves_none(gateway: Gateway) -> None:
    session = {"X-Redline-Session": "of an operator"}
    await gateway.level(B, admission=1)
    assert (await gateway.chat("hi", headers={**PINNED, **session})).status_code == 200
    assert (await gateway.chat("hi", headers=session)).status_code == 429
    await gateway.level(B)
    answer = await gateway.chat("hi", headers=session)
    assert answer.headers["X-Redline-Version"] == "v1"


async def test_a_name_that_nobody_has_is_a_404_with_the_names_there_are(shared: Gateway) -> None:
    answer = await shared.chat("hi", headers={"X-Redline-Resident": "c"})
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert error["code"] == "unknown_resident"
    assert "there are: a, b" in error["message"]
