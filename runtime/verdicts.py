"""Judges what is too long for the event loop in a thread, and hands each verdict back on the loop.

One thread, in the order asked: a verdict takes a millisecond for ten seconds of speech, and no
client waits for one.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from monitors.contract import Name
from monitors.detectors.finding import Finding, Verdict, examine
from monitors.labels import Detector

Judges = Mapping[Detector, Callable[[], Verdict]]
Write = Callable[[tuple[Finding, ...]], None]


class Verdicts:
    """Build and use on one event loop; `stop` ends it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "judge")
        self._ended = False
        self._open: dict[asyncio.Future[None], Name] = {}

    def ask(self, resident: Name, judges: Judges, write: Write) -> None:
        """Have what the detectors say of a resident's request handed to `write`, once, on the
        loop."""
        if self._ended:
            write(_examine(judges))  # the loop is about to end, and nobody waits any more
            return
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()
        self._open[written] = resident
        judging = loop.run_in_executor(self._thread, _examine, judges)
        judging.add_done_callback(partial(self._judged, write, written))

    async def settled(self, resident: Name) -> None:
        """Wait until all that was asked of a resident's requests so far is written."""
        open_now = [written for written, name in self._open.items() if name == resident]
        if open_now:
            await asyncio.wait(open_now)

    async def stop(self) -> None:
        """Wait until everything is written, and end the thread."""
        while self._open:
            await asyncio.wait(list(self._open))
        self._ended = True
        self._thread.shutdown(wait=False)

    def _judged(
        self,
        write: Write,
        written: "asyncio.Future[None]",
        judging: "asyncio.Future[tuple[Finding, ...]]",
    ) -> None:
        try:
            write(judging.result())
        finally:
            del self._open[written]
            written.set_result(None)


def _examine(judges: Judges) -> tuple[Finding, ...]:
    return tuple(examine(detector, judge) for detector, judge in judges.items())
