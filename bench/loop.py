"""The whole loop on this machine: first outputs of a clip, and a rollback from fault to proof."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.board import Figure, options, show
from monitors.redlines import RedLines
from tests.support import media
from tests.support.stack import RunningStack, start_stack, stop_stack, wait_until


def first_outputs(stack: RunningStack, clip: Path, requests: int) -> dict[str, float]:
    """p95 of each milestone, seconds, of sequential requests with different questions."""
    out = ("--out", str(clip.parent / "answer.wav"))
    for i in range(requests):
        stack.cli("send", str(clip), "--ask", f"What is number {i}?", *out)
    seen: dict[str, list[float]] = {}
    for entry in evidence(stack):
        if entry["body"]["type"] == "milestone":
            seen.setdefault(entry["body"]["milestone"], []).append(entry["body"]["seconds"])
    return {name: float(np.quantile(of, 0.95, method="inverted_cdf")) for name, of in seen.items()}


def rollback(stack: RunningStack, clip: Path) -> tuple[float, float]:
    """Seconds from the fault that breaches to (all new sessions on B, verified flush)."""
    stack.cli("rollout", "start", "--yes", "--weight", "50")
    wait_until(lambda: stack.resident("a")["weight"] == 50, 20)
    stack.cli("inject", "truncate", "-r", "a")
    out = ("--out", str(clip.parent / "answer.wav"))
    for i in range(60):
        stack.cli("send", str(clip), "--session", f"r{i}", "--max-tokens", "6", *out)
        if stack.get("control", "/api/status")["rollout"]["phase"] == "quarantined":
            break
    steps = {
        (e["body"]["step"], e["body"]["stage"]): e["wall"]
        for e in stack.get("control", "/api/journal")
        if e["kind"] == "rollback.step"
    }
    cut = steps["cut_over", "proved"]
    faults = [e["wall"] for e in evidence(stack) if is_hard(e) and e["wall"] <= cut]
    return cut - max(faults), steps["verify", "proved"] - max(faults)


def evidence(stack: RunningStack) -> list[dict[str, Any]]:
    answer = stack.get("runtime", "/evidence?incarnation=&after=0&wait=0")
    return answer["entries"]


def is_hard(entry: dict[str, Any]) -> bool:
    found = entry["body"]["type"] == "fault" and entry["body"]["grade"] == "hard"
    return found and not entry["rehearsal"]


def main() -> None:
    args = options(__doc__ or "")
    lines = RedLines()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        clip, yaml = root / "clip.mp4", root / "redline.yaml"
        clip.write_bytes(media.clip(2.0, sound="speech"))
        # The machine's own slowness must not end the canary before the drill does.
        yaml.write_text("latency: {first_packet_s: 5.0, degrade_s: 6.0}\n")
        stack = start_stack(root / "state", yaml)
        try:
            p95 = first_outputs(stack, clip, 10 if args.quick else 40)
            to_b, to_proof = rollback(stack, clip)
        finally:
            stop_stack(stack)
    seconds = lines.latency.first_packet_s
    figures = [
        Figure("first audio packet, p95, 2 s clip", p95["first_audio_packet"], "s", seconds,
               "article: 0.234 s on a GPU"),
        Figure("first token, p95", p95["first_token"], "s", seconds, ""),
        Figure("fault to all new sessions on B", to_b, "s", 1.0,
               "Argo Rollouts, Flagger: an analysis interval, 10 s at best"),
        Figure("fault to verified flush", to_proof, "s", 2.0, "none verifies"),
    ]  # fmt: skip
    show(figures, as_json=args.json)


if __name__ == "__main__":
    main()
