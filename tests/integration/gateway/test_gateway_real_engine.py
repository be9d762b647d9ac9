"""The gateway over the project's own engine: a clip in, text and speech out, a flush proved."""

import base64
from pathlib import Path
from typing import Any

import numpy as np

from monitors.labels import Detector
from runtime.residents.local import WORKER
from runtime.settings import ResidentSpec
from tests.support import media
from tests.support.gateway import B, Gateway, events_of, running_gateway, settings_for, until

LOAD_S = 120.0


async def ask(gateway: Gateway, clip: bytes) -> list[Any]:
    usage = {"include_usage": True}
    answer = await gateway.ask_about(clip, "What do you see and hear?", stream_options=usage)
    assert answer.status_code == 200, answer.text
    return events_of(answer.text)


def cached(events: list[Any]) -> int:
    return events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"]


async def test_a_clip_is_answered_found_again_and_gone_after_a_flush(
    tmp_path: Path, tiny_checkpoint: Path
) -> None:
    spec = ResidentSpec(name=B, version="v1", checkpoint=tiny_checkpoint)
    settings = settings_for(tmp_path, residents=(spec,), canary=None)
    clip = media.clip(seconds=2.0)
    async with running_gateway(settings, worker=WORKER, wait=False) as gateway:
        await until(lambda: gateway.plane.is_ready(B), LOAD_S)

        events = await ask(gateway, clip)
        deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
        assert "".join(delta.get("content", "") for delta in deltas)
        sound = b"".join(
            base64.b64decode(delta["audio"]["data"]) for delta in deltas if "audio" in delta
        )
        pcm = np.frombuffer(sound, "<i2").astype(float)
        assert len(pcm) >= 480
        assert np.abs(pcm).mean() > 50.0, "silent speech"
        times = events[-1]["redline"]["first_output_s"]
        assert all(seconds is not None and seconds > 0.0 for seconds in times.values())
        await gateway.settled()
        (ending,) = gateway.bodies("finished", B)
        assert ending.body.outcome == "ok"  # type: ignore[union-attr]
        faults = [e.body for e in gateway.bodies("fault", B)]
        assert [f for f in faults if f.detector is not Detector.PLAYOUT] == []  # type: ignore[union-attr]

        (status,) = gateway.plane.observed().residents
        assert status.live_native_bytes is not None, "it tells what its KV would take natively"

        assert cached(await ask(gateway, clip)) > 0
        flushed = await gateway.led("POST", f"/residents/{B}/flush", min_pool_epoch=5)
        assert flushed.json()["complete"], flushed.text
        proof = await gateway.led("POST", f"/residents/{B}/probe", pool_epoch=5)
        assert proof.json()["verified"], proof.text
        assert proof.json()["witness_tokens"] > 0
        assert cached(await ask(gateway, clip)) == 0
