"""Who may steer: with a token its holder alone, and drills only where they are allowed."""

from pathlib import Path

import httpx
import msgspec
import pytest

from monitors.contract import Refusal
from tests.support.gateway import A, B, running_gateway, settings_for, until


async def test_with_a_token_only_its_holder_steers(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, control_token="s3cret", drills=False)
    async with running_gateway(settings) as gateway:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"}):
            for path in ("/control", "/evidence"):
                answer = await gateway.client.get(path, headers=headers)
                assert answer.status_code == 401
                assert msgspec.json.decode(answer.content, type=Refusal).error
            pinned = await gateway.chat("hi", headers={**headers, "X-Redline-Resident": A})
            assert pinned.status_code == 403
            assert "is for operators: this needs the control token" in pinned.text
            assert set(pinned.json()["error"]) == {"message", "type", "param", "code"}
        holder = {"Authorization": "Bearer s3cret"}
        assert (await gateway.client.get("/control", headers=holder)).status_code == 200
        assert (await gateway.chat("hi")).status_code == 200, "clients need no token"
        drill = await gateway.client.post(
            f"/control/residents/{A}/drill", headers=holder, json={"kind": "slow"}
        )
        assert drill.status_code == 403
        assert "drills are off" in drill.json()["error"]


HOLDER = {"Authorization": "Bearer s3cret"}


@pytest.mark.parametrize(
    ("token", "host", "headers", "sees"),
    [
        ("s3cret", "127.0.0.1", {}, True),
        (None, "::1", {}, True),
        ("s3cret", "192.0.2.7", HOLDER, True),
        ("s3cret", "192.0.2.7", {}, False),
        ("s3cret", "192.0.2.7", {"Authorization": "Bearer wrong"}, False),
        (None, "192.0.2.7", {"Authorization": "Bearer None"}, False),
        (None, "testclient", {}, False),
    ],
)
async def test_why_a_resident_is_dead_is_not_for_everybody(
    tmp_path: Path, token: str | None, host: str, headers: dict[str, str], sees: bool
) -> None:
    settings = settings_for(tmp_path, control_token=token)
    (tmp_path / "v1").rmdir()  # B's checkpoint: it cannot start
    async with running_gateway(settings, wait=False) as gateway:
        await until(lambda: "no checkpoint" in gateway.plane.supervisors[B].detail)
        transport = httpx.ASGITransport(gateway.app, client=(host, 1234))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            answer = await client.get("/readyz", headers=headers)
        assert answer.status_code == 503
        assert ("no checkpoint" in answer.json()["detail"]) is sees
        assert (str(tmp_path) in answer.text) is sees
        residents = {resident["name"]: resident for resident in answer.json()["residents"]}
        assert bool(residents[B]["detail"]) is sees
        assert residents[B].keys() == {"name", "state", "refused", "restarts", "detail"}
