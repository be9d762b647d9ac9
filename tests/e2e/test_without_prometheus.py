"""The stack where Prometheus is missing, and where a port is taken: clear words, and still safe."""

import socket
import subprocess
import sys
from pathlib import Path

from tests.support.stack import CLI, start_stack, stop_stack


def test_without_prometheus_the_control_plane_evaluates_the_action_rules(
    tmp_path: Path, drill_lines: Path
) -> None:
    stack = start_stack(tmp_path, drill_lines, path=str(Path(sys.executable).parent))
    try:
        assert "rules are not evaluated yet" in stack.output.read_text()
        assert "prometheus" not in stack.urls
        stack.cli("drill", "latency", "--no-recovery")
        assert stack.get("control", "/api/status")["rule_source"] == "embedded"
    except AssertionError:
        print(stack.logs())
        raise
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
