"""Records what `/metrics` of a real stack says, for tests/rules/test_recordings.py.

    python -m tests.support.record_exposition

Starts `redline up`, begins a rollout, sends clips to both residents between two scrapes, gives
everybody to the canary, and writes both scrapes of both planes to tests/fixtures/redline. Takes a
minute or two.
"""

import tempfile
import time
from pathlib import Path

from tests.support import media
from tests.support.stack import RunningStack, start_stack, stop_stack, wait_until

FOLDER = Path(__file__).parents[1] / "fixtures" / "redline"
APART_S = 20.0  # what the tests take the two scrapes to be apart
_SESSIONS = 8  # at half the weight on the canary, both residents get some of them


def record(folder: Path) -> None:
    """Write `runtime_0.txt`, `runtime_1.txt`, and the same of the control plane."""
    with tempfile.TemporaryDirectory() as scratch:
        lines, clip = Path(scratch, "redline.yaml"), Path(scratch, "clip.mp4")
        lines.write_text("rollout: {bake_s: 300}\n")
        clip.write_bytes(media.clip(2.0, sound="speech"))
        stack = start_stack(Path(scratch, "state"), lines)
        try:
            stack.cli("rollout", "start", "--yes", "--weight", "50")
            wait_until(lambda: _canary_serves(stack), 60)
            _ask(stack, clip, Path(scratch))
            _scrape(stack, folder, 0)
            since = time.monotonic()
            _ask(stack, clip, Path(scratch))
            time.sleep(max(0.0, APART_S - (time.monotonic() - since)))
            _give_everybody_to_the_canary(stack)
            _scrape(stack, folder, 1)
        finally:
            stop_stack(stack)


def _canary_serves(stack: RunningStack) -> bool:
    return 'redline_route_weight_ratio{version="tiny-omni-2"} 0.5' in _metrics(stack, "runtime")


def _give_everybody_to_the_canary(stack: RunningStack) -> None:
    """By hand: a rollout's own promotion takes thousands of requests."""
    seen = stack.get("runtime", "/control")
    order = {
        "leader_epoch": seen["leader_epoch"], "route_epoch": seen["route_epoch"] + 1,
        "stable": "a", "canary": "b", "canary_weight": 0,
    }  # fmt: skip
    stack.request("PUT", "runtime", "/control/route", json=order)
    wait_until(lambda: "redline_rollout_way_back_ready 1.0" in _metrics(stack, "control"), 30)


def _ask(stack: RunningStack, clip: Path, scratch: Path) -> None:
    for number in range(_SESSIONS):
        stack.cli(
            "send", str(clip), "--session", f"s{number}", "--max-tokens", "16",
            "--out", str(scratch / "answer.wav"),
        )  # fmt: skip


def _scrape(stack: RunningStack, folder: Path, number: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for plane in ("runtime", "control"):
        (folder / f"{plane}_{number}.txt").write_text(_metrics(stack, plane), encoding="utf-8")


def _metrics(stack: RunningStack, plane: str) -> str:
    return stack.request("GET", plane, "/metrics").text


if __name__ == "__main__":
    record(FOLDER)
