"""Children of `up`: restarted with patience, always reaped."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from redline.children import MAX_WAIT_S, STEADY_S, Child, stop_all, watch

ROOT = Path(__file__).parents[3]


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


def test_a_night_of_crashes_ends_no_more_than_the_child(tmp_path: Path) -> None:
    child = Child("brief", [sys.executable, "-c", ""], tmp_path / "log", restarts=2_000)
    child.start()
    assert child.process is not None
    child.process.wait()
    watch(child, 0.0, lambda _: None)
    assert child.restart_at == MAX_WAIT_S


def test_a_steady_life_starts_the_back_off_anew(tmp_path: Path) -> None:
    child = sleeper(tmp_path)
    child.restarts = 5
    child.start()
    try:
        for now in (0.0, STEADY_S):
            watch(child, now, lambda _: None)
        assert child.process is not None
        child.process.kill()
        child.process.wait()
        watch(child, STEADY_S + 1.0, lambda _: None)
        assert child.restart_at == STEADY_S + 1.0 + child.backoff_s
    finally:
        stop_all([child])


def test_a_restart_that_the_machine_refuses_is_told_and_tried_again(tmp_path: Path) -> None:
    child, said = sleeper(tmp_path), list[str]()
    child.start()
    assert child.process is not None
    child.process.kill()
    child.process.wait()
    command, child.command = child.command, [str(tmp_path / "gone")]
    watch(child, 0.0, said.append)
    watch(child, 1.0, said.append)
    assert "cannot be started" in said[-1]
    child.command = command
    watch(child, 1.0, said.append)
    try:
        watch(child, 3.0, said.append)
        assert child.running
    finally:
        stop_all([child])


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


PARENT = """
import sys, time
from pathlib import Path
from redline.children import Child

child = Child("orphan", [sys.executable, "-c", "import time; time.sleep(60)"], Path(sys.argv[1]))
child.start()
print(child.process.pid, flush=True)
time.sleep(60)
"""


def test_a_child_ends_with_a_parent_that_was_killed_without_a_word(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    _, alive = psutil.wait_procs([child], timeout=10)
    assert alive == []
