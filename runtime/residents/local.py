"""A resident in an engine process of its own, spoken to over a Unix socket (DESIGN 1).

One object is one life of the process: `load` starts it, its death ends every request and call
in flight, and a restart is a new object.
"""

import asyncio
import itertools
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, cast

import msgspec
import zmq
import zmq.asyncio

from monitors.contract import DrillOrder, DrillReport, FlushReceipt, KvRung, Shed
from runtime.residents.port import (
    Array,
    Cancel,
    Close,
    Command,
    CommandFrame,
    CountStale,
    Drill,
    Drilled,
    EventFrame,
    Failed,
    Finished,
    Flush,
    Flushed,
    Generate,
    KvSet,
    Observe,
    Ready,
    Refused,
    Reply,
    RequestEvent,
    ResidentError,
    SetKv,
    SetShed,
    Snapshot,
    StaleCount,
    event_decoder,
    pack,
)
from runtime.residents.refusal import REFUSED_EXIT, ResidentRefused
from runtime.settings import ResidentSpec

WORKER = (sys.executable, "-m", "runtime.engine.worker")
LOAD_FLOOR_S = 180.0  # imports and the warm-up, on a machine that does much else
# Weights are read twice, for their digest and to be loaded, maybe from a slow disk that the other
# resident reads too. Only a hang is waited out: a death is noticed at once.
LOAD_BYTES_PER_S = 50e6
THROTTLED_PATIENCE = 10.0  # times as long, for one that gives way to all else
CALL_TIMEOUT_S = 5.0
FLUSH_TIMEOUT_S = 10.0
SILENCE_S = 20.0  # an engine tells its numbers every 1 to 5 s; silent for so long, it hangs
SUSPICION_S = 0.5
CLOSE_GRACE_S = 2.0
LAST_WORDS_BYTES = 65536
LAST_WORDS_CHARS = 8192  # of its last line, from its front: a path alone may have half of it

log = logging.getLogger(__name__)

Answer = TypeVar("Answer", bound=Reply)


class ResidentLost(ResidentError):
    """The engine process is gone, or was never there."""


def load_timeout_s(checkpoint: Path) -> float:
    """How long a checkpoint folder may take to load, by the size of its weight files."""
    files = (file for file in checkpoint.glob("*.safetensors") if file.is_file())
    return LOAD_FLOOR_S + sum(file.stat().st_size for file in files) / LOAD_BYTES_PER_S


def command(
    worker: Sequence[str], spec: ResidentSpec, lines: Path, address: str, min_epoch: int
) -> list[str]:
    """The engine's command line. `lines`: the red lines as JSON; `address`: of its socket."""
    flags = {
        "--name": spec.name,
        "--socket": address,
        "--checkpoint": str(spec.checkpoint),
        "--version": spec.version,
        "--min-epoch": str(min_epoch),
        "--pool-mb": str(spec.pool_mb),
        "--device": spec.device,
        "--storage": spec.storage,
        "--lines": str(lines),
    }
    return [*worker, *(word for flag in flags.items() for word in flag)]


class LocalResident:
    """Implements `port.Resident`. `on_snapshot` gets the engine's numbers as they come.

    `lines`: the red lines as a JSON file, for the engine. `log_dir`: where its log goes; None:
    to `state_dir`. `throttled`: it loads in the background of all else that runs here.
    """

    def __init__(
        self,
        spec: ResidentSpec,
        *,
        state_dir: Path,
        lines: Path,
        min_epoch: int,
        on_snapshot: Callable[[Snapshot], None],
        worker: Sequence[str] = WORKER,
        silence_s: float = SILENCE_S,
        clock: Callable[[], float] = time.monotonic,
        log_dir: Path | None = None,
        throttled: bool = False,
    ) -> None:
        self.name = spec.name
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._spec = spec
        self._lines = lines
        self._path = state_dir / f"{spec.name}.{time.monotonic_ns():x}.sock"  # new for each life
        self._log_path = (log_dir or state_dir) / f"{spec.name}.log"
        self._log_start = 0  # where the words of this life begin
        self._refused = False
        self._min_epoch = min_epoch
        self._on_snapshot = on_snapshot
        self._worker = worker
        self._silence_s = silence_s
        self._clock = clock
        self._throttled = throttled
        self._heard_at = clock()
        self._context = zmq.asyncio.Context()
        self._socket: zmq.asyncio.Socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._calls: dict[int, asyncio.Future[Reply]] = {}
        self._numbers = itertools.count(1)
        self._requests: dict[str, asyncio.Queue[RequestEvent]] = {}

    @property
    def pid(self) -> int | None:
        """The engine's process id while it lives."""
        return None if self._process is None or self.lost.done() else self._process.pid

    async def load(self) -> Ready:
        """Start the engine and wait until it can serve.

        Raises `ResidentRefused` where it will not serve its checkpoint, with the engine's own
        sentence, and another `ResidentError` where it did not start.
        """
        try:
            timeout_s = load_timeout_s(self._spec.checkpoint)
            timeout_s *= THROTTLED_PATIENCE if self._throttled else 1.0
            await self._start()
        except (OSError, zmq.ZMQError) as err:
            await self.kill()
            raise ResidentLost(f"resident {self.name!r} cannot be started: {err}") from err
        await asyncio.wait(
            {self._ready, self.lost}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        if self._ready.done() and not self.lost.done():
            return self._ready.result()
        self._end(f"not ready after {timeout_s:.0f} s")
        await self.kill()
        if self._refused:
            raise ResidentRefused(f"resident {self.name!r} cannot serve: {self.lost.result()}")
        raise ResidentLost(f"resident {self.name!r} did not start: {self.lost.result()}")

    async def generate(
        self, request: Generate, arrays: Sequence[Array]
    ) -> AsyncGenerator[RequestEvent, None]:
        """The events of one request, a `Finished` or `Failed` last. Closed early, it cancels."""
        events: asyncio.Queue[RequestEvent] = asyncio.Queue()
        self._post(CommandFrame(call=0, command=request), arrays)
        arrays = ()  # the socket has them: whoever gave them may let them go
        self._requests[request.request_id] = events
        ended = False
        try:
            while not ended:
                event = await events.get()
                ended = isinstance(event, Finished | Failed)
                yield event
        finally:
            self._requests.pop(request.request_id, None)
            if not ended and not self.lost.done():
                self._post(CommandFrame(call=0, command=Cancel(request_id=request.request_id)))

    async def observe(self) -> Snapshot:
        return await self._call(Observe(), Snapshot)

    async def set_kv(self, kv: KvRung) -> int:
        """Pages that changed their format."""
        return (await self._call(SetKv(kv=kv), KvSet)).pages

    async def set_shed(self, shed: Shed) -> None:
        self._post(CommandFrame(call=0, command=SetShed(shed=shed)))

    async def flush(self, min_pool_epoch: int) -> FlushReceipt:
        flush = Flush(min_pool_epoch=min_pool_epoch)
        receipt = (await self._call(flush, Flushed, FLUSH_TIMEOUT_S)).receipt
        if receipt.new_epoch < min_pool_epoch:
            raise ResidentError(
                f"resident {self.name!r} answered a flush to epoch {min_pool_epoch} with epoch "
                f"{receipt.new_epoch}"
            )
        return receipt

    async def count_stale(self, pool_epoch: int) -> StaleCount:
        return await self._call(CountStale(pool_epoch=pool_epoch), StaleCount)

    async def drill(self, order: DrillOrder) -> DrillReport:
        return (await self._call(Drill(order=order), Drilled)).report

    async def close(self) -> None:
        """End the engine: asked first, then SIGTERM, then SIGKILL; reaped when this returns."""
        if self._process is not None and not self.lost.done():
            self._post(CommandFrame(call=0, command=Close()))
            if not await self._exited(CLOSE_GRACE_S):
                with suppress(ProcessLookupError):
                    self._process.terminate()
                await self._exited(CLOSE_GRACE_S / 2)
        await self.kill()

    async def kill(self) -> None:
        """End the engine at once; reaped when this returns."""
        self._end("it was stopped")
        process = self._process
        if process is not None:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
            if process.stdin is not None:
                process.stdin.close()
            await process.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._context.destroy(linger=0)
        self._path.unlink(missing_ok=True)

    # ------------------------------------------------------------ the process
    async def _start(self) -> None:
        address = f"ipc://{self._path}"
        socket: zmq.asyncio.Socket = self._context.socket(zmq.DEALER)
        socket.set_hwm(0)
        socket.bind(address)
        self._socket = socket
        with self._log_path.open("ab") as words:
            self._log_start = words.tell()
            self._process = await asyncio.create_subprocess_exec(
                *self._command(address),
                stdin=asyncio.subprocess.PIPE,  # held open: its end tells the engine to end
                stdout=words,
                stderr=words,
                start_new_session=True,
            )
        self._tasks = [
            asyncio.create_task(self._listen(socket)),
            asyncio.create_task(self._await_exit(self._process)),
        ]

    def _command(self, address: str) -> list[str]:
        words = command(self._worker, self._spec, self._lines, address, self._min_epoch)
        return [*words, "--throttled"] if self._throttled else words

    async def _await_exit(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        words = self._last_words()
        if code == REFUSED_EXIT and not self.lost.done():
            self._refused = True
            self._end(words)
        self._end(f"its process ended with code {code}; the end of its log: {words}")

    def _check_silence(self, suspected: bool = False) -> None:
        """End it if it has been silent for too long; else look again when it would have been."""
        left = self._heard_at + self._silence_s - self._clock()
        if left <= 0.0 and suspected:
            self._end(f"it said nothing for {self._silence_s:g} s")
            return
        # Once more before the verdict: we may have been held up ourselves, its words unread.
        wait_s = left if left > 0.0 else SUSPICION_S
        loop = asyncio.get_running_loop()
        self._alarm = loop.call_later(wait_s, self._check_silence, left <= 0.0)

    async def _exited(self, timeout_s: float) -> bool:
        await asyncio.wait({self.lost}, timeout=timeout_s)
        return self.lost.done()

    def _last_words(self) -> str:
        try:
            with self._log_path.open("rb") as words:
                end = words.seek(0, os.SEEK_END)
                words.seek(max(self._log_start, end - LAST_WORDS_BYTES))
                lines = words.read().decode(errors="replace").strip()
        except OSError as err:
            return f"cannot be read ({err.strerror})"
        return lines.rpartition("\n")[2][:LAST_WORDS_CHARS] or "empty"

    def _end(self, reason: str) -> None:
        """The engine is gone: whoever waits for it is told, once."""
        if self.lost.done():
            return
        self.lost.set_result(reason)
        if self._alarm is not None:
            self._alarm.cancel()
        for request_id, events in self._requests.items():
            message = f"resident {self.name!r} was lost: {reason}"
            events.put_nowait(Failed(request_id=request_id, kind="lost", message=message))
        for call in self._calls.values():
            if not call.done():
                call.set_exception(ResidentLost(f"resident {self.name!r} was lost: {reason}"))

    # ------------------------------------------------------------ messages
    async def _listen(self, socket: zmq.asyncio.Socket) -> None:
        """Until its end: what the engine says after that is no news."""
        while not self.lost.done():
            frames = await socket.recv_multipart()
            self._heard_at = self._clock()
            try:
                self._deliver(event_decoder.decode(frames[0]))
            except msgspec.DecodeError as err:
                self._end(f"it sent what cannot be read: {err}")
            except Exception as err:  # else nobody would listen any more, and nobody would know
                log.exception("an engine's message failed here", extra={"resident": self.name})
                self._end(f"its message could not be taken in: {err}")

    def _deliver(self, frame: EventFrame) -> None:
        event = frame.event
        if isinstance(event, Snapshot) and not self.lost.done():
            self._on_snapshot(event)
        if isinstance(event, RequestEvent):
            if event.request_id in self._requests:
                self._requests[event.request_id].put_nowait(event)
        elif isinstance(event, Ready):
            if not self._ready.done():
                self._ready.set_result(event)
                self._check_silence()
        elif (call := self._calls.get(frame.call)) is not None and not call.done():
            call.set_result(event)

    async def _call(
        self, command: Command, answer: type[Answer], timeout_s: float = CALL_TIMEOUT_S
    ) -> Answer:
        number = next(self._numbers)
        reply = self._calls[number] = asyncio.get_running_loop().create_future()
        what = f"resident {self.name!r}: {type(command).__name__}"
        try:
            self._post(CommandFrame(call=number, command=command))
            async with asyncio.timeout(timeout_s):
                found = await reply
        except TimeoutError as err:
            raise ResidentError(f"{what} was not answered within {timeout_s:g} s") from err
        finally:
            del self._calls[number]
        if isinstance(found, Refused):
            raise ResidentError(f"{what} was refused: {found.error}")
        if not isinstance(found, answer):
            raise ResidentError(f"{what} was answered with a {type(found).__name__}")
        return found

    def _post(self, frame: CommandFrame, arrays: Sequence[Array] = ()) -> None:
        """Hand a command to the socket without waiting. Raises `ResidentLost`."""
        if self._socket is None or self.lost.done():
            reason = self.lost.result() if self.lost.done() else "it was never started"
            raise ResidentLost(f"resident {self.name!r} was lost: {reason}")
        sent = self._socket.send_multipart(pack(frame, arrays), flags=zmq.NOBLOCK, copy=False)
        error = cast("asyncio.Future[object]", sent).exception()  # without waiting it is done
        if error is not None:
            raise ResidentLost(f"resident {self.name!r} takes no commands: {error}")
