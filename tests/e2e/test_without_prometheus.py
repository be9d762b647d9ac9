"""The stack where Prometheus is missing, and where a port is taken: clear words, and still safe."""

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.stack import CLI, start_stack, stop_stack, wait_until


def test_without_prometheus_the_control_plane_evaluates_the_action_rules(
    tmp_path: Path, lines_file: Path, clip: Path
) -> None:
    stack = start_stack(tmp_path, lines_file, path=str(Path(sys.executable).parent))
    try:
        assert "rules are not evaluated yet" in stack.output.read_text()
        assert "prometheus" not in stack.urls
        stack.cli("drill", "slow", "-r", "b", "--amount", "1.5")
        out = ("--out", str(tmp_path / "answer.wav"))
        with ThreadPoolExecutor(5) as pool:
            for i in range(5):
                pool.submit(stack.cli, "send", str(clip), *out, "--session", f"s{i}", check=False)
            wait_until(lambda: stack.resident("b")["level"]["media"] >= 1, 60)
            stack.cli("drill", "slow", "-r", "b", "--seconds", "0")
        assert stack.get("control", "/api/status")["rule_source"] == "embedded"
    except TimeoutError:
        pytest.fail(stack.logs())
    finally:
        assert stop_stack(stack) == [], "orphan processes after Ctrl-C"


def test_a_taken_port_ends_up_with_one_sentence_and_no_process(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [*CLI, "up", "--state-dir", str(tmp_path), "--runtime-port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"port {port} is taken" in done.stderr
    assert "--runtime-port" in done.stderr
