"""One drill at a time on a stack: two would answer for each other."""

import fcntl
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_FILE = "drill.lock"
_UNNAMED = "of an unknown name"
_LOOKS_S = 0.5  # whoever looks whether a drill runs holds the lock for an instant


class Busy(RuntimeError):
    """Another drill runs; the message says which."""


@contextmanager
def only_drill_in(state_dir: Path, name: str) -> Generator[None]:
    """Hold the state folder's lock, with the drill's name in it. Raises `Busy` and `OSError`."""
    state_dir.mkdir(parents=True, exist_ok=True)
    with (state_dir / _FILE).open("a+") as held:
        _take(held)
        _write(held, name)
        try:
            yield
        finally:
            _write(held, "")


def _take(held: IO[str]) -> None:
    until = time.monotonic() + _LOOKS_S
    while True:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            if time.monotonic() > until:
                held.seek(0)
                name = held.read() or _UNNAMED
                raise Busy(f"drill {name} runs already: wait for its end") from err
            time.sleep(0.02)
        else:
            return


def _write(held: IO[str], text: str) -> None:
    held.truncate(0)
    held.write(text)
    held.flush()


def running_drill(state_dir: Path) -> str | None:
    """The name of the drill that runs now; None: none does."""
    try:
        with (state_dir / _FILE).open("r") as held:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return (state_dir / _FILE).read_text(encoding="utf-8") or _UNNAMED
    return None
