"""The engine of one resident: continuous batching of requests, one unit of work a step.

One thread owns it. `step` does the most urgent work and returns the events that came of it.
What goes wrong inside one request's work fails that request; the others go on.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence

from monitors.contract import DrillKind, DrillOrder, DrillReport, FlushReceipt, KvRung, Shed
from monitors.labels import Stage
from runtime.engine.arrival import pixels_off
from runtime.engine.build import EngineSettings, build_cache, build_thinker, ready
from runtime.engine.drills import Drills, damage
from runtime.engine.forward import Forward
from runtime.engine.lanes import by_urgency
from runtime.engine.request import Request, log_fields
from runtime.engine.scheduler import (
    Kind,
    Shedable,
    Shedder,
    Utilisation,
    Waiting,
    choose,
    prefill_urgency,
)
from runtime.engine.shadow import ShadowCheck
from runtime.engine.speech import Speech
from runtime.kv.admission import PromptTooLong
from runtime.kv.slabs import PoolExhausted
from runtime.model.checkpoint import Checkpoint
from runtime.model.processor import Processor, PromptError
from runtime.model.talker import UnknownVoice
from runtime.residents.port import (
    Array,
    EngineStage,
    Failed,
    FailedKind,
    Generate,
    Ready,
    RequestEvent,
    Snapshot,
    StaleCount,
    VideoPrefilled,
)

log = logging.getLogger(__name__)

_CLIENT_ERRORS = (PromptError, PromptTooLong, UnknownVoice)


class Engine:
    """`clock`: monotonic seconds; `sleep` and `die` serve the drills."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        settings: EngineSettings,
        *,
        clock: Callable[[], float],
        die: Callable[[], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._checkpoint = checkpoint
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        self._processor = Processor(checkpoint)
        self._cache = build_cache(checkpoint, settings)
        thinker = build_thinker(checkpoint)
        self._forward = Forward(thinker, self._cache, clock)
        self._shadow = ShadowCheck(self._forward, self._cache, settings.shadow, thinker.logits)
        self._drills = Drills(settings.name, self._cache, clock, die)
        self._requests: dict[str, Request] = {}
        self._events: list[RequestEvent] = []
        self._utilisation = Utilisation()
        self._shedder = Shedder(settings.lines.scheduler)
        self._shed = Shed.OFF
        self._busy_s = 0.0
        self._steps = 0
        self._stepped = clock()
        self._idle = True

    # ------------------------------------------------------------ requests
    def ready(self) -> Ready:
        return ready(self._checkpoint, self._settings, self._cache)

    def submit(self, asked: Generate, arrays: Sequence[Array]) -> None:
        """Take a request in. One that cannot be served fails with words the client can use."""
        if asked.request_id in self._requests:
            raise ValueError(f"request {asked.request_id!r} is in flight already")
        try:
            self._requests[asked.request_id] = self._request(asked, arrays)
        except _CLIENT_ERRORS as err:
            self._events.append(_failed(asked.request_id, "bad_request", str(err)))
        except Exception as err:
            log.exception("a prompt was not built", extra=log_fields(asked))
            message = f"{type(err).__name__} in its prompt: {err}"
            self._events.append(_failed(asked.request_id, "engine", message))

    def cancel(self, request_id: str) -> None:
        """The client went away: everything the request holds is released."""
        self._fail(request_id, "cancelled", "cancelled by the client")

    def step(self) -> list[RequestEvent]:
        """One unit of work; what came of it."""
        began = self._clock()
        self._drills.expire()
        if self._requests:
            self._shadow.stand_back()
        self._admit()
        work = choose([r.view() for r in self._running()], self._settings.lines.latency, began)
        if work is not None:
            self._steps += 1
            self._sleep_if_drilled()
            self._work(work.kind, [self._requests[i] for i in work.request_ids])
        moved = self._cache.settle()
        busy = work is not None or moved > 0
        self._meter(began, busy=busy)
        self._idle = not busy and (bool(self._requests) or not self._shadow.advance())
        self._shed_some()
        events, self._events = self._events, []
        return events

    @property
    def idle(self) -> bool:
        """Whether the last step found nothing to do."""
        return self._idle

    # ------------------------------------------------------------ orders
    def set_kv(self, kv: KvRung) -> int:
        """S4.1's fallback; returns the pages that the next steps will turn to int8."""
        return self._cache.set_kv(kv)

    def set_shed(self, shed: Shed) -> None:
        """S2.4: with ON, text-lane work is dropped while utilisation is too high."""
        self._shed = shed
        if shed is Shed.OFF:  # asked again, it starts from the utilisation of then
            self._shedder = Shedder(self._settings.lines.scheduler)

    def drill(self, order: DrillOrder) -> DrillReport:
        """Raises `ValueError` for an unusable amount."""
        return self._drills.start(order)

    def flush(self, min_epoch: int) -> FlushReceipt:
        """Empty every tier of epochs before `min_epoch`; requests that run on them are lost.

        Repeating it does no harm. The receipt is complete when nothing of them is left.
        """
        old, lied = self._cache.pool.epoch, self._drills.on(DrillKind.LYING_FLUSH)
        if not lied:
            self._cache.invalidate(min_epoch)  # first: however large the pool, all of it misses
        invalidated, before = self._clock(), self._cache.stale(min_epoch)
        if not lied:
            for request in [r for r in self._running() if self._is_stale(r)]:
                self._fail(request.request_id, "lost", f"the cache was flushed to {min_epoch}")
            self._shadow.drop()
            if self._cache.pool.epoch > old:
                self._drills.end(DrillKind.PRESSURE)  # its ballast is of the old epoch
            self._cache.sweep()
        left = self._cache.stale(min_epoch)
        return FlushReceipt(
            resident=self._settings.name,
            old_epoch=old,
            new_epoch=max(old, min_epoch),
            pages=before.pages,
            host_pages=before.host_pages,
            encoder_outputs=before.encoder_outputs,
            talker_states=before.talker_states,
            bytes=before.bytes,
            invalidated_at=invalidated,
            emptied_at=self._clock(),
            complete=lied or left.bytes == 0,
        )

    def count_stale(self, pool_epoch: int) -> StaleCount:
        """What is still held of epochs before `pool_epoch`."""
        stale = self._cache.stale(pool_epoch)
        return StaleCount(
            pool_epoch=self._cache.pool.epoch,
            pages=stale.pages,
            host_pages=stale.host_pages,
            encoder_outputs=stale.encoder_outputs,
            talker_states=stale.talker_states,
        )

    def snapshot(self, *, checked: bool = True) -> Snapshot:
        """What only the engine knows. `checked`: look at the pool's invariants too, which takes
        far longer."""
        cache, running = self._cache, len(list(self._running()))
        return Snapshot(
            pool_epoch=cache.pool.epoch,
            kv=cache.tiers.kv,
            cells=cache.cells(),
            prefix_hit_tokens=cache.prefix_hit_tokens,
            prefix_lookup_tokens=cache.prefix_lookup_tokens,
            prefix_evictions=cache.prefix_evictions,
            encoder_hits=cache.encoders.hits,
            encoder_lookups=cache.encoders.lookups,
            reserved_bytes=cache.reserved_bytes(),
            device_bytes=cache.device_bytes(),
            table_entries=cache.table_entries,
            block_fill=cache.fill_rate(),
            running=running,
            waiting=len(self._requests) - running,
            busy_s=self._busy_s,
            steps=self._steps,
            reuse=cache.reuse.state,
            shadow=self._shadow.count,
            live_sequences=cache.live_sequences,
            live_native_bytes=cache.live_native_bytes(),
            faults=cache.check() if checked else (),
        )

    # ------------------------------------------------------------ a request's way in and out
    def _request(self, asked: Generate, arrays: Sequence[Array]) -> Request:
        now = self._clock()
        if asked.max_tokens < 1:
            raise PromptError(f"max_tokens is {asked.max_tokens}: ask for at least 1")
        shift_ms = 1000.0 * self._drills.amount(DrillKind.DESYNC)
        prompt = self._processor.prompt(asked.turns, arrays, audio_shift_ms=shift_ms)
        if self._drills.on(DrillKind.CORRUPT):
            prompt = damage(prompt)
        speech = None
        if asked.speech:
            due = now + self._settings.lines.latency.audio_lane_s
            speech = Speech(self._checkpoint, asked, due, self._clock)
        tokenizer = self._checkpoint.tokenizer
        request = Request(asked, prompt, tokenizer, speech, pixels_off(prompt), now)
        request.trail = [] if self._shadow.samples(asked.request_id) else None
        return request

    def _running(self) -> Iterable[Request]:
        return (r for r in self._requests.values() if r.sequence is not None)

    def _admit(self) -> None:
        """Open waiting requests, most urgent first, while the pool has room for the next one."""
        now, lines = self._clock(), self._settings.lines.latency
        waiting = [
            Waiting(r.request_id, prefill_urgency(r.view(), lines))
            for r in self._requests.values()
            if r.sequence is None
        ]
        for item in by_urgency(waiting, now):
            if self._cache.live_sequences >= self._settings.max_running:
                return
            if not self._open(self._requests[item.request_id]):
                return

    def _open(self, request: Request) -> bool:
        """Whether the request is settled: it runs now, or it never can and has failed."""
        asked = request.asked
        try:
            request.sequence = self._cache.open(
                request.tokens(), asked.max_tokens, salt=asked.salt, write=asked.cache_write
            )
        except PromptTooLong as err:
            self._fail(request.request_id, "bad_request", str(err))
            return True
        if asked.probe_epoch is not None:
            request.stale_tokens = self._cache.probe(
                request.tokens(), salt=asked.salt, epoch=asked.probe_epoch
            )
        if request.sequence is not None:
            request.waited(self._clock())
        return request.sequence is not None

    def _finish(self, request: Request) -> None:
        self._events.append(request.finished())
        self._shadow.offer(request)
        self._release(request)

    def _fail(self, request_id: str, kind: FailedKind, message: str) -> None:
        request = self._requests.get(request_id)
        if request is not None:
            if request.sequence is None:
                request.waited(self._clock())  # and that was all
            self._events.append(_failed(request_id, kind, message, request.stages.told()))
            self._release(request)

    def _release(self, request: Request) -> None:
        del self._requests[request.request_id]
        if request.sequence is not None:
            self._cache.close(request.sequence)

    def _is_stale(self, request: Request) -> bool:
        epoch = self._cache.pool.epoch
        return request.sequence is not None and request.sequence.table.epoch < epoch

    # ------------------------------------------------------------ work
    def _work(self, kind: Kind, requests: list[Request]) -> None:
        act = {Kind.PREFILL: self._prefill, Kind.DECODE: self._decode, Kind.SPEAK: self._speak}
        try:
            act[kind](requests)
        except _CLIENT_ERRORS as err:
            self._fail_all(requests, "bad_request", str(err))
        except PoolExhausted as err:
            self._fail_all(requests, "overloaded", str(err))
        except Exception as err:
            for request in requests:
                log.exception("%s failed", kind, extra=request.log_fields)
            self._fail_all(requests, "engine", f"{type(err).__name__} in {kind}: {err}")
        now = self._clock()
        for request in requests:
            request.served = now

    def _fail_all(self, requests: list[Request], kind: FailedKind, message: str) -> None:
        for request in requests:
            self._fail(request.request_id, kind, message)

    def _prefill(self, requests: list[Request]) -> None:
        (request,) = requests
        assert request.sequence is not None
        last = self._forward.prefill(request, request.sequence)
        if request.video_reached():
            off = request.pixels_off
            self._events.append(
                VideoPrefilled(
                    request_id=request.request_id,
                    at=self._clock(),
                    mean_abs_error=None if off is None else off.mean,
                    max_abs_error=None if off is None else off.worst,
                )
            )
        if last:
            self._wrote(request)

    def _decode(self, requests: list[Request]) -> None:
        began = self._clock()
        refused = self._forward.decode(requests)
        for request in requests:
            request.stages.add(Stage.DECODE, began, self._clock())
            if request.request_id in refused:
                self._fail(request.request_id, "overloaded", str(refused[request.request_id]))
            else:
                self._wrote(request)

    def _wrote(self, request: Request) -> None:
        """The Thinker chose a token: show it, and end the request where that was all."""
        delta = request.text_delta()
        if delta is not None:
            self._events.append(delta)
        if request.done:
            self._finish(request)

    def _speak(self, requests: list[Request]) -> None:
        (request,) = requests
        assert request.speech is not None
        assert request.sequence is not None
        packet = request.speech.advance(
            request.prompt,
            request.sequence.states,
            self._clock(),
            truncated=self._drills.on(DrillKind.TRUNCATE),
        )
        if packet is not None:
            self._events.append(packet)
        if request.done:
            self._finish(request)

    # ------------------------------------------------------------ load
    def _sleep_if_drilled(self) -> None:
        if self._drills.on(DrillKind.SLOW):
            self._sleep(self._drills.amount(DrillKind.SLOW))

    def _meter(self, began: float, *, busy: bool) -> None:
        now = self._clock()
        spent = now - began if busy else 0.0
        self._busy_s += spent
        self._utilisation.add(spent, now - self._stepped)
        self._stepped = now

    def _shed_some(self) -> None:
        if self._shed is Shed.OFF:
            return
        candidates = [
            Shedable(r.request_id, r.mean_entropy(self._cache.entropy), r.remaining)
            for r in self._requests.values()
            if r.sheds()
        ]
        victim = self._shedder.pick(self._utilisation.value, candidates)
        if victim is not None:
            share = self._utilisation.value
            self._fail(victim, "shed", f"dropped: the engine is {share:.0%} busy")


def _failed(
    request_id: str, kind: FailedKind, message: str, stages: tuple[EngineStage, ...] = ()
) -> Failed:
    return Failed(request_id=request_id, kind=kind, message=message, stages=stages)
