"""Work that gives way to all else, and leaves its process as it was."""

import os
import threading

import pytest

from runtime.engine.background import Pace, in_background

needs_idle = pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="Linux alone has it")


def test_its_result_or_its_end_is_the_callers() -> None:
    assert in_background(lambda: threading.current_thread().name) == "background"

    def refuse() -> None:
        raise SystemExit(78)

    with pytest.raises(SystemExit) as end:
        in_background(refuse)
    assert end.value.code == 78


@needs_idle
def test_the_thread_gives_way_and_the_process_does_not() -> None:
    before = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)

    def seen() -> tuple[int, int]:
        return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    assert in_background(seen) == (os.SCHED_IDLE, 19)
    assert (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)) == before


def test_a_reader_is_held_to_its_pace_and_saves_nothing_up() -> None:
    slept: list[float] = []
    now = [100.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(1_000.0, clock=lambda: now[0], sleep=sleep)
    pace.read(500)
    pace.read(500)
    assert slept == pytest.approx([0.5, 0.5])
    now[0] += 60.0  # a minute of something else is no credit
    pace.read(1_000)
    assert slept[-1] == pytest.approx(1.0)
