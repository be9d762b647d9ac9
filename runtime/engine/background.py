"""Work that gives way to all else on the machine: a model is loaded while another one serves.

A thread, and not the process, gives way: what it loaded is then served at full priority, which an
unprivileged process that had lowered its own could not take back.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")

PACE_BYTES_PER_S = 200e6  # of reading weights; no more, however idle the disk seems
_NICEST = 19
_AUTOGROUP = Path("/proc/self/autogroup")

log = logging.getLogger(__name__)


def in_background(work: Callable[[], T]) -> T:
    """What `work` returns or raises, done by a thread that everything else goes before."""
    done: Future[T] = Future()

    def run() -> None:
        _give_way()
        try:
            done.set_result(work())
        except BaseException as err:  # noqa: BLE001 - also an exit: it is the caller's to make
            done.set_exception(err)

    with _whole_session_gives_way():
        threading.Thread(target=run, name="background").start()
        return done.result()


def _give_way() -> None:
    """Of this thread alone: run when no other wants to, read and write when no other does.

    Each is done as far as the system has it and allows it.
    """
    thread = psutil.Process(threading.get_native_id()) if hasattr(os, "SCHED_IDLE") else None
    if thread is None:
        log.info("this system cannot run a thread in the background: it loads beside the others")
        return
    for give_way in (
        lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)),
        lambda: thread.nice(_NICEST),
        lambda: thread.ionice(psutil.IOPRIO_CLASS_IDLE),
    ):
        try:
            give_way()
        except (OSError, psutil.Error) as err:
            log.info("the background is not as quiet as it could be: %s", err)


@contextmanager
def _whole_session_gives_way() -> Iterator[None]:
    """Where the kernel shares the processor out among sessions first, a thread's own priority
    counts only within its session."""
    _set_autogroup(_NICEST)
    try:
        yield
    finally:
        _set_autogroup(0)


def _set_autogroup(nice: int) -> None:
    """Anybody may do so, ten times a second at most."""
    try:
        _AUTOGROUP.write_text(f"{nice}\n", encoding="ascii")
    except FileNotFoundError:
        return  # no such kernel
    except OSError as err:
        log.info("the session's share of the processor stays as it is: %s", err)


class Pace:
    """Holds a reader to `bytes_per_s` on average, by sleeping."""

    def __init__(
        self,
        bytes_per_s: float = PACE_BYTES_PER_S,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def read(self, count: int) -> None:
        """So many bytes were read just now."""
        now = self._clock()
        self._free_at = max(self._free_at, now) + count / self._bytes_per_s
        if self._free_at > now:
            self._sleep(self._free_at - now)
