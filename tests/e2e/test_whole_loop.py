"""The whole loop with real parts: media in, speech out, three tables, a rollback that survives.

The tests of this module share one stack and run in order: each leaves it healthy.
"""

import os
import re
import signal
import wave
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashboards.queries import queries
from runtime.quality.tones import read_back
from tests.support.stack import RunningStack, wait_until
from tests.support.task_clips import FIRST_SECONDS, FIRST_SEED, pairs_of, task_clip

ROOT = Path(__file__).parent.parent.parent
SCENE, SCENE_FILE = task_clip(FIRST_SECONDS, FIRST_SEED)


def ask(stack: RunningStack, clip: Path, session: str, *extra: str, check: bool = True) -> str:
    out = stack.state / f"{session}.wav"
    command = ("send", str(clip), "--ask", "What do you see?", "--out", str(out))
    return stack.cli(*command, "--session", session, *extra, check=check)


def rollbacks_done(stack: RunningStack) -> int:
    steps = [
        e["body"] for e in stack.get("control", "/api/journal") if e["kind"] == "rollback.step"
    ]
    return sum((step["step"], step["stage"]) == ("done", "proved") for step in steps)


def rollout(stack: RunningStack) -> dict[str, Any]:
    return stack.get("control", "/api/status")["rollout"]


def cache_rows(stack: RunningStack) -> list[dict[str, Any]]:
    return stack.get("runtime", "/tables")["cache"]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What do you see and hear?", pairs_of(SCENE)),
        ("Which digits do you hear?", " ".join(SCENE.digit_words)),
        ("Which colours do you see?", " ".join(SCENE.colour_words)),
    ],
)
def test_what_a_clip_shows_and_sounds_is_answered_in_text_and_in_playable_speech(
    stack: RunningStack, tmp_path: Path, question: str, answer: str
) -> None:
    """What `make clip` and the README's first `send` do: a real file, decoded and answered."""
    clip, out = tmp_path / "clip.mp4", tmp_path / "answer.wav"
    clip.write_bytes(SCENE_FILE)
    shown = stack.cli("send", str(clip), "--ask", question, "--out", str(out))
    assert answer in shown
    with wave.open(str(out)) as speech:
        assert (speech.getframerate(), speech.getnchannels()) == (24_000, 1)
        pcm = np.frombuffer(speech.readframes(speech.getnframes()), np.int16)
    assert read_back(pcm.astype(np.float32) / 32767, 24_000) == answer.split()
    for milestone in ("first_token", "first_audio_packet", "first_video_frame"):
        line = next(row for row in shown.splitlines() if row.startswith(milestone))
        assert line.endswith(" ms"), line
    assert "tiny-omni-1" in shown  # B is stable and has all the traffic
    request_id = next(row for row in shown.splitlines() if row.startswith("request ")).split()[1]
    story = stack.cli("explain", request_id)
    for stage in ("its media was decoded", "prefill", "decode loop", "Talker", "vocoder"):
        assert f"  {stage}: " in story
    assert "client was told    200" in story


def test_the_three_tables_hold_the_request(stack: RunningStack) -> None:
    tables = stack.get("runtime", "/tables")
    counts = {
        r["milestone"]: r["count"] for r in tables["latency"] if r["version"] == "tiny-omni-1"
    }
    assert counts["first_token"] >= 1
    assert counts["first_audio_packet"] >= 1
    assert counts["first_video_frame"] >= 1
    assert {r["modal"] for r in tables["cache"]} >= {"text", "audio", "video"}
    wait_until(lambda: any(r["hit_rate"] is not None for r in cache_rows(stack)), 10)
    assert all(r["faulted"] == 0 for r in tables["faults"] if r["version"] == "tiny-omni-1")
    assert "first_audio_packet" in stack.cli("tables", "--once")


# Nothing has fired, moved, been rolled out or gone wrong yet, an idle pool has no live block, and
# budgets are of what was gained between two minutes.
QUIET = re.compile(
    r"ALERTS|redline_faults_total|block_fill|rollbacks|changes\(|kv_shadow_nats|kv_table_entries"
    r"|way_back|service:redline_\w+:ratio"
)


def test_every_dashboard_query_finds_data_on_the_real_prometheus(
    stack: RunningStack, clip: Path
) -> None:
    boards = sorted((ROOT / "dashboards" / "json").glob("*.json"))
    asked = [q for board in boards for q in queries(board.read_text(), {})]
    expressions = {query.expr for query in asked if query.language == "promql"}
    assert len(expressions) > 30
    unanswered = {expression for expression in expressions if not QUIET.search(expression)}
    for number in range(20):  # windows are short here, and a rate needs two scrapes
        ask(stack, clip, f"board-{number}", "--max-tokens", "4")
        unanswered -= {expression for expression in unanswered if stack.query(expression)}
        if not unanswered:
            break
    assert unanswered == set()


def test_a_rollback_survives_kill_9_of_the_control_plane(stack: RunningStack, clip: Path) -> None:
    stack.cli("rollout", "start", "--yes", "--weight", "50")
    wait_until(lambda: stack.resident("a")["weight"] == 50, 20)
    epoch = stack.resident("a")["pool_epoch"]
    pid = stack.get("control", "/api/status")["pid"]
    done_before = rollbacks_done(stack)

    stack.cli("inject", "slow", "-r", "a", "--amount", "0.5", "--seconds", "8")  # a long drain
    with ThreadPoolExecutor(6) as pool:
        for i in range(6):
            pool.submit(ask, stack, clip, f"k{i}", check=False)
        wait_until(lambda: stack.resident("a")["in_flight"] > 0, 30)
        pool.submit(stack.cli, "rollout", "rollback", check=False)
        wait_until(lambda: stack.resident("a")["weight"] == 0, 20)
        os.kill(pid, signal.SIGKILL)

    def finished() -> bool:
        return stack.request("GET", "control", "/readyz").status_code == 200 and (
            rollbacks_done(stack) > done_before
        )

    wait_until(lambda: quiet(finished), 60)
    assert stack.get("control", "/api/status")["pid"] != pid
    assert stack.resident("a")["pool_epoch"] > epoch
    assert rollout(stack)["rollback"]["probe"]["verified"]


def quiet(check: Any) -> bool:
    """`check`, false while the control plane is away."""
    import httpx

    try:
        return bool(check())
    except httpx.HTTPError:
        return False
