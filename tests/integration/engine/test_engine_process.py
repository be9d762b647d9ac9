"""The engine process as the gateway meets it: started for real, spoken to over its socket."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
import zmq

from monitors.contract import DrillKind, DrillOrder, KvRung
from monitors.redlines import RedLines
from runtime.residents.port import (
    Array,
    AudioDelta,
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
    SetKv,
    Snapshot,
    StaleCount,
    TextDelta,
    VideoPrefilled,
    event_decoder,
    pack,
)
from tests.support.asking import ask

LOAD_S, ANSWER_S = 90.0, 30.0
Message = TypeVar("Message")


class Worker:
    """The process and the gateway's end of its socket."""

    def __init__(self, checkpoint: Path, folder: Path, min_epoch: int = 2) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        address = f"ipc://{folder}/s"
        self.socket.bind(address)
        self.log, lines = folder / "log", folder / "lines.json"
        lines.write_text(RedLines().model_dump_json())
        flags = {
            "--name": "a", "--socket": address, "--checkpoint": str(checkpoint), "--version": "v7",
            "--min-epoch": str(min_epoch), "--pool-mb": "8", "--lines": str(lines),
        }  # fmt: skip
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "runtime.engine.worker",
                    *(w for f in flags.items() for w in f),
                ],
                stdin=subprocess.PIPE,
                stderr=log,
            )
        self.ready = self.next(Ready, LOAD_S)

    def receive(self, timeout_s: float = ANSWER_S) -> EventFrame:
        if not self.socket.poll(1000 * timeout_s):
            raise AssertionError(f"nothing came within {timeout_s} s\n{self.log.read_text()}")
        return event_decoder.decode(self.socket.recv())

    def next(self, kind: type[Message], timeout_s: float = ANSWER_S, call: int = 0) -> Message:
        """The next message of a kind that answers `call`; others are passed over."""
        while True:
            frame = self.receive(timeout_s)
            if isinstance(frame.event, kind) and frame.call == call:
                return frame.event

    def send(self, command: Command, arrays: Sequence[Array] = (), call: int = 0) -> None:
        self.socket.send_multipart(pack(CommandFrame(call=call, command=command), arrays))

    def call(self, command: Command, kind: type[Message]) -> Message:
        self.send(command, call=7)
        return self.next(kind, call=7)

    def run(self, request: tuple[Generate, list[Array]]) -> list[RequestEvent | Reply | Ready]:
        """Everything that came of one request, its last event last."""
        self.send(*request)
        events = [self.receive().event]
        while not isinstance(events[-1], Finished | Failed):
            events.append(self.receive().event)
        return [e for e in events if not isinstance(e, Snapshot)]

    def finish(self, request: tuple[Generate, list[Array]]) -> Finished:
        last = self.run(request)[-1]
        assert isinstance(last, Finished), last
        return last

    def ended(self) -> int:
        return self.process.wait(timeout=20)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.context.destroy(linger=0)


@pytest.fixture(scope="module")
def shared(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    worker = Worker(tiny_checkpoint, tmp_path_factory.mktemp("w"))
    yield worker
    worker.send(Close())
    code = worker.ended()
    worker.close()
    assert code == 0


@pytest.fixture
def own(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    worker = Worker(tiny_checkpoint, tmp_path_factory.mktemp("w"))
    yield worker
    worker.close()


def test_a_life_of_an_engine_from_ready_to_flush(shared: Worker) -> None:
    assert (shared.ready.version, shared.ready.pool_epoch) == ("v7", 2)
    assert shared.call(Observe(), Snapshot).prefix_lookup_tokens == 0  # no trace of the warm-up

    events = shared.run(ask("r1", media=2, speech=True))
    kinds = [type(e) for e in events]
    order = [kinds.index(k) for k in (VideoPrefilled, TextDelta, AudioDelta, Finished)]
    assert order == sorted(order)
    assert events[-1].cached_tokens == 0

    assert shared.finish(ask("r2", media=2, speech=True)).cached_tokens > 0

    receipt = shared.call(Flush(min_pool_epoch=3), Flushed).receipt
    assert (receipt.new_epoch, receipt.complete) == (3, True)
    stale = shared.call(CountStale(pool_epoch=3), StaleCount)
    assert (stale.pages, stale.host_pages, stale.encoder_outputs, stale.talker_states) == (0,) * 4
    assert shared.finish(ask("r3", media=2, speech=True)).cached_tokens == 0
    assert shared.call(Observe(), Snapshot).faults == ()


def test_the_fallback_makes_live_bytes_fall_while_a_request_runs(shared: Worker) -> None:
    shared.send(*ask("long", "word " * 150, max_tokens=150))
    shared.next(TextDelta)
    before = shared.call(Observe(), Snapshot)
    assert shared.call(SetKv(kv=KvRung.INT8), KvSet).pages > 0
    after = shared.call(Observe(), Snapshot)
    while after.running and live(after) > 0.6 * live(before):
        after = shared.call(Observe(), Snapshot)
    assert after.running == 1
    assert (after.kv, after.faults) == (KvRung.INT8, ())
    shared.send(Cancel(request_id="long"))
    assert shared.next(Failed).kind == "cancelled"
    shared.call(SetKv(kv=KvRung.NATIVE), KvSet)
    assert live(shared.call(Observe(), Snapshot)) == 0


def live(snapshot: Snapshot) -> int:
    return sum(cell.live_bytes for cell in snapshot.cells)


def test_a_snapshot_comes_every_second_unasked(shared: Worker) -> None:
    shared.next(Snapshot)
    began = time.monotonic()
    shared.next(Snapshot)
    assert time.monotonic() - began < 10.0


def test_an_unusable_order_is_refused_in_words(shared: Worker) -> None:
    drill = Drill(order=DrillOrder(kind=DrillKind.SLOW, amount=0.0))
    assert "choose above 0" in shared.call(drill, Refused).error


def test_a_message_that_cannot_be_read_is_logged_and_passed_over(shared: Worker) -> None:
    shared.socket.send_multipart([b"\xc1"])
    assert shared.call(Observe(), Snapshot).pool_epoch >= 2
    lines = [msgspec.json.decode(line) for line in shared.log.read_bytes().splitlines()]
    assert any("could not be read" in line["message"] for line in lines)


def test_a_killed_engine_is_gone_at_once(own: Worker) -> None:
    own.send(Drill(order=DrillOrder(kind=DrillKind.KILL)), call=1)
    assert own.ended() == 1


def test_the_end_of_standard_input_ends_the_engine(own: Worker) -> None:
    assert own.call(Drill(order=DrillOrder(kind=DrillKind.TRUNCATE)), Drilled).report.running
    assert own.process.stdin is not None
    own.process.stdin.close()
    assert own.ended() == 0
