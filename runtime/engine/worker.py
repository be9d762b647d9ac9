"""The engine process of one resident: commands in, events out, over a local socket (DESIGN 1).

    python -m runtime.engine.worker --name a --socket ipc://... --checkpoint DIR --version V \
        --min-epoch N --pool-mb X --lines FILE.json [--device auto|cpu|cuda|cuda:N] \
        [--storage native|int8|int4|subspace] [--throttled] [--check]

It ends when its standard input does or when its parent dies, so that none is ever left behind.
Torch and transformers, three seconds of imports, come in `main`, after the ties to the parent.
"""

import argparse
import ctypes
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import msgspec
import zmq

from monitors import logs
from monitors.cache_table import STALE_S
from monitors.redlines import RedLines
from runtime.engine.background import Pace, in_background
from runtime.residents.port import (
    Cancel,
    Close,
    Command,
    CountStale,
    Drill,
    Drilled,
    EventFrame,
    Flush,
    Flushed,
    Generate,
    KvSet,
    Observe,
    Ready,
    Refused,
    Reply,
    RequestEvent,
    SetKv,
    SetShed,
    event_encoder,
    unpack,
)
from runtime.residents.refusal import REFUSED_EXIT

if TYPE_CHECKING:
    from runtime.engine.build import EngineSettings
    from runtime.engine.engine import Engine

SNAPSHOT_S, LONGEST_PAUSE_S = 1.0, STALE_S / 3  # two may be late, and table 1 stays
# Of the time, at most: what a large pool's numbers and the check of its books take, steps wait.
SNAPSHOT_SHARE, CHECK_SHARE = 1 / 300, 1 / 1000
IDLE_POLL_MS = 200
MEGABYTE = 1_000_000
_PR_SET_PDEATHSIG = 1

T = TypeVar("T")

log = logging.getLogger(__name__)


class Worker:
    """The loop between the socket and the engine. `watched`: a file whose end ends the worker."""

    def __init__(
        self, engine: "Engine", socket: zmq.Socket, watched: int, clock: Callable[[], float]
    ) -> None:
        self._engine = engine
        self._socket = socket
        self._watched = watched
        self._clock = clock
        self._poller = zmq.Poller()
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(watched, zmq.POLLIN)
        self._snapshot_due = self._check_due = clock()
        self._open = True

    def run(self) -> None:
        """Serve until `Close` comes or the watched file ends."""
        self._send(0, self._engine.ready())
        while self._open:
            self._poll(IDLE_POLL_MS if self._engine.idle else 0)
            for event in self._engine.step():
                self._send(0, event)
            if self._clock() >= self._snapshot_due:
                self._tell()

    def _tell(self) -> None:
        """Send the engine's numbers. Its books are checked less often: that takes longer."""
        began = self._clock()
        checked = began >= self._check_due
        self._send(0, self._engine.snapshot(checked=checked))
        now, pause_s = self._clock(), SNAPSHOT_S
        if checked:
            self._check_due = now + (now - began) / CHECK_SHARE
        else:
            pause_s = max(pause_s, (now - began) / SNAPSHOT_SHARE)
        self._snapshot_due = now + min(pause_s, LONGEST_PAUSE_S)

    def _poll(self, timeout_ms: int) -> None:
        """Take in what has come, waiting at most `timeout_ms` for the first of it."""
        ready = dict(self._poller.poll(timeout_ms))
        if self._watched in ready and not os.read(self._watched, 4096):
            log.info("standard input ended: the engine ends")
            self._open = False
        while self._open and self._socket.poll(0):
            self._take(self._socket.recv_multipart())

    def _take(self, frames: list[bytes]) -> None:
        try:
            frame, arrays = unpack(frames)
        except (msgspec.DecodeError, ValueError) as err:
            log.error("a command could not be read: %s", err)
            return
        try:
            if isinstance(frame.command, Generate):
                self._engine.submit(frame.command, arrays)
            else:
                self._order(frame.call, frame.command)
        except ValueError as err:
            log.warning("refused: %s", err)
            self._reply(frame.call, Refused(error=str(err)))

    def _order(self, call: int, command: Command) -> None:
        engine = self._engine
        match command:
            case Cancel():
                engine.cancel(command.request_id)
            case Close():
                self._open = False
            case SetKv():
                self._reply(call, KvSet(kv=command.kv, pages=engine.set_kv(command.kv)))
            case SetShed():
                engine.set_shed(command.shed)
            case Flush():
                self._reply(call, Flushed(receipt=engine.flush(command.min_pool_epoch)))
            case CountStale():
                self._reply(call, engine.count_stale(command.pool_epoch))
            case Observe():
                self._reply(call, engine.snapshot())
            case Drill():
                self._reply(call, Drilled(report=engine.drill(command.order)))

    def _reply(self, call: int, reply: Reply) -> None:
        if call:
            self._send(call, reply)

    def _send(self, call: int, event: RequestEvent | Reply | Ready) -> None:
        self._socket.send(event_encoder.encode(EventFrame(call=call, event=event)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Load, warm up, say `Ready`, serve."""
    asked = _parse(arguments)
    _die_with_parent()
    logs.configure(sys.stderr, "WARNING" if asked.quiet else "INFO", resident=asked.name)
    if asked.check:
        _at_its_priority(asked, lambda: _check(asked))
        return
    engine = _at_its_priority(asked, lambda: _engine(asked))
    _keep_one_thread()
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.set_hwm(0)
        socket.setsockopt(zmq.LINGER, 200)
        socket.connect(asked.socket)
        Worker(engine, socket, sys.stdin.fileno(), time.monotonic).run()


def _at_its_priority(asked: argparse.Namespace, work: Callable[[], T]) -> T:
    return in_background(work) if asked.throttled else work()


def _check(asked: argparse.Namespace) -> None:
    """Say on standard output how far it is, and the weights' digest last. Ends the process in
    `_refuse` where the checkpoint could not be served here; nothing of it is loaded."""
    from runtime.kv.calibration import CalibrationError, load_policy
    from runtime.model import checkpoint, requirements, weights

    _adopt_transformers_logs()
    settings = _settings(asked)
    try:
        total = sum(shard.stat().st_size for shard in weights.find(asked.checkpoint))
        found = checkpoint.check(
            asked.checkpoint,
            _device(asked.device),
            pool_bytes=settings.pool_bytes,
            freed=requirements.Freed(host=asked.freed_host, device=asked.freed_device),
            on_read=_progress(total, _pace(asked)),
        )
        layers = found.config.thinker_config.text_config.num_hidden_layers
        talker_reads = found.config.talker_config.accept_hidden_layer
        load_policy(asked.checkpoint, found.digest, layers, talker_reads, settings.lines.entropy)
        sys.stdout.write(f'{{"digest": "{found.digest}"}}\n')
        sys.stdout.flush()
    except (checkpoint.CheckpointError, CalibrationError) as err:
        _refuse(str(err))


def _pace(asked: argparse.Namespace) -> Callable[[int], None]:
    """What hears of the bytes that are read."""
    return Pace().read if asked.throttled else lambda _: None


def _progress(total: int, paced: Callable[[int], None]) -> Callable[[int], None]:
    """Tells of every hundredth of the reading, too."""
    read = told = 0

    def on_read(count: int) -> None:
        nonlocal read, told
        paced(count)
        read += count
        if (read - told) * 100 >= total:
            told = read
            sys.stdout.write(f'{{"read": {read}, "of": {total}}}\n')
            sys.stdout.flush()

    return on_read


def _keep_one_thread() -> None:
    """The setting is of a thread, and the one that loaded is gone."""
    import torch

    torch.set_num_threads(1)


def _engine(asked: argparse.Namespace) -> "Engine":
    """Warm and ready. Ends the process in `_refuse` where it cannot serve here."""
    gc.disable()  # imports leave little garbage, and looking for it takes a tenth of the start
    import torch

    from runtime.engine.engine import Engine
    from runtime.engine.warmup import WarmUpFailed, warm_up
    from runtime.kv.calibration import CalibrationError
    from runtime.kv.slabs import PoolTooSmall
    from runtime.model import checkpoint

    gc.freeze()
    gc.enable()
    torch.set_num_threads(1)
    _adopt_transformers_logs()
    settings = _settings(asked)
    try:
        loaded = checkpoint.load(
            asked.checkpoint,
            _device(asked.device),
            pool_bytes=settings.pool_bytes,
            on_read=_pace(asked),
        )
        warm_up(loaded, settings, clock=time.monotonic)
        engine = Engine(loaded, settings, clock=time.monotonic, die=_die)
    except (checkpoint.CheckpointError, CalibrationError, PoolTooSmall, WarmUpFailed) as err:
        _refuse(str(err))
    _spare_collection()
    log.info("ready: version %s on %s", asked.version, loaded.device)
    return engine


def _device(asked: str) -> str:
    """Where to run: for `auto` on the machine's CUDA device, if it has one."""
    import torch

    if asked != "auto":
        return asked
    return "cuda" if torch.cuda.is_available() else "cpu"


def _refuse(sentence: str) -> NoReturn:
    """End the process; its gateway quotes the last line of the log and does not try again."""
    sys.stderr.write(" ".join(sentence.splitlines()) + "\n")
    raise SystemExit(REFUSED_EXIT)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="runtime.engine.worker", description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--socket", required=True, help="address of the gateway's socket")
    parser.add_argument("--checkpoint", required=True, type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--min-epoch", required=True, type=int)
    parser.add_argument("--pool-mb", required=True, type=float)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--storage", default="native", help="native, int8, int4 or subspace")
    parser.add_argument("--lines", required=True, type=Path, help="the red lines, as JSON")
    parser.add_argument("--throttled", action="store_true", help="load in the background")
    parser.add_argument("--check", action="store_true", help="load nothing: could it be served?")
    parser.add_argument("--freed-host", type=int, default=0, help="bytes to be had for it, --check")
    parser.add_argument("--freed-device", type=int, default=0, help="the same on its device")
    parser.add_argument("--quiet", action="store_true", help="log warnings only")
    return parser.parse_args(arguments)


def _settings(asked: argparse.Namespace) -> "EngineSettings":
    from runtime.engine.build import EngineSettings
    from runtime.kv.formats import Format

    return EngineSettings(
        name=asked.name,
        version=asked.version,
        pool_bytes=int(asked.pool_mb * MEGABYTE),
        min_epoch=asked.min_epoch,
        lines=RedLines.model_validate_json(asked.lines.read_bytes()),
        storage=Format[asked.storage.upper()],
    )


def _spare_collection() -> None:
    """What is loaded stays for good: looking through it for garbage would stop every answer for
    a fifth of a second."""
    gc.collect()
    gc.freeze()


def _adopt_transformers_logs() -> None:
    """Its words as JSON lines too, and no progress bars."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.disable_default_handler()
    transformers_logging.enable_propagation()


def _die_with_parent() -> None:
    """Where the system can (Linux): be killed when the parent dies, however it dies."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError) as err:
        log.info("no parent-death signal here (%s): the end of standard input ends us", err)


def _die() -> None:
    """The kill drill: no clean-up, as when the system kills a process."""
    os._exit(1)


if __name__ == "__main__":
    main()
