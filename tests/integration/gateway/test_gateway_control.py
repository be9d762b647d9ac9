"""The control plane's orders: routes, leases, levels, drains, flushes that are proved, drills."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec
import pytest

from monitors import catalog
from monitors.contract import DrainReport, FlushReceipt, Observed, ProbeReport, Refusal
from monitors.labels import ResidentState
from tests.support.gateway import A, B, Gateway, events_of, until

pytestmark = pytest.mark.asyncio(loop_scope="package")

LONG = " ".join(["word"] * 40)


def checked(answer: httpx.Response, status: int) -> Refusal:
    assert answer.status_code == status, answer.text
    return msgspec.json.decode(answer.content, type=Refusal)


def taken(answer: httpx.Response, kind: type[Any]) -> Any:
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=kind)


async def drain(gateway: Gateway, name: str, mode: str, timeout_s: float = 5.0) -> DrainReport:
    path = f"/residents/{name}/drain"
    return taken(await gateway.led("POST", path, mode=mode, timeout_s=timeout_s), DrainReport)


async def flush(gateway: Gateway, name: str, epoch: int | None = None) -> FlushReceipt:
    """Flush to the next epoch, or to the one given."""
    after = epoch or (gateway.plane.pool_epoch(name) or 0) + 1
    path = f"/residents/{name}/flush"
    return taken(await gateway.led("POST", path, min_pool_epoch=after), FlushReceipt)


async def probe(gateway: Gateway, name: str, epoch: int) -> ProbeReport:
    path = f"/residents/{name}/probe"
    return taken(await gateway.led("POST", path, pool_epoch=epoch), ProbeReport)


async def versions(gateway: Gateway, sessions: int) -> set[str]:
    headers = [{"X-Redline-Session": f"session-{i}"} for i in range(sessions)]
    answers = await asyncio.gather(*(gateway.chat("hi", headers=each) for each in headers))
    return {answer.headers["X-Redline-Version"] for answer in answers}


async def stream_on(gateway: Gateway, name: str, text: str, **more: Any) -> "asyncio.Task[Any]":
    """A stream in flight on a resident that has all the sessions."""
    before = gateway.plane.in_flight(name)
    task = asyncio.create_task(gateway.chat(text, stream=True, **more))
    await until(lambda: gateway.plane.in_flight(name) == before + 1)
    return task


# ---------------------------------------------------------------- routes and leases
async def test_a_route_is_acknowledged_with_what_is_so_now(gateway: Gateway) -> None:
    observed = taken(await gateway.route(5), Observed)
    assert observed.canary_weight == 5
    assert {r.name: r.weight for r in observed.residents} == {A: 5, B: 95}
    assert 9.0 < observed.lease_left_s <= 10.0


async def test_sessions_are_split_and_stick(gateway: Gateway) -> None:
    await gateway.route(50)
    assert await versions(gateway, 30) == {"v1", "v2"}
    for i in range(6):
        by_header = await gateway.chat("hi", headers={"X-Redline-Session": f"u{i}"})
        by_field = await gateway.chat("hi", user=f"u{i}")
        served_by = [a.headers["X-Redline-Version"] for a in (by_header, by_field)]
        assert served_by[0] == served_by[1]


async def test_a_lease_that_is_not_renewed_takes_the_canary_out_of_traffic(
    gateway: Gateway,
) -> None:
    await gateway.route(100, lease_s=0.5)
    assert await versions(gateway, 4) == {"v2"}
    await until(lambda: gateway.plane.router.canary_weight == 0, 5)
    assert await versions(gateway, 4) == {"v1"}
    status = await gateway.status(A)
    assert (status["weight"], status["state"]) == (0, "ready")


async def test_a_stale_leader_or_epoch_is_refused_with_the_epochs_held(gateway: Gateway) -> None:
    epoch = taken(await gateway.route(5, leader_epoch=3), Observed).route_epoch
    for answer in (
        await gateway.route(0, leader_epoch=2),
        await gateway.route(0, route_epoch=epoch - 1),
        await gateway.route(50, route_epoch=epoch),
        await gateway.order("POST", f"/residents/{A}/flush", leader_epoch=2, min_pool_epoch=9),
    ):
        refusal = checked(answer, 409)
        assert (refusal.leader_epoch, refusal.route_epoch) == (3, epoch)
    assert (await gateway.status(A))["weight"] == 5


@contextmanager
def full_disk(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def store(_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(gateway.plane.fence_file, "store", store)
        yield


async def test_a_disk_that_is_full_never_holds_up_a_move_to_the_stable_one(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await gateway.route(50)
    with full_disk(gateway, monkeypatch):
        checked(await gateway.route(90), 507)
        assert (await gateway.status(A))["weight"] == 50
        checked(await gateway.route(0), 507)
        assert (await gateway.status(A))["weight"] == 0


async def test_a_promotion_or_a_copy_waits_for_the_disk_and_a_rollback_does_not(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await gateway.route(50)
    with full_disk(gateway, monkeypatch):
        checked(await gateway.route(0, stable=A, canary=B), 507)
        assert (await gateway.status(A))["weight"] == 50, "a restart would not know of more"
        checked(await gateway.route(0, mirror_weight=10), 507)
        assert gateway.plane.router.mirror_weight == 0
    taken(await gateway.route(0, stable=A, canary=B), Observed)
    with full_disk(gateway, monkeypatch):
        checked(await gateway.route(0, takes_back=True), 507)
        assert (await gateway.status(A))["weight"] == 0


async def test_a_canary_that_dies_while_its_route_is_written_gets_no_traffic(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary, store = gateway.plane.supervisors[A], gateway.plane.fence_file.store

    def dying(fence: Any) -> None:
        canary.state = ResidentState.DEAD
        store(fence)

    with monkeypatch.context() as patch:
        patch.setattr(gateway.plane.fence_file, "store", dying)
        observed = taken(await gateway.route(50), Observed)
    canary.state = ResidentState.READY
    assert observed.canary_weight == 0


async def test_a_fence_is_written_however_busy_other_threads_are(gateway: Gateway) -> None:
    release = threading.Event()
    loop = asyncio.get_running_loop()
    busy = [loop.run_in_executor(None, release.wait, 10) for _ in range(64)]
    try:
        taken(await asyncio.wait_for(gateway.route(5), 5), Observed)
    finally:
        release.set()
    await asyncio.gather(*busy)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/route", b"{", 422),
        ("PUT", "/route", b"{}", 422),
        ("PUT", "/route", b'{"leader_epoch": 9, "route_epoch": 99, "stable": "B!"}', 422),
        ("PUT", "/route", b'{"leader_epoch": 9, "route_epoch": 99, "stable": "c"}', 404),
        ("POST", "/residents/c/flush", b'{"leader_epoch": 9, "min_pool_epoch": 1}', 404),
        ("POST", "/residents/c/probe", b'{"leader_epoch": 9, "pool_epoch": 1}', 404),
        ("POST", "/residents/c/drill", b'{"kind": "slow"}', 404),
        ("POST", "/residents/a/drill", b'{"kind": "fire"}', 422),
        ("POST", "/residents/a/flush", b'{"leader_epoch": 9, "min_pool_epoch": -1}', 422),
        ("POST", "/residents/a/drain", b'{"leader_epoch": 9, "mode": "wait", "timeout_s": 1}', 422),
        ("PUT", "/route", b"x" * 70_000, 413),
    ],
)
async def test_an_order_that_makes_no_sense_is_refused_in_words(
    shared: Gateway, method: str, path: str, body: bytes, status: int
) -> None:
    answer = await shared.client.request(method, f"/control{path}", content=body)
    assert checked(answer, status).error


@pytest.mark.parametrize("query", ["after=x", "after=-1", "wait=long", "more=1"])
async def test_an_evidence_query_that_makes_no_sense_is_refused(
    shared: Gateway, query: str
) -> None:
    answer = await shared.client.get(f"/evidence?incarnation={shared.plane.incarnation}&{query}")
    assert checked(answer, 422).error


async def test_a_request_whose_media_is_still_decoded_does_not_reach_a_resident_cut_over(
    gateway: Gateway,
) -> None:
    await gateway.route(100)
    release = threading.Event()
    busy = [gateway.plane.decoders.submit(release.wait, 10) for _ in range(64)]
    stream = await stream_on(gateway, A, "hi")
    await gateway.route(0)
    release.set()
    assert (await stream).headers["X-Redline-Version"] == "v1"
    assert gateway.bodies("finished", A) == []
    assert all(each.result() for each in busy)


async def test_a_request_whose_media_is_still_decoded_stays_on_the_stable_one_at_any_weight(
    gateway: Gateway,
) -> None:
    release = threading.Event()
    busy = [gateway.plane.decoders.submit(release.wait, 10) for _ in range(64)]
    stream = await stream_on(gateway, B, "hi")
    await gateway.route(100)
    release.set()
    answer = await stream
    assert (answer.status_code, answer.headers["X-Redline-Version"]) == (200, "v1")
    assert all(each.result() for each in busy)


# ---------------------------------------------------------------- levels
async def test_a_level_is_held_and_the_engine_follows_its_kv_format(gateway: Gateway) -> None:
    taken(await gateway.level(B, media=1, kv=1), Observed)
    assert (await gateway.status(B))["level"] == {"media": 1, "kv": 1, "shed": 0, "admission": 0}
    assert (await gateway.status(A))["level"]["media"] == 0
    await until(lambda: gateway.plane.snapshots[B].kv == 1, 5)
    served = await gateway.chat("hi")
    assert served.headers["X-Redline-Level"] == "media=360p+8k kv=int8"
    assert any("level by test" in e.body.detail for e in gateway.bodies("resident", B))


async def test_limited_admission_turns_new_sessions_away_and_keeps_the_known(
    gateway: Gateway,
) -> None:
    known = {"X-Redline-Session": "known"}
    await gateway.chat("hi", headers=known)
    await gateway.level(B, admission=1)
    assert (await gateway.chat("hi again", headers=known)).status_code == 200
    for headers in ({"X-Redline-Session": "new"}, {}):
        turned_away = await gateway.chat("hi", headers=headers)
        assert turned_away.status_code == 429
        assert turned_away.json()["error"]["type"] == "rate_limit_error"
        assert "Retry-After" in turned_away.headers


async def test_an_order_for_another_resident_than_its_path_is_refused(gateway: Gateway) -> None:
    answer = await gateway.level(B, resident=A)  # type: ignore[arg-type]
    assert checked(answer, 422).error


# ---------------------------------------------------------------- drains
async def test_a_resident_with_traffic_is_not_drained(shared: Gateway) -> None:
    answer = await shared.led("POST", f"/residents/{B}/drain", mode="finish", timeout_s=1.0)
    assert "route it away first" in checked(answer, 409).error


async def test_a_finishing_drain_waits_for_the_end_of_the_turn(gateway: Gateway) -> None:
    await gateway.route(100)
    stream = await stream_on(gateway, A, "talk", max_tokens=40)
    await gateway.route(0)
    report = await drain(gateway, A, "finish")
    assert (report.remaining, report.finished, report.aborted) == (0, 1, 0)
    events = events_of((await stream).text)
    assert events[-1]["choices"][0]["finish_reason"] == "stop"


async def test_a_drain_that_runs_out_of_time_says_what_remains(gateway: Gateway) -> None:
    await gateway.route(100)
    stream = await stream_on(gateway, A, "@hang")
    await gateway.route(0)
    report = await drain(gateway, A, "finish", timeout_s=0.2)
    assert (report.remaining, report.finished) == (1, 0)
    stream.cancel()
    await until(lambda: gateway.plane.in_flight(A) == 0)


async def test_an_aborting_drain_replays_what_had_no_output_and_breaks_the_rest(
    gateway: Gateway,
) -> None:
    await gateway.route(100)
    talking = await stream_on(gateway, A, "talk", max_tokens=200)
    await until(lambda: gateway.bodies("milestone", A), 5)
    await gateway.drill(A, "slow", amount=30.0)
    silent = await stream_on(gateway, A, "not a word yet")
    await asyncio.sleep(0.05)
    await gateway.route(0)
    report = await drain(gateway, A, "abort")
    assert (report.remaining, report.aborted, report.replayed) == (0, 1, 1)
    replayed = await silent
    assert replayed.status_code == 200
    assert replayed.headers["X-Redline-Version"] == "v1"
    broken = events_of((await talking).text)
    assert broken[-1]["error"]["code"] == "resident_cut_over"
    assert [e.body.outcome for e in gateway.bodies("finished", A)] == ["lost", "replayed"]
    assert [e.body.outcome for e in gateway.bodies("finished", B)] == ["ok"]


class SlowClient:
    """A client of the app itself that takes one piece of its answer, and more when it `reads`."""

    def __init__(self, gateway: Gateway, text: str, **more: Any) -> None:
        body = {"model": "redline", "messages": [{"role": "user", "content": text}], **more}
        self.reads = asyncio.Event()
        self.body = b""
        self._asked = [{"type": "http.request", "body": json.dumps(body).encode()}]
        scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": []}
        named = {"query_string": b"", "client": ("127.0.0.1", 1), "root_path": ""}
        self.done = asyncio.create_task(gateway.app({**scope, **named}, self._receive, self._send))

    async def _receive(self) -> Any:
        if self._asked:
            return self._asked.pop()
        return await asyncio.Future()

    async def _send(self, message: Any) -> None:
        if self.body:
            await self.reads.wait()
        self.body += message.get("body", b"")


async def test_a_client_that_does_not_read_holds_up_no_drain_and_is_told_in_its_turn(
    gateway: Gateway,
) -> None:
    await gateway.route(100)
    client = SlowClient(gateway, "talk", stream=True, max_tokens=200)
    await until(lambda: client.body)
    await gateway.route(0)
    report = await drain(gateway, A, "abort")
    assert (report.remaining, report.aborted) == (0, 1)
    assert [e.body.outcome for e in gateway.bodies("finished", A)] == ["lost"]
    client.reads.set()
    await client.done
    assert events_of(client.body.decode())[-1]["error"]["code"] == "resident_cut_over"


async def test_what_a_resident_has_said_to_the_end_is_no_work_to_drain(gateway: Gateway) -> None:
    await gateway.route(100)
    client = SlowClient(gateway, "talk", stream=True, max_tokens=5)
    await until(lambda: client.body)
    await gateway.route(0)
    report = await drain(gateway, A, "finish")
    assert (report.remaining, report.finished) == (0, 1)
    assert (await drain(gateway, A, "abort")).aborted == 0
    client.reads.set()
    await client.done
    assert events_of(client.body.decode())[-1]["choices"][0]["finish_reason"] == "stop"
    assert [e.body.outcome for e in gateway.bodies("finished", A)] == ["ok"]


async def test_an_answer_that_is_not_streamed_is_replayed_whole_even_in_its_middle(
    gateway: Gateway,
) -> None:
    await gateway.route(100)
    task = asyncio.create_task(gateway.chat("talk", max_tokens=60))
    await until(lambda: gateway.bodies("milestone", A), 5)
    await gateway.route(0)
    assert (await drain(gateway, A, "abort")).replayed == 1
    answer = await task
    text = answer.json()["choices"][0]["message"]["content"]
    assert text == "v1 " + "".join(f"w{i} " for i in range(1, 60)), "nothing of A is left in it"


# ---------------------------------------------------------------- flush and probe
async def test_a_flush_is_proved_by_a_prompt_that_must_miss(gateway: Gateway) -> None:
    await gateway.route(100)
    await flush(gateway, A)
    await gateway.chat(LONG)
    assert (await gateway.chat(LONG)).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    await gateway.route(0)
    receipt = await flush(gateway, A)
    assert (receipt.new_epoch, receipt.complete) == (receipt.old_epoch + 1, True)
    assert receipt.pages == 1
    report = await probe(gateway, A, receipt.new_epoch)
    assert report.verified, report.detail
    assert (report.witness_tokens, report.cached_tokens) == (40, 0)
    status = await gateway.status(A)
    assert status["min_pool_epoch"] == status["pool_epoch"] == receipt.new_epoch
    assert gateway.bodies("resident", A)[-1].pool_epoch == receipt.new_epoch


async def test_a_repeated_flush_and_probe_do_no_harm(gateway: Gateway) -> None:
    await gateway.chat(LONG)
    epoch = (await flush(gateway, B)).new_epoch
    for _ in range(2):
        assert (await flush(gateway, B, epoch)).new_epoch == epoch
        report = await probe(gateway, B, epoch)
        assert report.verified, report.detail
        assert report.witness_tokens == 40


async def test_an_older_flush_order_cannot_lower_the_epoch(gateway: Gateway) -> None:
    epoch = (await flush(gateway, A)).new_epoch
    assert (await flush(gateway, A, epoch - 1)).new_epoch == epoch
    assert (await gateway.status(A))["min_pool_epoch"] == epoch


async def test_a_lying_flush_is_found_out_by_the_probe(gateway: Gateway) -> None:
    await flush(gateway, B)
    await gateway.chat(LONG)
    await gateway.drill(B, "lying_flush")
    receipt = await flush(gateway, B)
    assert receipt.complete, "the engine says so"
    report = await probe(gateway, B, receipt.new_epoch)
    assert not report.verified
    assert report.cached_tokens == 40
    assert report.stale_pages == 1
    assert "the witness found 40 tokens" in report.detail
    assert "40 tokens under the keys of before the flush" in report.detail
    await gateway.drill(B, "lying_flush", seconds=0.0)
    await flush(gateway, B)


async def test_a_dead_resident_is_flushed_by_its_process_being_gone(gateway: Gateway) -> None:
    await gateway.route(100)
    await gateway.chat(LONG)
    await gateway.route(0)
    await gateway.drill(A, "kill")
    epoch = gateway.plane.min_pool_epoch(A) + 7
    receipt = await flush(gateway, A, epoch)
    assert (receipt.new_epoch, receipt.complete) == (epoch, True)
    report = await probe(gateway, A, epoch)
    assert report.verified, report.detail
    assert report.witness_tokens == 40
    assert not (await probe(gateway, A, epoch + 1)).verified, "the engine is not at that epoch"


async def test_a_flush_takes_the_old_pools_faults_out_of_table_three(gateway: Gateway) -> None:
    async def shown() -> list[str]:
        lines = (await gateway.client.get("/metrics")).text.split("\n")
        names = (catalog.FAULT_WINDOW_REQUESTS.name, catalog.FAULT_WINDOW_FAULTED.name)
        return [line for line in lines if line.startswith(names) and 'version="v2"' in line]

    await gateway.route(100)
    await gateway.chat("@fail")
    assert await shown()
    epoch = (await flush(gateway, A)).new_epoch
    assert await shown() == [], "0 would say that somebody was judged"
    await gateway.chat("hi")
    await flush(gateway, A, epoch)
    assert await shown(), "a repeated flush has nothing to forget"


# ---------------------------------------------------------------- pins, guards and drills
async def test_a_pinned_request_goes_to_its_resident_and_is_no_evidence(gateway: Gateway) -> None:
    def faults() -> Any:
        return gateway.plane.book.faults.rows()

    before = faults()
    answer = await gateway.chat("hi", headers={"X-Redline-Resident": A})
    assert answer.headers["X-Redline-Version"] == "v2"
    assert [e.operator for e in gateway.bodies("finished", A)] == [True]
    assert faults() == before


@pytest.mark.parametrize(
    ("kind", "fault"), [("truncate", "speech_truncated"), ("desync", "lip_desync")]
)
async def test_a_drill_shows_as_the_fault_it_makes(gateway: Gateway, kind: str, fault: str) -> None:
    await gateway.drill(B, kind, amount=0.4)
    await gateway.chat("speak", modalities=["text", "audio"])
    await gateway.drill(B, kind, seconds=0.0)
    await gateway.chat("speak", modalities=["text", "audio"])
    found = [e.body for e in gateway.bodies("fault", B)]
    assert [f.fault for f in found if f.grade == "hard"] == [fault]  # type: ignore[union-attr]
    endings = [e.body for e in gateway.bodies("finished", B)]
    assert [e.faulted for e in endings] == [True, False]  # type: ignore[union-attr]


async def test_a_slow_engine_crosses_the_lines_before_it_answers(gateway: Gateway) -> None:
    await gateway.drill(B, "slow", amount=0.6)
    task = asyncio.create_task(gateway.chat("hi", max_tokens=1))
    await until(lambda: len(gateway.bodies("line", B)) == 2, 5)
    assert not task.done()
    lines = [e.body.line_s for e in gateway.bodies("line", B)]  # type: ignore[union-attr]
    assert lines == [0.25, 0.4]
    await task
    assert len(gateway.bodies("milestone", B)) == 1
    assert len(gateway.bodies("line", B)) == 2


async def test_without_a_token_a_web_page_cannot_steer(shared: Gateway) -> None:
    answer = await shared.client.get("/control", headers={"Origin": "http://evil.example"})
    assert checked(answer, 403).error
