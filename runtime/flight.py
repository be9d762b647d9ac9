"""The life of one request: decoded, served, cut over or cancelled, and closed."""

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from monitors.contract import Level, Name
from monitors.labels import Outcome, Stage
from runtime import refusals, turns
from runtime.ask import Ask
from runtime.media.fidelity import fidelity_of
from runtime.mirror import Mirror, Original
from runtime.openai_errors import ApiError
from runtime.plane import DataPlane
from runtime.residents.port import (
    AudioDelta,
    Failed,
    Finished,
    Generate,
    RequestEvent,
    ResidentError,
    TextDelta,
    VideoPrefilled,
)
from runtime.turns import Decoding, Prompt
from runtime.watch import Watch
from runtime.witness import MAX_BYTES, Witness

ANY_LEG = 0  # legs count from 1

log = logging.getLogger(__name__)


class Fate(StrEnum):
    """What becomes of a flight whose resident is cut over."""

    REPLAYED = "replayed"  # it goes on, unnoticed, on the stable resident
    ABORTED = "aborted"  # output had been sent: the client is told to ask again
    UNKEPT = "unkept"  # nothing had, but there is nothing left to start from: told the same
    FINISHED = "finished"  # it was over already


@dataclass(frozen=True)
class Abort:
    """The request has ended: what its client is told."""

    error: ApiError


class Flight:
    """One request on its way. `close` is safe to call at any moment, and again.

    `left` is done once the resident it is on has nothing more to do with it; `landed` once its
    client has been told all, or is gone.
    """

    def __init__(self, plane: DataPlane, ask: Ask, resident: Name, mirror: Mirror) -> None:
        self.ask = ask
        self.landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expects = ask.expects()
        self._delivered = False  # whether the client has seen any output
        self._unkept = False  # whether its inputs were too large to stay here
        self._plane = plane
        self._mirror = mirror
        self._prompt = Prompt()
        self._events: asyncio.Queue[tuple[int, RequestEvent | Abort]] = asyncio.Queue()
        self.legs = 0  # how often it was handed to a resident
        self._leg: asyncio.Task[None] | None = None
        self.trace = ask.trace
        self._here = contextvars.copy_context()  # for what is done to it from elsewhere
        self._board(resident, ask.since)

    @property
    def resident(self) -> Name:
        """Where it is now."""
        return self.watch.stamp.resident

    @property
    def begun(self) -> bool:
        """Whether its client has seen any of the answer, so that nobody else can begin it."""
        return self._delivered

    @property
    def level_now(self) -> Level:
        """What its session's next request would be served at, were it asked now."""
        return self._plane.levels.of(self.resident, self.ask.session_class)

    @property
    def held_bytes(self) -> int:
        """Decoded media of it that is here, for a resident to start from."""
        return sum(array.nbytes for array in self._prompt.arrays)

    async def decode(self) -> None:
        """Cut the request's media into slices, off the event loop. Raises `ApiError`."""
        settings = self._plane.settings
        rung = max(self.ask.wish, self.watch.stamp.level.media)  # the lower fidelity wins
        how = Decoding(
            limits=settings.limits,
            fidelity=fidelity_of(rung, settings.lines.ladder),
            fps=settings.video_fps,
            slices=settings.lines.scheduler,
            digests=self.ask.digests,
        )
        prompt = Prompt()
        try:
            await self._decode(how, prompt)
        except ApiError:
            self.watch.judged(*prompt.findings)
            raise
        self._prompt = prompt
        self.ask = self.ask.without_content()
        self.trace.decoded(rung)

    async def _decode(self, how: Decoding, prompt: Prompt) -> None:
        """In a thread; how long it waited for one, and how long it took."""
        clock, asked_at = self._plane.clock, self._plane.clock()
        began: list[float] = []

        def build() -> None:
            began.append(clock())
            turns.build(self.ask.chat, self.ask.files, how, prompt)

        here = contextvars.copy_context()  # so that a log line from there knows its request
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._plane.decoders, here.run, build)
        finally:
            if began:
                self.trace.stage(Stage.DECODER_QUEUE, asked_at, began[0])
                self.trace.stage(Stage.DECODE_MEDIA, began[0], clock())

    async def events(self) -> AsyncIterator[TextDelta | AudioDelta | Finished]:
        """The deltas of the answer, a `Finished` last. Raises `ApiError` where it fails."""
        self._reroute_if_cut_over()
        if not self.watch.over:
            self._depart()
        while True:
            leg, event = await self._events.get()
            if leg not in (self.legs, ANY_LEG):
                continue  # of a resident it was taken from
            match event:
                case VideoPrefilled():
                    self.watch.prefilled(event)
                case TextDelta() | AudioDelta():
                    self._deliver()
                    yield event
                case Finished():
                    self._land(event)
                    yield event
                    return
                case Failed():
                    self.trace.worked(event.stages)
                    if event.kind != "lost" or not self._replay(Outcome.LOST):
                        self.watch.finish(refusals.outcome_of(event))
                        raise self._error_of(event)
                case Abort():
                    raise event.error

    def sent(self, event: TextDelta | AudioDelta) -> None:
        """A delta has just been handed to the client's socket."""
        self.watch.sent(event)
        if isinstance(event, TextDelta):
            self.trace.answered(event.text)

    def cut_over(self) -> Fate:
        """Take it off its resident, to the stable one where nothing was sent yet (DESIGN 8)."""
        return self._here.copy().run(self._cut_over)

    def abort(self, outcome: Outcome, error: ApiError) -> None:
        """End it at once; its client, who may be slow to read, hears of it in its turn."""
        self._here.copy().run(self._abort, outcome, error)

    async def close(self, outcome: Outcome = Outcome.CANCELLED) -> None:
        """Cancel what still runs, and end as `outcome` where nothing else has ended it.

        `FAILED`: the gateway itself did, whatever its resident has done. That is remembered of the
        request, and never held against the version.
        """
        unsaid = not self.watch.over or outcome is Outcome.FAILED
        ending = outcome if unsaid else self.watch.outcome
        self._leave(Outcome.CANCELLED)
        if not self.landed.done():
            self.landed.set_result(None)
            self._plane.inputs.release(self.ask.request_id)
            if not self.legs and self.ask.pinned is None:
                self._plane.book.unserved(self.watch.stamp.version, ending)
            self.trace.end(ending)
        if self._leg is not None:
            await asyncio.gather(self._leg, return_exceptions=True)

    def _cut_over(self) -> Fate:
        if self.left.done() or self.watch.over:
            return Fate.FINISHED
        if self._replay(Outcome.REPLAYED):
            return Fate.REPLAYED
        if self._unkept:
            self._abort(Outcome.LOST, refusals.not_kept())
            return Fate.UNKEPT
        self._abort(Outcome.LOST, refusals.cut_over(begun=self.begun))
        return Fate.ABORTED

    def _abort(self, outcome: Outcome, error: ApiError) -> None:
        self._leave(outcome)
        self._events.put_nowait((ANY_LEG, Abort(error)))

    def _replay(self, ending: Outcome) -> bool:
        """Start again on the stable resident, from the inputs and never from KV; False where that
        cannot be, and nothing is done. `ending`: of the leg that it leaves."""
        stable = self._plane.router.route.stable
        movable = self.ask.pinned is None and stable != self.resident
        if self.begun or self._unkept or not movable or not self._plane.is_ready(stable):
            return False
        departed = self._leg is not None
        self._leave(ending)
        self._board(stable, self._plane.clock())  # the stable one starts with a clean clock
        if departed:
            self._depart()
        return True

    def _board(self, name: Name, since: float) -> None:
        """Take a place on a resident: from here on its clock runs."""
        plane, ask = self._plane, self.ask
        operator = ask.pinned is not None
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.watch = Watch(
            plane.book,
            plane.stamp(
                name,
                ask.session or ask.request_id,
                ask.request_id,
                operator,
                ask.session_class,
            ),
            since=since,
            expects=self._expects,
            lines=plane.settings.lines.latency,
            speech=plane.speech_audit(name, ask.chat.voice),
            streamed=ask.chat.stream,
            verdicts=plane.verdicts,
            clock=plane.clock,
        )
        self.trace.boarded(self.watch.stamp, plane.kv_in_use(name))
        self.watch.start_timers(asyncio.get_running_loop())

    def _depart(self) -> None:
        """Hand the request to its resident."""
        self.legs += 1
        note = self.watch.judged if self.legs == 1 else self.watch.brought
        note(*self._prompt.findings)
        self.trace.departed()
        self._leg = asyncio.create_task(self._fly(self.legs, self.resident, self.watch))
        self._leg.add_done_callback(partial(self._leg_ended, self.legs, self.left))
        if self.ask.pinned is None and self.legs == 1 and self._plane.router.mirror_weight:
            self._mirror.offer(self._original())
        if not self._plane.inputs.keep(self.ask.request_id, self.held_bytes):
            self._unkept = True
            asyncio.get_running_loop().call_soon(self._let_go)  # the leg has handed it over by then

    def _deliver(self) -> None:
        """A delta goes to the client. Once it was sent nobody can begin anew: what is too large
        for a witness is of no more use."""
        self._delivered = self.ask.chat.stream
        if self._delivered and self.held_bytes > MAX_BYTES:
            self._let_go()

    def _let_go(self) -> None:
        """Forget the inputs."""
        self._prompt = Prompt()
        self._plane.inputs.release(self.ask.request_id)

    def _error_of(self, failed: Failed) -> ApiError:
        unsaid = failed.kind == "lost" and self._unkept and not self.begun
        return refusals.not_kept() if unsaid else refusals.of_engine(failed, begun=self.begun)

    async def _fly(self, leg: int, name: Name, watch: Watch) -> None:
        resident = self._plane.supervisors[name].resident
        async with aclosing(resident.generate(self._request(), self._prompt.arrays)) as events:
            async for event in events:
                if isinstance(event, AudioDelta):
                    watch.came(event)
                self._events.put_nowait((leg, event))

    def _leg_ended(
        self, leg: int, left: "asyncio.Future[None]", task: "asyncio.Task[None]"
    ) -> None:
        left.set_result(None)
        if task.cancelled() or (err := task.exception()) is None:
            return
        kind = "lost" if isinstance(err, ResidentError) else "engine"
        if kind == "engine":
            log.error(
                "a request failed in the gateway", exc_info=err, extra=self.trace.log_fields()
            )
        failed = Failed(request_id=self.ask.request_id, kind=kind, message=str(err))
        self._events.put_nowait((leg, failed))

    def _leave(self, outcome: Outcome) -> None:
        """Leave the resident: with an ending if it was ever reached, else without a trace."""
        if self.watch.over:
            return
        if self._leg is None:
            self.watch.abandon()
            self.trace.abandoned()
            self.left.set_result(None)
        else:
            self._leg.cancel()
            self.watch.finish(outcome)

    def _reroute_if_cut_over(self) -> None:
        """The route may have changed during decoding: a fenced resident gets no more."""
        may_serve = self._plane.router.may_serve(self.resident, self.ask.client)
        if self.ask.pinned is None and not may_serve:
            self.cut_over()

    def _original(self) -> Original:
        prompt = self._prompt
        return Original(
            ask=self.ask,
            resident=self.resident,
            request=self._request(),
            arrays=prompt.arrays,
            findings=prompt.findings,
            expects=self._expects,
            since=self.ask.since,
        )

    def _request(self) -> Generate:
        chat, onward = self.ask.chat, self.trace.onward()
        return Generate(
            request_id=self.ask.request_id,
            session=self.watch.stamp.session,
            turns=self._prompt.turns,
            max_tokens=chat.tokens(self._plane.settings.default_max_tokens),
            speech=chat.speech,
            voice=chat.voice,
            salt=self.ask.salt,
            traceparent=onward.get("traceparent"),
            tracestate=onward.get("tracestate"),
        )

    def _land(self, finished: Finished) -> None:
        self.trace.finished(finished)
        self.watch.finish(Outcome.OK, finished)
        ready = self._plane.supervisors[self.resident].ready
        cached = ready is not None and finished.prompt_tokens > ready.uncached_tokens
        if self.ask.pinned is None and cached and self._prompt.turns:
            witness = Witness(
                self._request(),
                self._prompt.arrays,
                finished.prompt_tokens,
                self.watch.stamp.pool_epoch,
            )
            self._plane.witnesses.keep(self.resident, witness)
