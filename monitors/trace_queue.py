"""Finished traces on their way to the collector: a bounded queue and a thread of its own.

Whoever offers a trace never waits. What does not fit is dropped whole and counted, ordinary
traces long before those that tell of something.
"""

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from opentelemetry.trace import SpanContext

from monitors.requests import RequestRecord

QUEUE_SPANS = 8_192
ORDINARY_SHARE = 0.5  # of the queue, for traces that tell nothing against us
BATCH_TRACES = 8  # a few milliseconds of work, in which the event loop has to share
FLUSH_EVERY_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Content:
    """What was said, where that is captured at all: JSON in the form of the GenAI convention."""

    input_messages: str
    output_messages: str


@dataclass(frozen=True)
class Trace:
    """All that the spans of one request are made of."""

    own: SpanContext
    parent: SpanContext | None
    record: RequestRecord
    content: Content | None

    @property
    def spans(self) -> int:
        """How many there are."""
        legs = [leg for leg in self.record.legs if leg.departed_s is not None]
        return 1 + len(self.record.stages) + sum(1 + len(leg.stages) for leg in legs)


class Sink(Protocol):
    """Where traces go. `send` blocks, at most for a bounded time; False: they are lost."""

    def send(self, traces: Sequence[Trace]) -> bool: ...
    def close(self) -> None: ...


class TraceQueue:
    """Sends traces to `sink` from a thread of its own, in batches or every `FLUSH_EVERY_S`."""

    def __init__(
        self,
        sink: Sink,
        *,
        capacity_spans: int = QUEUE_SPANS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink = sink
        self._capacity = capacity_spans
        self._clock = clock
        self._waiting: deque[Trace] = deque()
        self._spans = 0
        self._dropped = 0
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    @property
    def dropped_spans(self) -> int:
        """Spans that found no room, or that the collector did not take."""
        return self._dropped

    def offer(self, trace: Trace) -> bool:
        """Whether it will be sent."""
        room = self._capacity * (ORDINARY_SHARE if trace.record.ordinary else 1.0)
        with self._changed:
            if self._closing or self._spans + trace.spans > room:
                self._dropped += trace.spans
                return False
            self._waiting.append(trace)
            self._spans += trace.spans
            if len(self._waiting) >= BATCH_TRACES:
                self._changed.notify()
        return True

    def close(self, timeout_s: float) -> None:
        """Send what waits for at most `timeout_s`; the rest is dropped. Again: does nothing."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)
        with self._changed:
            self._dropped += self._spans
            self._waiting.clear()
            self._spans = 0
        self._sink.close()  # a call that still runs ends its retries here

    def _run(self) -> None:
        while batch := self._next():
            lost = 0 if self._sent(batch) else sum(trace.spans for trace in batch)
            with self._changed:
                self._dropped += lost

    def _sent(self, batch: list[Trace]) -> bool:
        try:
            return self._sink.send(batch)
        except Exception as err:  # noqa: BLE001 - one that cannot be made ends no other
            log.error("a batch of traces is lost: %s", _kind(err))  # its words may quote a user
            return False

    def _next(self) -> list[Trace]:
        """The next batch, once there is a full one or its time has come; empty: it is over."""
        with self._changed:
            due = self._clock() + FLUSH_EVERY_S
            while not self._closing and len(self._waiting) < BATCH_TRACES:
                if not self._changed.wait(max(0.0, due - self._clock())):
                    if self._waiting:
                        break
                    due = self._clock() + FLUSH_EVERY_S
            count = min(BATCH_TRACES, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(count)]
            self._spans -= sum(trace.spans for trace in batch)
            return batch


def _kind(err: Exception) -> str:
    place = traceback.extract_tb(err.__traceback__)[-1]
    return f"{type(err).__name__} at {Path(place.filename).name}:{place.lineno}"
