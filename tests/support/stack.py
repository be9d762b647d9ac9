"""A whole stack as a user has it: `redline up` in a process of its own, and the CLI against it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.support.ports import free_ports

CLI = [sys.executable, "-m", "redline.cli"]


@dataclass
class RunningStack:
    """`redline up`, its folder, its addresses and its token."""

    process: "subprocess.Popen[str]"
    state: Path
    output: Path
    urls: dict[str, str] = field(default_factory=dict[str, str])
    token: str = ""

    def cli(self, *arguments: str, check: bool = True, timeout: float = 90) -> str:
        """One `redline` command against this stack; its output."""
        done = subprocess.run(
            [*CLI, *arguments, "--state-dir", str(self.state)],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def get(self, part: str, path: str) -> Any:
        """JSON of a GET on `runtime`, `control`, `prometheus` or `alertmanager`."""
        return self.request("GET", part, path).json()

    def request(self, method: str, part: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}", **more.pop("headers", {})}
        answer = httpx.request(method, self.urls[part] + path, headers=headers, timeout=30, **more)
        answer.raise_for_status()
        return answer

    def query(self, expression: str) -> list[dict[str, Any]]:
        """An instant query on the real Prometheus."""
        answer = self.request("GET", "prometheus", "/api/v1/query", params={"query": expression})
        return answer.json()["data"]["result"]

    def resident(self, name: str) -> dict[str, Any]:
        observed = self.get("runtime", "/control")
        return next(r for r in observed["residents"] if r["name"] == name)

    def at_rest(self) -> bool:
        """Both residents ready, nothing in flight, no page held by a request that is gone."""
        residents = self.get("runtime", "/control")["residents"]
        held = [row["gpu_mem_gb"] for row in self.get("runtime", "/tables")["cache_summary"]]
        ready = all(r["state"] == "ready" and r["in_flight"] == 0 for r in residents)
        return ready and bool(held) and not any(held)

    def broken_invariants(self) -> list[str]:
        """What the engines' own accounting of their pools complained of."""
        log = (self.state / "logs" / "runtime.log").read_text(errors="replace")
        return [line for line in log.splitlines() if "invariant" in line]

    def logs(self) -> str:
        """The end of every log, for a failure's message."""
        files = [self.output, *sorted((self.state / "logs").glob("*"))]
        return "\n".join(
            f"--- {f.name}\n" + "\n".join(f.read_text(errors="replace").splitlines()[-25:])
            for f in files
            if f.exists()
        )


def start_stack(state: Path, lines: Path, *extra: str, path: str | None = None) -> RunningStack:
    """Start `redline up` on free ports and wait until it says what to do next.

    `path` stands in for PATH, say to hide Prometheus.
    """
    state.mkdir(parents=True, exist_ok=True)
    runtime, control, prom, alerts = free_ports(4)
    flags = [f"--runtime-port={runtime}", f"--control-port={control}"]
    flags += [f"--prometheus-port={prom}", f"--alertmanager-port={alerts}", f"--lines={lines}"]
    output = state / "up.log"
    with output.open("w") as out:
        process = subprocess.Popen(
            [*CLI, "up", "--state-dir", str(state), *flags, *extra],
            stdout=out,
            stderr=out,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PATH": path or os.environ["PATH"]},
        )
    stack = RunningStack(process=process, state=state, output=output)
    try:
        wait_until(lambda: "Ctrl-C stops everything" in output.read_text(), 120, process)
    except (TimeoutError, RuntimeError):
        words = stack.logs()
        stop_stack(stack)
        raise AssertionError(words) from None
    record = json.loads((state / "stack.json").read_text())
    stack.token = record["token"]
    stack.urls = {
        part: record[f"{part}_url"]
        for part in ("runtime", "control", "prometheus", "alertmanager")
        if record[f"{part}_url"]
    }
    return stack


def stop_stack(stack: RunningStack) -> list[psutil.Process]:
    """Ctrl-C, as a user does; the processes that were still there afterwards (none, or a bug)."""
    family: list[psutil.Process] = []
    if stack.process.poll() is None:
        family = psutil.Process(stack.process.pid).children(recursive=True)
        stack.process.send_signal(signal.SIGINT)
    try:
        stack.process.wait(30)
    except subprocess.TimeoutExpired:
        stack.process.kill()
        stack.process.wait()
    _, alive = psutil.wait_procs(family, timeout=5)
    for orphan in alive:
        orphan.kill()
    return alive


def wait_until(
    holds: Callable[[], Any],
    timeout_s: float,
    process: "subprocess.Popen[str] | None" = None,
    every_s: float = 0.2,
) -> Any:
    """The first true value of `holds`; raises when time runs out or the process has ended."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = holds()
        if value:
            return value
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"the process ended with exit code {process.returncode}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so after {timeout_s} s: {holds}")
        time.sleep(every_s)
