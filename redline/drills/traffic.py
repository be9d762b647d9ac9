"""A drill's own requests: what goes on while it runs, and single ones that are looked at."""

import itertools
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from monitors.requests import RequestRecord
from redline import send
from redline.client import ClientError
from redline.request_story import fetch
from redline.settings import Stack

_TIMEOUT_S = 60.0
_LEAVE_S = 20.0  # for what is under way when it ends; nobody waits for more


@dataclass(frozen=True)
class Kind:
    """What the requests of a drill are like."""

    workers: int
    pause_s: float = 0.05  # of each worker, between two
    max_tokens: int = 1
    speech: bool = False
    clip: bool = False


@dataclass(frozen=True)
class Probe:
    """One request that was looked at: what its client was told, and what is remembered of it."""

    at: float  # wall seconds
    level: str
    record: RequestRecord

    @property
    def tokens(self) -> int | None:
        """Prompt tokens; None where its engine did not tell."""
        return None if self.record.usage is None else self.record.usage.prompt_tokens


@dataclass(frozen=True)
class Served:
    """One request of those that go on, in wall seconds."""

    sent: float
    answered: float


@dataclass
class Traffic:
    """Counts of what was sent. `failures`: when and why, one for each request that failed;
    `newest`: the request that was last answered."""

    stack: Stack
    clip: Path
    answered: int = 0
    newest: Served | None = None
    failures: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def probe(self) -> Probe:
        """Ask about the clip, text only. Raises `ClientError`."""
        answer = self._ask(Kind(workers=1, clip=True), "Which colours do you see?")
        return Probe(time.time(), answer.level, fetch(self.stack, answer.request_id))

    @contextmanager
    def going_on(self, kind: Kind | None) -> Generator[None]:
        """Requests of a kind, `workers` at a time, until the block ends. None: no request."""
        stop = threading.Event()
        workers = 0 if kind is None else kind.workers
        threads = [
            threading.Thread(target=self._send_on, args=(kind, stop), daemon=True)
            for _ in range(workers)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            until = time.monotonic() + _LEAVE_S
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))

    def _send_on(self, kind: Kind, stop: threading.Event) -> None:
        while not stop.is_set():
            number = next(self._numbers)
            # Never the same twice, so that no cache answers for the engine.
            self._count(lambda number=number: self._ask(kind, f"What is {number}?", number))
            stop.wait(kind.pause_s)

    def _count(self, ask: Callable[[], send.Answer]) -> None:
        began = time.time()
        try:
            ask()
        except ClientError as err:
            with self._lock:
                self.failures.append((began, str(err)))
        else:
            with self._lock:
                self.answered += 1
                self.newest = Served(began, time.time())

    def _ask(self, kind: Kind, question: str, number: int | None = None) -> send.Answer:
        return send.send(
            self.stack,
            [self.clip] if kind.clip else [],
            question,
            speech=kind.speech,
            on_text=lambda _: None,
            session=None if number is None else f"drill-{time.time_ns()}-{number}",
            max_tokens=kind.max_tokens,
            timeout_s=_TIMEOUT_S,
        )
