"""Processes of a stack by pid and moment of start, so that no other is ever signalled."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

_START_TIME = 22 - 3  # field 22 of /proc/PID/stat; its first two are before the last parenthesis


class NotOurs(RuntimeError):
    """The process is gone, or its pid is another's now; nothing was signalled."""


class ProcessMark(BaseModel):
    """Names one process for ever: the kernel gives a pid again, but not at the same tick."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: Annotated[int, Field(gt=1)]
    started: Annotated[int, Field(ge=0)]  # clock ticks after boot


def mark_of(pid: int) -> ProcessMark | None:
    """The process that has this pid now; None where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Names may hold blanks and parentheses: the last one ends it.
    fields = stat.rpartition(")")[2].split()
    return ProcessMark(pid=pid, started=int(fields[_START_TIME]))


def send(process: ProcessMark, number: signal.Signals) -> None:
    """Signal that very process. Raises `NotOurs` where it has ended, whoever has its pid now."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError as err:
        raise NotOurs(f"process {process.pid} has ended") from err
    try:
        # The handle was opened first: whatever is read now, a signal reaches what it stands for.
        if mark_of(process.pid) != process:
            raise NotOurs(f"process {process.pid} is another one now")
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError as err:
        raise NotOurs(f"process {process.pid} has ended") from err
    finally:
        os.close(handle)


def let_go_on(process: ProcessMark) -> None:
    """A stopped process goes on; to one that runs it means nothing."""
    with suppress(NotOurs):  # it was killed meanwhile: nothing is left to continue
        send(process, signal.SIGCONT)
