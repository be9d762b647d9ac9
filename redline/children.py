"""Child processes of `redline up`: started in their own sessions, watched, and always reaped."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from redline.processes import ProcessMark, mark_of

_PR_SET_PDEATHSIG = 1
MAX_WAIT_S = 30.0
STEADY_S = 60.0  # a child that has lived so long starts the back-off anew


def _die_with_parent() -> None:
    """Runs in the child before exec: the kernel ends it should we die without a word."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass
class Child:
    """One supervised process. `critical`: the stack does not come up without it."""

    name: str
    command: Sequence[str]
    log: Path
    critical: bool = True
    backoff_s: float = 0.5
    process: "subprocess.Popen[bytes] | None" = None
    restarts: int = 0  # since it last ran steadily
    running_since: float | None = None  # as `watch` saw it
    restart_at: float | None = None
    environment: dict[str, str] = field(default_factory=dict[str, str])

    def start(self) -> None:
        """Start it, its output going to its log. Raises `OSError` where it cannot be run."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - `up` starts no threads
                env={**os.environ, **self.environment},
            )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def mark(self) -> ProcessMark | None:
        """Which process it is now; None while it does not run."""
        return mark_of(self.process.pid) if self.process is not None and self.running else None

    def last_words(self, lines: int = 4) -> str:
        """The end of its log, for the sentence that tells why it stopped."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def marks_of(children: Sequence[Child]) -> dict[str, ProcessMark]:
    """Which process each of those that run is now, by name."""
    return {child.name: mark for child in children if (mark := child.mark) is not None}


def watch(child: Child, now: float, tell: Callable[[str], None]) -> None:
    """Restart a child that has ended, waiting twice as long each time, at most `MAX_WAIT_S`."""
    if child.running or child.process is None:
        child.running_since = now if child.running_since is None else child.running_since
    elif child.restart_at is None:
        steady = child.running_since is not None and now - child.running_since >= STEADY_S
        child.restarts = 0 if steady else child.restarts
        wait = min(MAX_WAIT_S, child.backoff_s * 2 ** min(child.restarts, 10))
        child.running_since, child.restart_at = None, now + wait
        ended = f"{child.name} ended (exit {child.process.returncode})"
        tell(f"{ended}; restarting in {wait:.1f} s; its log is {child.log}")
    elif now >= child.restart_at:
        child.restarts += 1
        child.restart_at = None
        _restart(child, tell)


def _restart(child: Child, tell: Callable[[str], None]) -> None:
    """A machine out of memory, processes or disk is met again after the next wait."""
    try:
        child.start()
    except OSError as err:
        tell(f"{child.name} cannot be started: {err}")
    else:
        tell(f"{child.name} restarted")


def stop_all(children: Sequence[Child], grace_s: float = 8.0) -> None:
    """SIGTERM to all, last started first; SIGKILL to what is left after `grace_s`; reap all."""
    alive = [c.process for c in reversed(children) if c.process is not None and c.running]
    for process in alive:
        process.terminate()
    deadline = time.monotonic() + grace_s
    for process in alive:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
