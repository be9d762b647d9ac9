"""The queue of finished traces: bounded, never waited for, and what is dropped is counted."""

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry.trace import SpanContext

from monitors.contract import EvidenceBody
from monitors.labels import Keep, Origin, Outcome
from monitors.trace_queue import BATCH_TRACES, Trace, TraceQueue
from tests.support.records import CUT, LATE, a_record


class Gate:
    """A sink that stands still until it is opened. `takes`: whether it accepts what it gets."""

    def __init__(self, takes: bool = True) -> None:
        self.sent: list[Trace] = []
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.closed = 0
        self.takes = takes

    def send(self, traces: Sequence[Trace]) -> bool:
        self.entered.set()
        assert self.opened.wait(30)
        self.sent += traces
        return self.takes

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def gate() -> Iterator[Gate]:
    it = Gate()
    yield it
    it.opened.set()


def a_trace(*noted: EvidenceBody, **more: Any) -> Trace:
    return Trace(SpanContext(1, 2, False), None, a_record(*noted, **more), None)


ORDINARY, BREACH = a_trace(), a_trace(LATE, wrong=(Keep.LINE,))
SPANS = ORDINARY.spans


def stuck(gate: Gate, traces_of_room: int) -> TraceQueue:
    """A queue whose sender stands still in the sink with one batch, and so much room left."""
    queue = TraceQueue(gate, capacity_spans=SPANS * max(traces_of_room, 2 * BATCH_TRACES))
    for _ in range(BATCH_TRACES):
        assert queue.offer(ORDINARY)
    assert gate.entered.wait(30)
    return queue


def test_a_trace_counts_the_spans_that_will_be_made_of_it() -> None:
    assert SPANS == 1 + 1 + 1 + 3  # the request, its decoding, one leg and its stages


@pytest.mark.parametrize(
    ("trace", "ordinary"),
    [
        (ORDINARY, True),
        (BREACH, False),
        (a_trace(CUT, wrong=(Keep.FAULT,)), False),
        (a_trace(replace(CUT, origin=Origin.INPUT), wrong=(Keep.FAULT,)), True),
        (a_trace(outcome=Outcome.LOST, wrong=(Keep.OUTCOME,)), False),
        (a_trace(outcome=Outcome.FAILED, wrong=(Keep.OUTCOME,)), False),
        (a_trace(outcome=Outcome.REFUSED, wrong=(Keep.OUTCOME,)), True),
        (a_trace(outcome=Outcome.CANCELLED, wrong=(Keep.OUTCOME,)), True),
    ],
)
def test_what_clients_do_by_themselves_takes_no_room_from_what_tells_against_us(
    trace: Trace, ordinary: bool
) -> None:
    assert trace.record.ordinary is ordinary


def test_who_offers_never_waits_and_ordinary_traces_leave_room_for_the_others(gate: Gate) -> None:
    queue = stuck(gate, 2 * BATCH_TRACES)
    began = time.monotonic()
    taken = sum(queue.offer(ORDINARY) for _ in range(1_000))
    assert taken == BATCH_TRACES  # half of the room
    assert sum(queue.offer(BREACH) for _ in range(1_000)) == BATCH_TRACES  # the other half
    assert time.monotonic() - began < 5.0
    assert queue.dropped_spans == SPANS * (2_000 - 2 * BATCH_TRACES)
    gate.opened.set()
    queue.close(30.0)
    assert gate.sent.count(BREACH) == BATCH_TRACES
    assert len(gate.sent) == 3 * BATCH_TRACES


def test_what_the_collector_does_not_take_is_counted_as_dropped() -> None:
    gate = Gate(takes=False)
    gate.opened.set()
    queue = TraceQueue(gate)
    queue.offer(ORDINARY)
    queue.offer(BREACH)
    queue.close(30.0)
    assert queue.dropped_spans == 2 * SPANS


def test_a_close_sends_what_waits_and_nothing_is_taken_afterwards(gate: Gate) -> None:
    gate.opened.set()
    queue = TraceQueue(gate)
    queue.offer(ORDINARY)
    queue.close(30.0)
    assert gate.sent == [ORDINARY]
    assert not queue.offer(BREACH)
    assert queue.dropped_spans == SPANS
    queue.close(30.0)
    assert gate.closed


def test_a_close_waits_no_longer_than_it_may(gate: Gate) -> None:
    queue = stuck(gate, 2 * BATCH_TRACES)
    began = time.monotonic()
    assert queue.offer(BREACH)
    queue.close(0.05)
    assert time.monotonic() - began < 5.0
    assert queue.dropped_spans == SPANS  # what waited; the batch under way may still arrive
    assert gate.closed == 1


def test_a_batch_that_cannot_be_made_is_lost_and_ends_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = Gate()
    gate.opened.set()
    really, broken = gate.send, [True]

    def send(traces: Sequence[Trace]) -> bool:
        if broken.pop():
            broken.append(False)
            raise ValueError("the words of a user")
        broken.append(False)
        return really(traces)

    gate.send = send
    queue = TraceQueue(gate)
    for _ in range(2 * BATCH_TRACES):
        assert queue.offer(ORDINARY)
    queue.close(30.0)
    assert len(gate.sent) == BATCH_TRACES
    assert queue.dropped_spans == BATCH_TRACES * SPANS
    (line,) = caplog.messages
    assert line.startswith("a batch of traces is lost: ValueError at test_trace_queue.py:")
