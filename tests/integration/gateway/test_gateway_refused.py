"""A checkpoint that the project's own engine refuses: its sentence is what `/readyz` answers."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from runtime.residents.local import WORKER
from runtime.settings import ResidentSpec
from tests.support.gateway import B, Gateway, running_gateway, settings_for

LOAD_S = 120.0
SETTLE_S = 1.5  # a crash would have been tried again after 0.5 s


async def test_damaged_weights_are_refused_once_in_the_engines_own_words(
    tmp_path: Path, tiny_checkpoint: Path
) -> None:
    folder = shutil.copytree(tiny_checkpoint, tmp_path / ("long-name-" * 20) / ("of-omni-" * 20))
    declared = _declare_digest(folder, tiny_checkpoint)
    _flip_last_byte(folder / "model.safetensors")
    spec = ResidentSpec(name=B, version="v1", checkpoint=folder, device="cpu")
    settings = settings_for(tmp_path, residents=(spec,), canary=None)
    async with running_gateway(settings, worker=WORKER, wait=False) as gateway:
        said = await _refusal(gateway)
        assert said["status"] == "b is dead"
        sentence = f"resident 'b' cannot serve: {folder}: the weights are damaged or not its own"
        assert said["detail"].startswith(sentence)
        assert f"its manifest says {declared}" in said["detail"]
        assert said["detail"].endswith("download it again"), "cut off"
        assert said["residents"] == [
            {"name": B, "state": "dead", "refused": True, "restarts": 0, "detail": said["detail"]}
        ]
        await asyncio.sleep(SETTLE_S)
        answer = await gateway.client.get("/readyz")
        assert (answer.status_code, answer.json()) == (503, said), "it was tried again"
        assert "Retry-After" not in answer.headers
        assert (await gateway.status(B))["detail"] == said["detail"]


async def _refusal(gateway: Gateway) -> dict[str, Any]:
    """What `/readyz` answers once the engine has ended."""
    async with asyncio.timeout(LOAD_S):
        while True:
            answer = await gateway.client.get("/readyz")
            assert answer.status_code == 503
            if answer.json()["status"] != "b is loading":
                return answer.json()
            assert answer.headers["Retry-After"]
            await asyncio.sleep(0.05)


def _declare_digest(folder: Path, whole: Path) -> str:
    """Write into the manifest what the weights of `whole` add up to."""
    from runtime.model import weights

    manifest = folder / "redline.json"
    declared = weights.digest([whole / "model.safetensors"])
    content = {**json.loads(manifest.read_text()), "weights_digest": declared}
    manifest.write_text(json.dumps(content))
    return declared


def _flip_last_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, 2)
        (byte,) = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([byte ^ 1]))
