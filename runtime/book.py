"""Where measurements go: the three tables, the metrics and the evidence log, in one act each."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import product

from monitors import catalog, tables
from monitors.cache_table import CacheTable
from monitors.contract import (
    EvidenceBody,
    FaultFound,
    LineCrossed,
    MilestoneReached,
    RequestFinished,
    ResidencySampled,
)
from monitors.detectors.finding import Finding
from monitors.detectors.merging import merged
from monitors.evidence import EvidenceLog
from monitors.exposition import Exposition
from monitors.fault_table import FaultTable, marks_of
from monitors.labels import Detector, Fault, Grade, Judgement, Milestone, Origin, Outcome
from monitors.latency_table import LatencyTable
from monitors.metric import Metric, Table
from monitors.redlines import RedLines
from monitors.tables import Tables
from monitors.tracing import Tracing
from runtime.requests import Requests
from runtime.residents.port import Capabilities, Snapshot
from runtime.stamp import Stamp

WARM_AFTER = 20  # requests of one pool epoch
REHEARSED = 2  # entries of each request of a rehearsal
_FROM_ZERO = (
    catalog.SERVED_REQUESTS,
    catalog.FAULTED_REQUESTS,
    catalog.SPEECH_SECONDS,
    catalog.UNDERRUN_SECONDS,
)

_ENGINE_COUNTERS: tuple[tuple[Metric, Callable[[Snapshot], float]], ...] = (
    (catalog.PREFIX_HIT_TOKENS, lambda snapshot: snapshot.prefix_hit_tokens),
    (catalog.PREFIX_LOOKUP_TOKENS, lambda snapshot: snapshot.prefix_lookup_tokens),
    (catalog.PREFIX_EVICTIONS, lambda snapshot: snapshot.prefix_evictions),
    (catalog.ENCODER_HITS, lambda snapshot: snapshot.encoder_hits),
    (catalog.ENCODER_LOOKUPS, lambda snapshot: snapshot.encoder_lookups),
    (catalog.BUSY, lambda snapshot: snapshot.busy_s),
    (catalog.STEPS, lambda snapshot: snapshot.steps),
    (catalog.SHADOW_CHECKS, lambda snapshot: snapshot.shadow.checks),
    (catalog.SHADOW_NATS, lambda snapshot: snapshot.shadow.nats),
    (catalog.SHADOW_TOKENS, lambda snapshot: snapshot.shadow.tokens),
    (catalog.SHADOW_AGREED, lambda snapshot: snapshot.shadow.agreed),
    (catalog.SHADOW_TRIPS, lambda snapshot: snapshot.shadow.trips),
)
_ENGINE_GAUGES: tuple[tuple[Metric, Callable[[Snapshot], float | None]], ...] = (
    (catalog.RESERVED_BYTES, lambda snapshot: snapshot.reserved_bytes),
    (catalog.DEVICE_BYTES, lambda snapshot: snapshot.device_bytes),
    (catalog.TABLE_ENTRIES, lambda snapshot: snapshot.table_entries),
    (catalog.BLOCK_FILL, lambda snapshot: snapshot.block_fill),
    (catalog.POOL_EPOCH, lambda snapshot: snapshot.pool_epoch),
    (catalog.REUSE_ON, lambda snapshot: float(snapshot.reuse == "on")),
    (catalog.WAITING, lambda snapshot: snapshot.waiting),
)


class Book:
    """The data plane's measurements. Operator traffic and copies go to the evidence
    log alone, marked."""

    def __init__(
        self,
        lines: RedLines,
        incarnation: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        requests: Requests | None = None,
    ) -> None:
        self.requests = requests or Requests(Tracing(), clock=clock, wall=wall)
        self.evidence = EvidenceLog(incarnation, wall=wall)
        self.exposition = Exposition(lines, catalog.DATA_PLANE, wall=wall)
        self.cache = CacheTable(lines)
        self.latency = LatencyTable(lines, clock=clock)
        self.faults = FaultTable(lines)
        self._lines = lines
        self._clock = clock
        self._wall = wall
        self._served: Counter[tuple[str, int | None]] = Counter()  # by version and pool epoch
        self.exposition.publish_tables(self.cache, self.faults, clock)
        for detector, judgement in product(Detector, Judgement):
            self.exposition.counter(catalog.DETECTOR_JUDGEMENTS).start(detector, judgement)
            self.exposition.counter(catalog.DETECTOR_CPU).start(detector)

    def open(self, version: str) -> None:
        """Show a version's counters at 0, so that a rate sees their first step."""
        for outcome in Outcome:
            self.exposition.counter(catalog.REQUESTS).start(version, outcome)
        for counter in _FROM_ZERO:
            self.exposition.counter(counter).start(version)
        for milestone in Milestone:
            self.exposition.counter(catalog.OVERDUE).start(version, milestone)
            self.exposition.histogram(catalog.FIRST_OUTPUT).start(version, milestone)

    def tables(self) -> Tables:
        """The three tables as they are now."""
        return tables.snapshot(
            self.cache,
            self.latency,
            self.faults,
            self._lines,
            now=self._clock(),
            wall=self._wall(),
        )

    def reached(self, stamp: Stamp, milestone: Milestone, seconds: float) -> None:
        """A first output left the gateway."""
        self.note(stamp, MilestoneReached(milestone=milestone, seconds=seconds))
        if stamp.of_client:
            self.latency.observe(stamp.version, milestone, seconds)
            histogram = self.exposition.histogram(catalog.FIRST_OUTPUT)
            trace_id = self.requests.exemplar(stamp)
            histogram.observe(seconds, stamp.version, milestone, trace_id=trace_id)

    def crossed(self, stamp: Stamp, milestone: Milestone, line_s: float) -> None:
        """A request is past a line, with or without its output."""
        self.note(stamp, LineCrossed(milestone=milestone, line_s=line_s))
        if line_s == self._lines.latency.degrade_s and stamp.of_client:
            self.latency.overdue(stamp.version, milestone)
            self.exposition.counter(catalog.OVERDUE).inc(stamp.version, milestone)

    def judged(self, stamp: Stamp, *findings: Finding) -> tuple[FaultFound, ...]:
        """Detectors spoke, of all that came in together. Their costs and judgements are counted
        item by item, for operators too; their faults are noted merged, as they are returned."""
        for finding in findings:
            judgements = self.exposition.counter(catalog.DETECTOR_JUDGEMENTS)
            judgements.inc(finding.detector, finding.judgement)
            self.exposition.counter(catalog.DETECTOR_CPU).inc(finding.detector, by=finding.cpu_s)
        return self.brought(stamp, *findings)

    def brought(self, stamp: Stamp, *findings: Finding) -> tuple[FaultFound, ...]:
        """What was judged before came along to another resident: no detector worked again."""
        for finding in findings:
            self.requests.examined(stamp, finding)
        faults = merged(findings)
        for fault in faults:
            self._fault(stamp, fault)
        return faults

    def _fault(self, stamp: Stamp, found: FaultFound) -> None:
        self.note(stamp, found)
        if stamp.of_client:
            labels = (stamp.version, found.fault, found.grade, found.origin)
            trace_id = self.requests.exemplar(stamp)
            self.exposition.counter(catalog.FAULTS).inc(*labels, trace_id=trace_id)

    def finished(self, stamp: Stamp, ending: RequestFinished, found: Iterable[FaultFound]) -> None:
        """A request that reached a resident ended. `found`: all that detectors said of it."""
        self.note(stamp, ending)
        self._served[stamp.version, stamp.pool_epoch] += 1
        if not stamp.of_client:
            return
        self.exposition.counter(catalog.REQUESTS).inc(stamp.version, ending.outcome)
        if ending.tells:
            self.exposition.counter(catalog.SERVED_REQUESTS).inc(stamp.version)
            if ending.faulted:
                self.exposition.counter(catalog.FAULTED_REQUESTS).inc(stamp.version)
            marks = marks_of(found)
            self.faults.finish(stamp.version, ending.outcome, ending.faulted, marks)

    def flushed(self, version: str) -> None:
        """A version's pool was emptied and has a new epoch: table 3 speaks of the present one.

        Faults that got a version rolled back would else bring down a later rollout of the same
        weights, which a human has cleared, by the alert on the ring.
        """
        self.faults.forget(version)

    def is_warm(self, stamp: Stamp) -> bool:
        """Whether the pool has served enough since it was empty for its residency to tell."""
        return self._served[stamp.version, stamp.pool_epoch] >= WARM_AFTER

    def unserved(self, version: str, outcome: Outcome) -> None:
        """A request that was routed to a version, but never reached it: it is counted, and says
        nothing about the version."""
        self.exposition.counter(catalog.REQUESTS).inc(version, outcome)

    def residency(self, stamp: Stamp, samples: Iterable[ResidencySampled]) -> None:
        """What one request found of the cache on the device in time."""
        for sample in samples:
            self.note(stamp, sample)

    def played(self, stamp: Stamp, seconds: float, underrun_s: float) -> None:
        """Speech that was sent, and the silence a listener heard in it."""
        if stamp.of_client:
            self.exposition.counter(catalog.SPEECH_SECONDS).inc(stamp.version, by=seconds)
            self.exposition.counter(catalog.UNDERRUN_SECONDS).inc(stamp.version, by=underrun_s)

    def snapshot(self, version: str, snapshot: Snapshot) -> None:
        """An engine's newest numbers (table 1 and its scheduler)."""
        self.cache.update(version, snapshot.cells, self._clock(), snapshot.reuse)
        self.exposition.prepare()
        for counter, read in _ENGINE_COUNTERS:
            self.exposition.counter(counter).follow(read(snapshot), version)
        for gauge, read in _ENGINE_GAUGES:
            self.exposition.gauge(gauge).set(read(snapshot), version)

    def shows(self, version: str, able: Capabilities) -> None:
        """Whether a resident that has become ready can show table 1; the gateway itself measures
        what the others need."""
        shown = self.exposition.gauge(catalog.SHOWS_TABLE)
        shown.set(float(able.observes_residency), version, Table.CACHE)

    def lost_sight(self, version: str) -> None:
        """The engine is gone: what only it knows is unknown until the next one speaks, and that
        one starts cold and counts from 0, whatever its pool epoch is."""
        for key in [key for key in self._served if key[0] == version]:
            del self._served[key]
        self.cache.lost_sight(version)
        for counter, _ in _ENGINE_COUNTERS:
            self.exposition.counter(counter).restarted(version)
        for gauge, _ in _ENGINE_GAUGES:
            self.exposition.gauge(gauge).set(None, version)
        self.exposition.gauge(catalog.SHOWS_TABLE).set(None, version, Table.CACHE)

    def close(self, version: str) -> None:
        """A version has given its place to another: nothing of it is shown any more."""
        self.lost_sight(version)
        for table in (self.cache, self.latency, self.faults):
            table.forget(version)
        self.exposition.forget(version)

    def rehearsed(self, stamp: Stamp, rehearsal: str) -> None:
        """A request that never was, with a hard fault, for the evidence log's readers alone: no
        table, metric or trace hears of it."""
        found = FaultFound(
            fault=Fault.SPEECH_TRUNCATED,
            grade=Grade.HARD,
            origin=Origin.OUTPUT,
            detector=Detector.SPEECH,
            rule="rehearsal",
            detail="a rehearsed breach: no request was served",
        )
        for body in (found, RequestFinished(outcome=Outcome.OK, faulted=True)):
            self._append(stamp, body, rehearsal)

    def note(self, stamp: Stamp, body: EvidenceBody) -> None:
        """One entry of the evidence log, and of what is remembered of its request."""
        self.requests.note(stamp, body)
        self._append(stamp, body)

    def _append(self, stamp: Stamp, body: EvidenceBody, rehearsal: str = "") -> None:
        self.evidence.append(
            body,
            resident=stamp.resident,
            version=stamp.version,
            session=stamp.session,
            request_id=stamp.request_id,
            pool_epoch=stamp.pool_epoch,
            route_epoch=stamp.route_epoch,
            level=stamp.level,
            operator=stamp.operator,
            session_class=stamp.session_class,
            mirror=stamp.mirror,
            by_hand=stamp.by_hand,
            rehearsal=rehearsal,
        )
