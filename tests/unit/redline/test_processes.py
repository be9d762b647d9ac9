"""Only the very process that was written down is ever signalled."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from redline.processes import NotOurs, ProcessMark, let_go_on, mark_of, send
from redline.settings import Stack, find_stack


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def marked(child: "subprocess.Popen[bytes]") -> ProcessMark:
    mark = mark_of(child.pid)
    assert mark is not None
    return mark


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_stopped(child: "subprocess.Popen[bytes]") -> bool:
    return psutil.Process(child.pid).status() == psutil.STATUS_STOPPED


def test_the_process_that_was_marked_is_signalled(child: "subprocess.Popen[bytes]") -> None:
    send(marked(child), signal.SIGKILL)
    assert child.wait(20) == -signal.SIGKILL


def test_another_that_has_its_pid_now_is_not(child: "subprocess.Popen[bytes]") -> None:
    mark = marked(child)
    earlier = ProcessMark(pid=mark.pid, started=mark.started - 1)
    with pytest.raises(NotOurs, match="another one now"):
        send(earlier, signal.SIGKILL)
    let_go_on(earlier)
    assert child.poll() is None
    assert not is_stopped(child)


def test_one_that_has_ended_is_said_to_have(child: "subprocess.Popen[bytes]") -> None:
    mark = marked(child)
    child.kill()
    child.wait()
    with pytest.raises(NotOurs, match="has ended"):
        send(mark, signal.SIGTERM)
    assert mark_of(child.pid) is None


def test_a_stopped_process_goes_on(child: "subprocess.Popen[bytes]") -> None:
    send(marked(child), signal.SIGSTOP)
    until(lambda: is_stopped(child))
    let_go_on(marked(child))
    until(lambda: not is_stopped(child))


def test_a_stopped_process_may_be_killed_meanwhile(child: "subprocess.Popen[bytes]") -> None:
    mark = marked(child)
    send(mark, signal.SIGSTOP)
    child.kill()
    child.wait()
    let_go_on(mark)


def test_a_name_with_parentheses_is_read(tmp_path: Path) -> None:
    program = tmp_path / "a) b (c 1 2"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(program), "60"])
    try:
        started = psutil.Process(process.pid).create_time() - psutil.boot_time()
        assert marked(process).started == pytest.approx(started * os.sysconf("SC_CLK_TCK"), abs=200)
    finally:
        process.kill()
        process.wait()


def test_processes_of_a_record_are_forgotten_where_another_stack_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ProcessMark(pid=4242, started=1)
    urls = {part: f"http://{part}" for part in ("runtime_url", "control_url", "prometheus_url")}
    stack = Stack(**urls, token="t")
    named = stack.naming({"Prometheus": ours}, tmp_path)
    assert find_stack(tmp_path) == named
    monkeypatch.setenv("REDLINE_CONTROL_URL", "http://elsewhere")
    found = find_stack(tmp_path)
    assert found.processes == {}
    assert found.prometheus_url is None
    assert found.control_url == "http://elsewhere"


def test_a_restart_is_written_down_and_no_news_is_not(tmp_path: Path) -> None:
    stack = Stack(runtime_url="http://r", control_url="http://c", token="t")
    first = stack.naming({"Prometheus": ProcessMark(pid=10, started=1)}, tmp_path)
    written = (tmp_path / "stack.json").stat().st_mtime_ns
    assert first.naming(dict(first.processes), tmp_path) is first
    assert (tmp_path / "stack.json").stat().st_mtime_ns == written
    later = first.naming({"Prometheus": ProcessMark(pid=11, started=2)}, tmp_path)
    assert find_stack(tmp_path) == later
    assert (tmp_path / "stack.json").stat().st_mode & 0o077 == 0
