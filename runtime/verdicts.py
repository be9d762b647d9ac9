"""Judges what is too long for the event loop in a thread, and hands each verdict back on the loop.

A resident's requests are judged in the order asked, each in about a millisecond for ten seconds of
speech, and no client waits for one. A detector that hangs holds up nothing but the verdicts of its
own resident, and those for a limited time.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue

from monitors.contract import Name
from monitors.detectors.finding import Abstained, Finding, Verdict, examine
from monitors.labels import Detector

WAIT_S = 2.0  # of a flush, or of a stop, for what is still being judged
PATIENCE_S = 10.0  # of a request for its verdict
LATE = Abstained("no verdict in time")

log = logging.getLogger(__name__)

Judges = Mapping[Detector, Callable[[], Verdict]]
Write = Callable[[tuple[Finding, ...]], None]


class Verdicts:
    """Build and use on one event loop; `stop` ends it."""

    def __init__(self, *, wait_s: float = WAIT_S, patience_s: float = PATIENCE_S) -> None:
        self._wait_s = wait_s
        self._patience_s = patience_s
        self._threads: dict[Name, _JudgeThread] = {}
        self._ended = False
        self._open: dict[_Case, Name] = {}

    def ask(self, resident: Name, judges: Judges, write: Write) -> None:
        """Have what the detectors say of a resident's request handed to `write`, once, on the
        loop; that they abstain, where they have not said it in time."""
        if self._ended:
            write(_examine(judges))  # the loop is about to end, and nobody waits any more
            return
        loop = asyncio.get_running_loop()
        case = _Case(judges, write, loop.create_future())
        self._open[case] = resident
        case.written.add_done_callback(lambda _: self._open.pop(case))
        timer = loop.call_later(self._patience_s, case.give_up)
        case.written.add_done_callback(lambda _: timer.cancel())
        if resident not in self._threads:
            self._threads[resident] = _JudgeThread(resident)
        self._threads[resident].judge(case, loop)

    async def settled(self, resident: Name) -> None:
        """All that was asked of a resident's requests so far is written, with or without a
        verdict. Waits a limited time."""
        await self._settle([case for case, name in self._open.items() if name == resident])

    async def stop(self) -> None:
        """Everything is written, and the threads end when they can."""
        while self._open:
            await self._settle(list(self._open))
        self._ended = True
        for thread in self._threads.values():
            thread.end()

    async def _settle(self, cases: "list[_Case]") -> None:
        if cases:
            await asyncio.wait([case.written for case in cases], timeout=self._wait_s)
        for case in cases:
            case.give_up()


class _Case:
    """One request's verdict: written once, whoever comes first. `judges` is empty from then on."""

    def __init__(self, judges: Judges, write: Write, written: "asyncio.Future[None]") -> None:
        self.judges = judges
        self.written = written
        self._write = write

    def judged(self, findings: tuple[Finding, ...]) -> None:
        """The verdict is there. One that comes too late is dropped."""
        if self.written.done():
            return
        self.judges = {}
        self.written.set_result(None)  # before what may raise
        self._write(findings)

    def give_up(self) -> None:
        """Nobody waits any longer."""
        if not self.written.done():
            log.warning("no verdict in time of %s", ", ".join(self.judges))
            self.judged(tuple(Finding(detector, LATE, 0.0) for detector in self.judges))


class _JudgeThread:
    """A daemon: one that hangs does not keep the process from its end."""

    def __init__(self, resident: Name) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=f"judge {resident}", daemon=True).start()

    def judge(self, case: _Case, loop: asyncio.AbstractEventLoop) -> None:
        """Hands the case its verdict, on the loop. Its log lines are of the request that asks."""
        context = copy_context()

        def work() -> None:
            findings = context.run(_examine, case.judges)
            with suppress(RuntimeError):  # the loop has ended: nobody waits
                loop.call_soon_threadsafe(case.judged, findings)

        self._work.put(work)

    def end(self) -> None:
        """After what it was given."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


def _examine(judges: Judges) -> tuple[Finding, ...]:
    return tuple(examine(detector, judge) for detector, judge in judges.items())
