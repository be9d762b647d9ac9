"""How often an engine tells its numbers and checks its books: less, the longer its steps wait."""

import os
from collections.abc import Iterator
from itertools import pairwise

import pytest
import zmq

from monitors.contract import KvRung
from runtime.engine.worker import CHECK_SHARE, LONGEST_PAUSE_S, SNAPSHOT_S, SNAPSHOT_SHARE, Worker
from runtime.residents.port import Snapshot, event_decoder

TOLD = Snapshot(
    pool_epoch=1, kv=KvRung.NATIVE, cells=(), prefix_hit_tokens=0, prefix_lookup_tokens=0,
    prefix_evictions=0, encoder_hits=0, encoder_lookups=0, reserved_bytes=0, device_bytes=None,
    table_entries=0, block_fill=None, running=0, waiting=0, busy_s=0.0, steps=0, reuse="on",
    live_sequences=0,
)  # fmt: skip


class Engine:
    """Steps for a minute, then its worker ends. Looking at its pool takes `snapshot_s`, checking
    it `check_s` more; each step 10 ms."""

    idle = False

    def __init__(self, snapshot_s: float, check_s: float, close: int) -> None:
        self.now, self.close = 0.0, close
        self.told: list[tuple[float, bool]] = []
        self.cost_s = {False: snapshot_s, True: snapshot_s + check_s}

    def ready(self) -> Snapshot:
        return TOLD

    def step(self) -> list[object]:
        self.now += 0.01
        if self.now > 60.0 and self.close >= 0:
            os.close(self.close)
            self.close = -1
        return []

    def snapshot(self, *, checked: bool = True) -> Snapshot:
        self.told.append((self.now, checked))
        self.now += self.cost_s[checked]
        return TOLD


@pytest.fixture
def sockets() -> Iterator[tuple[zmq.Socket, zmq.Socket]]:
    with (
        zmq.Context() as context,
        context.socket(zmq.PAIR) as ours,
        context.socket(zmq.PAIR) as theirs,
    ):
        ours.bind("inproc://worker")
        theirs.connect("inproc://worker")
        yield ours, theirs


@pytest.mark.parametrize(
    ("snapshot_s", "check_s", "pause_s"),
    [
        (0.001, 0.002, SNAPSHOT_S),
        (0.006, 0.010, 0.006 / SNAPSHOT_SHARE),
        (0.1, 0.2, LONGEST_PAUSE_S),
    ],
)
def test_steps_wait_for_a_small_share_of_the_time(
    sockets: tuple[zmq.Socket, zmq.Socket], snapshot_s: float, check_s: float, pause_s: float
) -> None:
    watched, end = os.pipe()
    engine = Engine(snapshot_s, check_s, end)
    Worker(engine, sockets[0], watched, lambda: engine.now).run()  # pyright: ignore[reportArgumentType]
    os.close(watched)
    checks = [at for at, checked in engine.told if checked]
    assert checks[0] == pytest.approx(0.01)
    assert len(checks) - 1 <= 60.0 / ((snapshot_s + check_s) / CHECK_SHARE)
    plain = [at for at, checked in engine.told if not checked]
    gaps = [after - before for before, after in pairwise(plain)]
    assert min(gaps) >= pause_s
    assert len(engine.told) >= 60.0 / (pause_s + snapshot_s + 0.05) - 2
    assert isinstance(event_decoder.decode(sockets[1].recv()).event, Snapshot)
