"""Drills on a whole stack with real Prometheus and Alertmanager: what runbooks say, happens.

The tests of this module share one stack and run in order: each leaves it healthy.
"""

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from monitors.contract import DrillKind
from redline import inject
from redline.drills.lock import only_drill_in
from redline.settings import find_stack
from tests.support.stack import CLI, RunningStack, wait_until

RUNNING = psutil.STATUS_RUNNING, psutil.STATUS_SLEEPING, psutil.STATUS_DISK_SLEEP
POOL_SHARE = 0.3  # of the pool, pinned to weigh a page: below the memory line


@pytest.fixture(scope="module")
def stack_lines(drill_lines: Path) -> Path:
    return drill_lines


@dataclass(frozen=True)
class Held:
    """A drill that has ended: its exit code, its report and what it said meanwhile."""

    code: int
    report: dict[str, Any]
    said: str

    def step(self, key: str) -> dict[str, Any]:
        return next(one for one in self.report["steps"] if one["step"] == key)

    def walls(self, *keys: str) -> list[float]:
        return [self.step(key)["wall"] for key in keys]

    @property
    def keys(self) -> list[str]:
        return [one["step"] for one in self.report["steps"]]


def command(stack: RunningStack, *arguments: str) -> list[str]:
    return [*CLI, "drill", *arguments, "--json", "--state-dir", str(stack.state)]


def fires(stack: RunningStack) -> set[str]:
    return {one["alert"] for one in stack.get("control", "/api/status")["firing"]}


def settled(stack: RunningStack) -> bool:
    """Whether Prometheus evaluates and nothing is left of the drill before."""
    if stack.get("control", "/api/status")["rule_source"] != "prometheus":
        return False
    level = stack.resident("b")["level"]
    ladder = {"RedlineLatencyDegrade", "RedlineCacheBelowFloor", "RedlineFirstPacketShed"}
    return not any(level.values()) and not fires(stack) & ladder


def drill(stack: RunningStack, *arguments: str, code: int = 0) -> Held:
    wait_until(lambda: settled(stack), 90)
    done = subprocess.run(
        command(stack, *arguments), capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return Held(code, json.loads(done.stdout) if done.stdout else {}, done.stderr)


def tokens_of(step: dict[str, Any]) -> int:
    """Prompt tokens, as a step tells them: `media=360p+8k: 139 prompt tokens, before 161`."""
    return int(step["seen"].split(": ")[-1].split()[0])


# ---------------------------------------------------------------- the ladder
def test_latency_lowers_the_media_that_clients_really_get_and_gives_it_back(
    stack: RunningStack,
) -> None:
    held = drill(stack, "latency")
    assert held.report["answered"]
    assert held.keys == [
        "inject", "breach", "pending", "firing", "webhook", "action", "effect", "mended", "told",
        "quiet", "eased", "recovery", "full",
    ]  # fmt: skip
    assert held.step("told")["seen"].startswith("media=360p+8k: ")
    assert held.step("full")["seen"].startswith("full: ")
    assert tokens_of(held.step("told")) < 0.95 * tokens_of(held.step("full"))
    began, action, told, eased, full = held.walls("inject", "action", "told", "eased", "full")
    assert began < action < told < eased < full
    assert held.report["requests_failed"] == 0
    level = stack.resident("b")["level"]
    assert (level["media"], level["kv"]) == (0, 0)
    moves = [e["body"] for e in stack.get("control", "/api/journal") if e["kind"] == "ladder.moved"]
    assert [m["rung"] for m in moves if m["part"] == "media"] == [1, 0]


def bytes_of_a_page(stack: RunningStack) -> float:
    """What a newly written page of B takes, weighed by pinning many."""
    found = find_stack(stack.state)
    pages = int(inject.start(found, DrillKind.PRESSURE, "b", 30.0, POOL_SHARE).detail.split()[0])

    def live() -> float:
        rows = stack.get("runtime", "/tables")["cache_summary"]
        return next(row["gpu_mem_gb"] for row in rows if row["version"] == "tiny-omni-1") * 1e9

    wait_until(lambda: live() > 0, 10)
    taken = live() / pages
    inject.start(found, DrillKind.PRESSURE, "b", 0.0, POOL_SHARE)
    return taken


def test_cache_turns_the_pool_to_int8_and_later_writes_native_again(stack: RunningStack) -> None:
    before = bytes_of_a_page(stack)
    held = drill(stack, "cache")
    assert held.report["answered"]
    assert {"pending", "firing", "webhook", "action", "effect", "smaller"} < set(held.keys)
    breach, smaller = held.walls("breach", "smaller")
    assert smaller - breach > 1.0, "it holds for two seconds first"
    was, now = (
        float(held.step(key)["seen"].split(" MB live")[0].split()[-1])
        for key in ("breach", "smaller")
    )
    assert now < 0.75 * was
    assert stack.resident("b")["level"]["kv"] == 0
    assert bytes_of_a_page(stack) == pytest.approx(before, rel=0.05)


def test_a_frozen_ladder_fails_the_drill_with_the_reason(stack: RunningStack) -> None:
    stack.cli("freeze")
    try:
        held = drill(stack, "latency", "--no-recovery", code=1)
        wait_until(lambda: "RedlineLatencyDegrade" not in fires(stack), 30)
    finally:
        stack.cli("unfreeze")
    assert not held.report["answered"]
    (missing,) = held.report["wanting"]
    assert missing.startswith("action: not seen within")
    assert held.step("webhook")["wall"] is not None
    assert held.step("action")["wall"] is None
    assert "the ladder is frozen" in held.report["instead"][0]
    assert held.report["instead"][1].startswith("fires: ")
    assert "tiny-omni-1: ready, 100 % of new sessions, level full" in held.report["instead"]


# ---------------------------------------------------------------- the rollout
def pinned(stack: RunningStack, resident: str, text: str) -> int:
    """Tokens that a text turn, pinned by hand to one resident, found in its cache."""
    body = {"model": "redline", "max_tokens": 2, "messages": [{"role": "user", "content": text}]}
    headers = {"X-Redline-Resident": resident}
    answer = stack.request("POST", "runtime", "/v1/chat/completions", json=body, headers=headers)
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_fault_rolls_the_canary_back_with_proof_and_leaves_the_other_alone(
    stack: RunningStack,
) -> None:
    before_a, before_b = stack.resident("a"), stack.resident("b")
    # Long: with reuse on, the newest 64 tokens are not settled and never enter the cache.
    text = "the quick brown fox jumps over the lazy dog " * 12
    for resident in ("a", "b", "a"):
        cached = pinned(stack, resident, text)
    assert cached > 0
    held = drill(stack, "fault", "--yes")
    assert held.report["answered"]
    steps = ["breach", "called", "cut_over", "drain", "flush", "verify", "quarantine", "done"]
    assert held.keys == ["inject", *steps]
    walls = held.walls(*steps)
    assert walls == sorted(walls)
    assert "0 pages" not in held.step("flush")["seen"]
    assert "the witness missed" in held.step("verify")["seen"]
    after_a, after_b = stack.resident("a"), stack.resident("b")
    assert after_a["weight"] == 0
    assert after_a["pool_epoch"] > before_a["pool_epoch"]
    assert (after_b["pool_epoch"], after_b["pid"]) == (before_b["pool_epoch"], before_b["pid"])
    assert pinned(stack, "a", text) == 0, "A answered from what it had cached before"
    assert pinned(stack, "b", text) > 0, "B lost its cache"


def test_under_quarantine_no_further_drill_can_start_the_version(stack: RunningStack) -> None:
    held = drill(stack, "fault", "--yes", code=2)
    assert "quarantine" in held.said
    stack.cli("rollout", "clear-quarantine", stack.resident("a")["weights_digest"])


# ---------------------------------------------------------------- what decides
def test_the_control_plane_is_killed_and_nothing_is_lost_or_repeated(stack: RunningStack) -> None:
    before = stack.get("control", "/api/status")
    held = drill(stack, "control-down")
    assert held.report["answered"]
    assert held.report["requests_failed"] == 0
    assert held.keys.index("effect") < held.keys.index("down") < held.keys.index("led")
    after = stack.get("control", "/api/status")
    assert after["pid"] != before["pid"]
    assert after["leader_epoch"] > before["leader_epoch"]


def test_what_a_drill_stopped_goes_on_when_the_drill_is_ended(stack: RunningStack) -> None:
    wait_until(lambda: settled(stack), 90)
    record = json.loads((stack.state / "stack.json").read_text())
    prometheus = psutil.Process(record["processes"]["Prometheus"]["pid"])
    process = subprocess.Popen(
        command(stack, "prometheus-down"),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        wait_until(lambda: prometheus.status() == psutil.STATUS_STOPPED, 30)
        assert "a drill runs: prometheus-down" in stack.cli("status")
        os.kill(process.pid, signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "what was broken is mended" in said
    assert prometheus.status() in RUNNING
    assert "a drill runs" not in stack.cli("status")
    wait_until(lambda: stack.get("control", "/api/status")["rule_source"] == "prometheus", 30)


def test_a_second_drill_is_refused_while_one_runs(stack: RunningStack) -> None:
    with only_drill_in(stack.state, "cache"):
        held = drill(stack, "latency", code=2)
    assert "drill cache runs already" in held.said


def test_a_process_drill_needs_the_machine_of_the_stack(stack: RunningStack) -> None:
    elsewhere = {"REDLINE_RUNTIME_URL": stack.urls["runtime"]}
    done = subprocess.run(
        command(stack, "control-down"),
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **elsewhere},
    )  # fmt: skip
    assert done.returncode == 2
    assert "needs the machine" in done.stderr
    assert stack.resident("b")["level"]["media"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prometheus-down", "alertmanager-down"])
def test_a_silent_watchdog_leaves_breaches_answered(stack: RunningStack, name: str) -> None:
    held = drill(stack, name)
    assert held.report["answered"]
    keys = held.keys
    assert keys.index("embedded") < keys.index("breach") < keys.index("action")
    assert keys.index("effect") < keys.index("back") < keys.index("recovery")
    assert "pending" not in keys, "nobody but the control plane evaluates"
    assert stack.get("control", "/api/status")["rule_source"] == "prometheus"


@pytest.mark.slow
def test_while_the_control_plane_hangs_the_canary_loses_its_share_and_the_stable_one_serves(
    stack: RunningStack,
) -> None:
    refused = drill(stack, "control-down", "--hold", "60", code=2)
    assert "choose at most 5" in refused.said
    stack.cli("rollout", "start", "--yes", "--weight", "20")
    wait_until(lambda: stack.resident("a")["weight"] == 20, 20)
    held = drill(stack, "control-down", "--hold", "5")
    assert held.report["requests_failed"] == 0
    assert held.step("lease")["took_s"] > 1.0
    down, lease, awake, led = held.walls("down", "lease", "awake", "led")
    assert down < lease < awake < led
    stack.cli("rollout", "rollback")
