"""Children of `up`: restarted with patience, always reaped."""

import os
import signal
import sys
from pathlib import Path

from redline.children import Child, stop_all, watch


def sleeper(tmp_path: Path, seconds: float = 60.0) -> Child:
    code = f"import time; print('hello', flush=True); time.sleep({seconds})"
    return Child("sleeper", [sys.executable, "-c", code], tmp_path / "log")


def test_a_child_that_dies_is_restarted_after_its_back_off(tmp_path: Path) -> None:
    child, said = sleeper(tmp_path), list[str]()
    child.start()
    first = child.process
    assert first is not None
    try:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        watch(child, 100.0, said.append)
        watch(child, 100.4, said.append)
        assert child.process is first, "too early"
        watch(child, 100.6, said.append)
        assert child.running
        assert child.process is not first
        assert len(said) == 2
    finally:
        stop_all([child])


def test_each_restart_waits_twice_as_long(tmp_path: Path) -> None:
    child = Child("brief", [sys.executable, "-c", ""], tmp_path / "log", backoff_s=1.0)
    child.start()
    now, waits = 0.0, list[float]()
    for _ in range(3):
        assert child.process is not None
        child.process.wait()
        watch(child, now, lambda _: None)
        waits.append(child.restart_at - now)
        now = child.restart_at
        watch(child, now, lambda _: None)
    assert waits == [1.0, 2.0, 4.0]
    assert child.process is not None
    child.process.wait()


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); "
        "print(1, flush=True); time.sleep(60)"
    )
    child = Child("stubborn", [sys.executable, "-c", code], tmp_path / "log")
    child.start()
    while not child.last_words():
        pass
    stop_all([child], grace_s=0.3)
    assert child.process is not None
    assert child.process.returncode == -signal.SIGKILL
