"""A flood of broken uploads: served, shown as input and counted, and no version is blamed.

A real gateway over real sockets, and the real rollout controller that reads its evidence.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from monitors import catalog
from monitors.contract import FaultFound, RequestFinished
from monitors.labels import Fault, Grade, Mark, Origin, Phase
from monitors.redlines import FaultLines, LatencyLines, RedLines, RolloutLines
from rollout.controller import RolloutController
from rollout.dataplane import HttpDataPlane
from rollout.proposal import Wishes
from runtime.media.client_digest import ClientDigest, digest_of
from tests.support import media
from tests.support.gateway import VERSIONS, A, Gateway, running_gateway, settings_for
from tests.support.journals import ScratchJournal

LINES = RedLines(
    latency=LatencyLines(first_packet_s=20.0, degrade_s=30.0),  # a slow machine is no subject here
    faults=FaultLines(rate=0.02),
    rollout=RolloutLines(warmup_requests=2),
)
CLIP = media.clip(1.0, width=64, height=48)
BROKEN = (
    media.with_flipped_bits(CLIP, [3, 9, 15]),
    media.clip(1.0, width=64, height=48, audio_offset_ms=400.0),
    media.without_packets(CLIP, "audio", range(10, 30)),
    media.truncated(media.clip(1.0, width=64, height=48, container="webm")),
)
FLOOD = 40


async def send(
    gateway: Gateway,
    clip: bytes,
    session: str,
    digest: str | None = None,
    beside: str | None = None,
    **more: Any,
) -> httpx.Response:
    """One clip, uploaded as a form; `beside`: the address of another one behind it."""
    url = {"url": "attachment:c.mp4"} | ({} if digest is None else {"digest": digest})
    urls = [url] if beside is None else [url, {"url": beside}]
    content = [{"type": "video_url", "video_url": one} for one in urls]
    body = {"model": "redline", "messages": [{"role": "user", "content": content}], **more}
    return await gateway.client.post(
        "/v1/chat/completions",
        files={"file": ("c.mp4", clip)},
        data={"request": httpx.Request("POST", "http://x/", json=body).content.decode()},
        headers={"X-Redline-Session": session},
    )


@asynccontextmanager
async def on_trial(folder: Path) -> AsyncIterator[tuple[Gateway, RolloutController]]:
    """A gateway whose A has half of the sessions, judged by a real controller."""
    with closing(ScratchJournal()) as journal:
        async with running_gateway(settings_for(folder, lines=LINES)) as gateway:
            controller = RolloutController(
                journal=journal, plane=HttpDataPlane(gateway.client), lines=LINES, leader_epoch=1
            )
            await controller.tick()
            plan, _ = await controller.propose(Wishes(weight=50))
            await controller.start(plan, "ann")
            await judged(controller)
            yield gateway, controller


async def judged(controller: RolloutController) -> None:
    """The controller has read all evidence there is, and done what follows."""
    for _ in range(4):
        await controller.tick()
        assert await controller.poll(0.05)


async def test_a_flood_of_broken_uploads_moves_no_rate_and_rolls_nothing_back(
    tmp_path: Path,
) -> None:
    async with on_trial(tmp_path) as (gateway, controller):
        for start in range(0, FLOOD, 10):
            answers = await asyncio.gather(
                *(send(gateway, BROKEN[i % 4], f"s{i}") for i in range(start, start + 10)),
                send(gateway, CLIP, f"d{start}", digest_of(b"another clip")),
            )
            assert [answer.status_code for answer in answers] == [200] * 11
            await judged(controller)
        assert controller.status().phase in (Phase.WARMUP, Phase.CANARY)
        assert gateway.plane.router.weight(A) == 50
        await shown_as_input_only(gateway)

        # The same controller does act on what a version adds of its own.
        await gateway.drill(A, "desync", amount=0.4)
        for i in range(12):
            await send(gateway, CLIP, f"own{i}")
        await judged(controller)
        assert controller.status().phase in (Phase.ROLLING_BACK, Phase.QUARANTINED)
        assert gateway.plane.router.weight(A) == 0


async def shown_as_input_only(gateway: Gateway) -> None:
    """In the table, in the metrics and in the evidence; and nowhere that is judged."""
    rows = gateway.plane.book.faults.rows()
    assert {row.version for row in rows} == set(VERSIONS.values())
    assert all((row.faulted, row.rate) == (0, 0.0) for row in rows)
    for fault in (Fault.LIP_DESYNC, Fault.VIDEO_CORRUPT):
        assert all(row.input_only > 0 for row in rows if row.fault is fault)
    entries = [e.body for e in gateway.bodies("fault")]
    hard = [f for f in entries if isinstance(f, FaultFound) and f.grade == "hard"]
    assert {f.origin for f in hard} == {Origin.INPUT}
    assert {"start_offset", "audio_gap", "digest_mismatch"} <= {f.rule for f in hard}
    endings = [e.body for e in gateway.bodies("finished")]
    assert len(endings) == FLOOD + FLOOD // 10
    assert not any(e.faulted for e in endings if isinstance(e, RequestFinished))
    await metrics_say_input(gateway)


async def metrics_say_input(gateway: Gateway) -> None:
    """By the client library's parser; 3 kinds of samples, each of which must be there."""
    text = (await gateway.client.get("/metrics")).text
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    hard = [s for s in samples if s.name == catalog.FAULTS.name and s.labels["grade"] == "hard"]
    counted = {s.labels["origin"] for s in hard if s.value > 0.0}
    assert counted == {Origin.INPUT}
    ring = [s for s in samples if s.name == catalog.FAULT_WINDOW_FAULTED.name]
    shown = {(s.labels["version"], s.labels["mark"]): s.value for s in ring}
    assert {version for version, _ in shown} == set(VERSIONS.values())
    for version in VERSIONS.values():
        assert shown[version, Mark.HARD] == shown[version, Mark.SOFT] == 0.0
        assert shown[version, Mark.INPUT_ONLY] > 0.0


async def test_media_that_is_refused_shows_as_input_and_counts_for_nobody(tmp_path: Path) -> None:
    async with running_gateway(settings_for(tmp_path)) as gateway:
        cut = CLIP[:300]
        refused = await send(gateway, cut, "s", digest_of(CLIP))
        assert refused.status_code == 400
        assert (await send(gateway, CLIP, "s")).status_code == 200
        faults = [e.body for e in gateway.bodies("fault") if isinstance(e.body, FaultFound)]
        assert [(f.rule, f.grade, f.origin) for f in faults] == [
            ("digest_mismatch", Grade.HARD, Origin.INPUT),
            ("refused", Grade.HARD, Origin.INPUT),
        ]
        assert faults[1].detail == "not_media"
        assert len(gateway.bodies("finished")) == 1
        rows = gateway.plane.book.faults.rows()
        assert {row.requests for row in rows} <= {0, 1}
        assert not any(row.faulted or row.input_only for row in rows)
        record = gateway.plane.requests.find(refused.headers["X-Redline-Request"])
        assert [f.rule for f in record.faults()] == ["digest_mismatch", "refused"]
        lines = (await gateway.client.get("/metrics")).text.split("\n")
        counted = [
            line
            for line in lines
            if line.startswith(f"{catalog.FAULTS.name}{{") and 'origin="input"' in line
        ]
        assert sum(float(line.split("} ")[1].split()[0]) for line in counted) == 2.0


async def test_what_was_found_is_shown_whatever_else_the_request_is_refused_for(
    tmp_path: Path,
) -> None:
    async with running_gateway(settings_for(tmp_path)) as gateway:
        refused = await send(gateway, CLIP, "s", digest_of(b"another"), beside="attachment:gone")
        assert refused.json()["error"]["code"] == "attachment_not_found"
        faults = [e.body for e in gateway.bodies("fault") if isinstance(e.body, FaultFound)]
        assert [f.rule for f in faults] == ["digest_mismatch"]


async def test_a_digest_is_checked_where_media_is_decoded_and_never_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    check = ClientDigest.faults

    def noted(self: ClientDigest, *of: Any) -> tuple[FaultFound, ...]:
        threads.append(threading.current_thread().name)
        return check(self, *of)

    monkeypatch.setattr(ClientDigest, "faults", noted)
    async with running_gateway(settings_for(tmp_path)) as gateway:
        assert (await send(gateway, CLIP, "s", digest_of(CLIP))).status_code == 200
        assert gateway.bodies("fault") == []
        unknown = await send(gateway, CLIP, "s", "sha-1=:AAAA:")
        assert unknown.status_code == 200, "RFC 9530: ignored"
        refused = await send(gateway, CLIP, "s", "sha-256=:AAAA:")
        assert (refused.status_code, refused.json()["error"]["type"]) == (
            400, "invalid_request_error",
        )  # fmt: skip
        assert "a sha-256 digest has 32 bytes" in refused.json()["error"]["message"]
    assert [name.split("_")[0] for name in threads] == ["decode"]
