"""Every request that the gateway remembers: those under way, and the last ones that ended."""

import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from monitors.contract import EvidenceBody
from monitors.detectors.finding import Finding
from monitors.labels import Keep
from monitors.requests import RequestRecord, RequestRing
from monitors.tracing import Tracing
from runtime.stamp import Stamp
from runtime.traces import RequestTrace

log = logging.getLogger(__name__)


class UnknownRequest(LookupError):
    """There is no such request here, or not any more; the message says how far back they go."""


class Requests:
    """Opens a `RequestTrace` for each request and tells it what the book learns of it.

    `capture_content`: traces carry prompts and answers.
    """

    def __init__(
        self,
        tracing: Tracing,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        capture_content: bool = False,
    ) -> None:
        self.tracing = tracing
        self._clock = clock
        self._wall = wall
        self._started = wall()
        self._capture = capture_content
        self._open: dict[str, RequestTrace] = {}
        self._ring = RequestRing()

    def open(self, headers: Mapping[str, str]) -> RequestTrace:
        """A request whose first byte has come. `headers`: their names in lower case."""
        trace = RequestTrace(
            self.tracing.begin(headers),
            clock=self._clock,
            wall=self._wall(),
            done=self._remember,
            content=self._capture,
        )
        self._open[trace.request_id] = trace
        return trace

    def note(self, stamp: Stamp, body: EvidenceBody) -> None:
        """One entry of the evidence log."""
        trace = self._open.get(stamp.request_id)
        if trace is not None:
            trace.note(stamp, body)

    def examined(self, stamp: Stamp, finding: Finding) -> None:
        """A detector looked at it."""
        trace = self._open.get(stamp.request_id)
        if trace is not None:
            trace.examined(stamp, finding)

    def exemplar(self, stamp: Stamp) -> str | None:
        """The trace id to show beside a measurement of it; None: its trace may not be kept."""
        trace = self._open.get(stamp.request_id)
        return None if trace is None else trace.exemplar

    def find(self, request_id: str) -> RequestRecord:
        """A request by its id, or by the one of an answer to it. Raises `UnknownRequest`."""
        request_id = request_id.removeprefix("chatcmpl-").removeprefix("audio_")
        trace = self._open.get(request_id)
        record = self._ring.get(request_id) if trace is None else trace.record()
        if record is None:
            raise UnknownRequest(f"no request {request_id!r} is known here; {self._reach()}")
        return record

    def wrong(self, why: Keep | None, limit: int) -> tuple[RequestRecord, ...]:
        """The last that ended with something wrong (None: anything), newest first."""
        return self._ring.wrong(why, limit)

    def _remember(self, trace: RequestTrace) -> None:
        del self._open[trace.request_id]
        record = trace.record()
        self._ring.add(record)
        code = None if record.told is None else record.told.code
        why = "" if code is None else f", its client was told {code}"
        log.info("request ended: %s%s", record.outcome, why, extra=trace.log_fields())
        if trace.context is not None and record.trace is not None and record.trace.keep:
            self.tracing.keep(trace.context, record, trace.content())

    def _reach(self) -> str:
        reach = self._ring.reach()
        start = f"since this gateway started at {_clock_time(self._started)}"
        if reach.oldest is None and not reach.turned_away:
            return f"none has ended {start}"
        since = "" if reach.oldest is None else f", the oldest of {_clock_time(reach.oldest)}"
        return (
            f"it remembers {reach.served} that were served{since}, and {reach.turned_away} that "
            f"were turned away, {start}; older ones are forgotten"
        )


def _clock_time(wall: float) -> str:
    return datetime.fromtimestamp(wall, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
