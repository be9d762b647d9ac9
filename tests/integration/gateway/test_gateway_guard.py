"""Who may steer: with a token its holder alone, and drills only where they are allowed."""

from pathlib import Path

import msgspec

from monitors.contract import Refusal
from tests.support.gateway import A, running_gateway, settings_for


async def test_with_a_token_only_its_holder_steers(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, control_token="s3cret", drills=False)
    async with running_gateway(settings) as gateway:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"}):
            for path in ("/control", "/evidence"):
                answer = await gateway.client.get(path, headers=headers)
                assert answer.status_code == 401
                assert msgspec.json.decode(answer.content, type=Refusal).error
            pinned = await gateway.chat("hi", headers={**headers, "X-Redline-Resident": A})
            assert pinned.status_code == 401
            assert set(pinned.json()["error"]) == {"message", "type", "param", "code"}
        holder = {"Authorization": "Bearer s3cret"}
        assert (await gateway.client.get("/control", headers=holder)).status_code == 200
        assert (await gateway.chat("hi")).status_code == 200, "clients need no token"
        drill = await gateway.client.post(
            f"/control/residents/{A}/drill", headers=holder, json={"kind": "slow"}
        )
        assert drill.status_code == 403
        assert "drills are off" in drill.json()["error"]
