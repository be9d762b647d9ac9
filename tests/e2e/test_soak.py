"""A minute of rough traffic on a whole stack: afterwards nothing is leaked and nobody is lost."""

import base64
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.support import media
from tests.support.stack import RunningStack, wait_until

SECONDS = 60.0
WORKERS = 4


def data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def question(rng: random.Random, clips: list[bytes]) -> dict[str, Any]:
    """A request of some kind: text, image, clip; spoken or not; now and then not answerable."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": f"What is {rng.randint(0, 9)}?"}]
    match rng.randrange(5):
        case 0:
            png = media.png(64, 64)
            parts.insert(0, {"type": "image_url", "image_url": {"url": data_url("image/png", png)}})
        case 1 | 2:
            clip = rng.choice(clips)
            url = data_url("video/mp4", clip)
            parts.insert(0, {"type": "video_url", "video_url": {"url": url}})
        case 3:
            url = data_url("video/mp4", rng.randbytes(500))
            parts.insert(0, {"type": "video_url", "video_url": {"url": url}})
        case _:
            pass
    speech = rng.random() < 0.5
    return {
        "model": "redline",
        "stream": True,
        "max_tokens": rng.randint(1, 12),
        "modalities": ["text", "audio"] if speech else ["text"],
        **({"audio": {"voice": "ethan", "format": "pcm16"}} if speech else {}),
        "messages": [{"role": "user", "content": parts}],
    }


def talk(stack: RunningStack, seed: int, clips: list[bytes], until: float) -> dict[int, int]:
    """One client's minute; how often each status came. A third of its streams it leaves early."""
    rng, seen = random.Random(seed), dict[int, int]()
    url = stack.urls["runtime"] + "/v1/chat/completions"
    while time.monotonic() < until:
        body, leaves = question(rng, clips), rng.random() < 0.3
        with httpx.stream("POST", url, json=body, timeout=60) as answer:
            seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
            for count, _ in enumerate(answer.iter_lines()):
                if leaves and count > 3:
                    break
    return seen


@pytest.mark.slow
def test_a_minute_of_rough_traffic_leaks_nothing(stack: RunningStack) -> None:
    clips = [media.clip(2.0, sound="speech"), media.clip(1.0, sound=None)]
    stack.cli("rollout", "start", "--yes", "--weight", "50")
    wait_until(lambda: stack.resident("a")["weight"] == 50, 20)
    victim = stack.resident("a")["pid"]
    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(WORKERS) as pool:
        talks = [pool.submit(talk, stack, seed, clips, until) for seed in range(WORKERS)]
        time.sleep(SECONDS / 3)
        os.kill(victim, signal.SIGKILL)
        statuses = [done.result() for done in talks]

    total = {
        s: sum(each.get(s, 0) for each in statuses) for s in {200, 400} | set().union(*statuses)
    }
    assert total[200] > 20, total
    assert total[400] > 5, total
    assert set(total) <= {200, 400, 502, 503}, total
    wait_until(stack.at_rest, 60)
    assert stack.resident("a")["restarts"] == 1
    assert stack.resident("b")["restarts"] == 0
