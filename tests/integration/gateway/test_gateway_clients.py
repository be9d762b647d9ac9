"""Lists of clients for the canary: by API key, fenced and on disk like the route they are in."""

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from monitors.client_key import digest_of
from tests.support.gateway import A, Gateway, running_gateway, settings_for, until

pytestmark = pytest.mark.asyncio(loop_scope="package")

ADA, BOB = "sk-ada-0123456789", "sk-bob-0123456789"


def lists(**keys: list[str]) -> dict[str, Any]:
    return {"clients": {kind: [digest_of(key) for key in given] for kind, given in keys.items()}}


async def version_for(gateway: Gateway, key: str | None) -> str:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return (await gateway.chat("hi", headers=headers)).headers["X-Redline-Version"]


async def test_allowed_clients_alone_get_the_canary_and_denied_ones_never(
    gateway: Gateway,
) -> None:
    await gateway.route(100, **lists(allow=[ADA]))
    assert [await version_for(gateway, key) for key in (ADA, BOB, None)] == ["v2", "v1", "v1"]
    await gateway.route(100, **lists(deny=[ADA]))
    assert [await version_for(gateway, key) for key in (ADA, BOB, None)] == ["v1", "v2", "v2"]


async def test_a_client_that_is_denied_while_its_media_is_decoded_is_picked_for_anew(
    gateway: Gateway,
) -> None:
    await gateway.route(100)
    release = threading.Event()
    busy = [gateway.plane.decoders.submit(release.wait, 10) for _ in range(64)]
    headers = {"Authorization": f"Bearer {ADA}"}
    asking = asyncio.create_task(gateway.chat("hi", headers=headers))
    await until(lambda: gateway.plane.in_flight(A) == 1)
    await gateway.route(100, **lists(deny=[ADA]))
    release.set()
    assert (await asking).headers["X-Redline-Version"] == "v1"
    assert gateway.bodies("finished", A) == []
    assert all(each.result() for each in busy)


async def test_the_lists_outlive_a_restart_and_no_key_is_written_anywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = settings_for(tmp_path)
    async with running_gateway(settings) as gateway:
        taken = await gateway.route(100, **lists(allow=[ADA]))
        assert taken.status_code == 200
        assert await version_for(gateway, ADA) == "v2"
    async with running_gateway(settings) as gateway:
        route = gateway.plane.router.route
        assert route.clients.admit(digest_of(ADA))
        assert not route.clients.admit(digest_of(BOB))
        same = {"route_epoch": route.route_epoch}
        assert (await gateway.route(100, **same)).status_code == 409, "without lists: another route"
        assert (await gateway.route(100, **same, **lists(allow=[ADA]))).status_code == 200
        assert await version_for(gateway, BOB) == "v1"
    assert ADA not in caplog.text
    for file in settings.state_dir.rglob("*"):
        assert not file.is_file() or ADA.encode() not in file.read_bytes()
