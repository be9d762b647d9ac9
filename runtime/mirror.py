"""Copies of the stable resident's requests, run on the canary: evidence without a client.

No client waits for a copy or hears of it. It starts once its original was handed over, it is given
up rather than made to wait, and what it answers is measured and thrown away.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from monitors.contract import MirrorStatus, Name
from monitors.detectors.finding import Finding
from monitors.labels import Milestone, Outcome
from runtime import refusals
from runtime.ask import Ask
from runtime.plane import DataPlane
from runtime.residents.port import (
    Array,
    AudioDelta,
    Failed,
    Finished,
    Generate,
    RequestEvent,
    ResidentError,
    TextDelta,
    VideoPrefilled,
)
from runtime.watch import Watch
from runtime.witness import MAX_BYTES, Witness

MOST = 4  # copies at a time
PATIENCE_S = 30.0  # with one copy: that its engine hangs was noted at the lines
_SUFFIX = "-mirror"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Original:
    """A request as its resident was given it. `since`: when its last input byte came."""

    ask: Ask
    resident: Name
    request: Generate
    arrays: Sequence[Array]
    findings: Sequence[Finding]
    expects: Collection[Milestone]
    since: float


class Mirror:
    """Starts and ends copies, `MOST` at a time. Build and use on one event loop."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._copies: dict[asyncio.Task[None], Name] = {}
        self._started = self._dropped = 0
        plane.mirror_status = self.status

    def on(self, name: Name) -> "list[asyncio.Task[None]]":
        """The copies that run on one resident."""
        return [task for task, where in self._copies.items() if where == name]

    def status(self) -> MirrorStatus:
        """What became of copies since this gateway started."""
        return MirrorStatus(running=len(self._copies), started=self._started, dropped=self._dropped)

    def offer(self, original: Original) -> None:
        """Copy a request that has just been handed to its resident, where the route asks for it
        and nothing stands against it."""
        ask, router = original.ask, self._plane.router
        session = ask.session or ask.request_id
        name = router.mirror_of(original.resident, session, ask.client)
        if name is None:
            return
        if len(self._copies) >= MOST or not self._is_idle(name, original.resident):
            self._dropped += 1
            return
        self._started += 1
        copy = asyncio.create_task(self._run(name, original), name=f"mirror on {name}")
        self._copies[copy] = name
        copy.add_done_callback(self._ended)

    async def end(self, name: Name | None = None) -> None:
        """End the copies on a resident (None: all), whatever they are at."""
        ending = list(self._copies) if name is None else self.on(name)
        for copy in ending:
            copy.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def _ended(self, copy: "asyncio.Task[None]") -> None:
        name = self._copies.pop(copy)
        if not copy.cancelled() and (err := copy.exception()) is not None:
            log.error("a copy failed in the gateway", exc_info=err, extra={"resident": name})

    def _is_idle(self, *names: Name) -> bool:
        """Whether both residents are known to have time to spare, at full fidelity: on a machine
        that they share a copy takes from both."""
        return all(map(self._has_time, names))

    def _has_time(self, name: Name) -> bool:
        plane = self._plane
        busy, snapshot = plane.busy_share(name), plane.snapshots.get(name)
        if busy is None or snapshot is None or not plane.is_ready(name):
            return False
        limit = plane.settings.lines.scheduler.resume_utilisation
        return plane.levels.is_full(name) and busy < limit and not snapshot.waiting

    async def _run(self, name: Name, original: Original) -> None:
        try:
            watch = self._watch(name, original)
        except ResidentError:
            return  # it died this very moment, before it was asked
        request = msgspec.structs.replace(
            original.request,
            request_id=watch.stamp.request_id,
            traceparent=None,
            tracestate=None,
        )
        outcome = Outcome.CANCELLED
        try:
            async with asyncio.timeout(PATIENCE_S):
                outcome = await self._follow(watch, request, original.arrays)
        except TimeoutError:
            log.warning("a copy had no end within %.0f s", PATIENCE_S, extra={"resident": name})
        except ResidentError:
            outcome = Outcome.LOST  # its supervisor has said why
        finally:
            watch.finish(outcome)

    def _watch(self, name: Name, original: Original) -> Watch:
        ask, plane = original.ask, self._plane
        copy_id = ask.request_id + _SUFFIX
        session = ask.session or ask.request_id
        stamp = plane.stamp(name, session, copy_id, session_class=ask.session_class, mirror=True)
        watch = Watch(
            plane.book,
            stamp,
            since=original.since,
            expects=original.expects,
            lines=plane.settings.lines.latency,
            speech=plane.speech_audit(name, ask.chat.voice),
            streamed=ask.chat.stream,
            verdicts=plane.verdicts,
            clock=plane.clock,
        )
        watch.start_timers(asyncio.get_running_loop())
        watch.brought(*original.findings)
        return watch

    async def _follow(self, watch: Watch, request: Generate, arrays: Sequence[Array]) -> Outcome:
        """Measure an answer to its end as if it were sent; how it ended."""
        resident = self._plane.supervisors[watch.stamp.resident].resident
        async with aclosing(resident.generate(request, arrays)) as events:
            async for event in events:
                ended = _measure(watch, event)
                if isinstance(event, Finished):
                    watch.finish(Outcome.OK, event)
                    self._keep_witness(watch, request, arrays, event)
                if ended is not None:
                    return ended
        return Outcome.LOST

    def _keep_witness(
        self, watch: Watch, request: Generate, arrays: Sequence[Array], finished: Finished
    ) -> None:
        """What a copy leaves in the cache must miss after a flush like anything else."""
        stamp = watch.stamp
        ready = self._plane.supervisors[stamp.resident].ready
        small = sum(array.nbytes for array in arrays) <= MAX_BYTES
        if ready is not None and small and finished.prompt_tokens > ready.uncached_tokens:
            witness = Witness(request, arrays, finished.prompt_tokens, stamp.pool_epoch)
            self._plane.witnesses.keep(stamp.resident, witness)


def _measure(watch: Watch, event: RequestEvent) -> Outcome | None:
    """Take one event in; how the request ended, if it did."""
    match event:
        case VideoPrefilled():
            watch.prefilled(event)
        case AudioDelta():
            watch.came(event)
            watch.sent(event)
        case TextDelta():
            watch.sent(event)
        case Finished():
            return Outcome.OK
        case Failed():
            return refusals.outcome_of(event)
    return None
