"""What recording and scraping cost, at 48 layers x 4 modalities x 2 residents.

An engine's step is 10 ms of real numpy work; what it records for the tables is timed beside it, in
the same loop. The gateway takes snapshots in and renders scrapes on the loop that requests wait
for: how long each holds it up, and what that does to the p99 of 10 ms steps in that thread. Times
are of the processor.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np
import torch
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from bench.board import Figure, options, show
from bench.kv_flush import SHAPE
from bench.paged_text import prompt
from monitors import catalog
from monitors.catalog import latency_bounds
from monitors.contract import KvRung, Level, RequestFinished
from monitors.labels import Milestone, Modality, Outcome
from monitors.latency_table import LatencyTable
from monitors.redlines import RedLines
from monitors.tracing import Tracing
from runtime.book import Book
from runtime.engine.worker import CHECK_SHARE
from runtime.kv.cache import KvCache
from runtime.kv.cache_settings import OBSERVE_EVERY, CacheSettings
from runtime.kv.observation import Observation, sample
from runtime.kv.residency import Mass
from runtime.kv.reuse import LowEntropy, ReusePolicy
from runtime.kv.sequence import Sequence
from runtime.quality.bootstrap import bootstrap
from runtime.requests import Requests
from runtime.residents.port import EventFrame, Snapshot, event_decoder, event_encoder
from runtime.stamp import Stamp

LAYERS, BATCH, TOKENS = 48, 8, 2048
STEP_S = 0.010
STEPS, QUICK_STEPS = 1500, 400
STEPS_A_SNAPSHOT = 100  # one a second
VERSIONS = ("v1", "v2")
LINES = RedLines()
OPENMETRICS = "application/openmetrics-text"
Seconds = NDArray[np.float64]


def figures(*, quick: bool) -> list[Figure]:
    steps = QUICK_STEPS if quick else STEPS
    torch.set_num_threads(1)
    work = Work()
    engine, gateway = Engine(), Gateway()
    return [
        *_engine(engine, work, steps),
        *_gateway(engine, gateway, work, steps),
        *_full_windows(),
        *_writes(),
    ]


class Work:
    """About 10 ms of matrix products."""

    def __init__(self) -> None:
        self._matrix = np.random.default_rng(0).random((192, 192), np.float32)
        self._times = 1
        self._times = max(1, round(STEP_S / min(_cpu_s(self) for _ in range(20))))

    def __call__(self) -> None:
        for _ in range(self._times):
            self._matrix @ self._matrix


def _cpu_s(act: Callable[[], object]) -> float:
    began = time.thread_time()
    act()
    return time.thread_time() - began


# ---------------------------------------------------------------- what an engine's step records
def _reuse() -> ReusePolicy:
    """On, so that every cell but those of the first layer has a threshold."""
    thresholds = {modality: LINES.entropy.of(modality) for modality in Modality}
    return ReusePolicy("on", LowEntropy(thresholds), tuple(range(1, LAYERS)))


class Engine:
    """A cache with running sequences of all modalities, and what a decode step saw of each."""

    def __init__(self) -> None:
        blocks = BATCH * (TOKENS // 16 + 8)
        bytes_ = int(LAYERS * blocks * SHAPE.native_bytes / 0.6)
        self.cache = KvCache[torch.Tensor](
            CacheSettings(bytes_, LAYERS, SHAPE, weights_digest="monitors")
        )
        self._rng = np.random.default_rng(1)
        self._running = [self._open() for _ in range(BATCH)]
        self.cache.reuse = _reuse()
        nats = self._rng.random((LAYERS, BATCH)).astype(np.float32)
        self._seen = [Observation(nats[:, at, None], None) for at in range(BATCH)]
        shapes = [sequence.table.matrix().shape for sequence in self._running]
        self._looks = [self._rng.random(shape) ** 4 for shape in shapes]
        self._steps = 0

    @property
    def pages(self) -> int:
        return int((self.cache.pool.records.form > 0).sum())

    def _open(self) -> Sequence:
        kinds = np.repeat(np.arange(len(Modality)), TOKENS // len(Modality)).astype(np.int8)
        tokens = prompt(self._rng.integers(0, 1000, TOKENS), kinds)
        sequence = self.cache.open(tokens, 64, salt="", write=True)
        assert sequence is not None
        self.cache.grow(sequence, TOKENS)
        self.cache.absorb(sequence, torch.empty(TOKENS, 0), None)
        return sequence

    def remember(self) -> None:
        """What reuse decides by, recorded or not: the entropy buffer."""
        for sequence, seen in zip(self._running, self._seen, strict=True):
            self.cache.entropy.write(sequence.row, sequence.table.length - 1, seen.nats)

    def record(self) -> None:
        """What one decode step of the batch adds to the tables: entropies; every 64th, masses."""
        self._steps += 1
        due = self._steps % OBSERVE_EVERY == 0
        if due:
            seen = [self._sample(*one) for one in zip(self._running, self._looks, strict=True)]
        else:
            seen = self._seen
        for sequence, each in zip(self._running, seen, strict=True):
            self.cache.record(sequence, sequence.table.length - 1, each)

    def _sample(self, sequence: Sequence, received: Mass) -> Observation:
        table = sequence.table
        in_time = ~self.cache.pool.records.on_host[table.matrix()]
        token_nats = np.zeros((LAYERS, 1), np.float32)
        seen = sample(received, table.modalities(), in_time, token_nats)
        return Observation(self._seen[0].nats, seen)

    def snapshot(self) -> bytes:
        """The message that the worker sends once a second."""
        cache = self.cache
        told = Snapshot(
            pool_epoch=cache.pool.epoch,
            kv=KvRung.NATIVE,
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
            running=BATCH,
            waiting=0,
            busy_s=1.0,
            steps=self._steps,
            reuse=cache.reuse.state,
            live_sequences=cache.live_sequences,
        )
        return event_encoder.encode(EventFrame(call=0, event=told))


def _engine(engine: Engine, work: Work, steps: int) -> Iterator[Figure]:
    worked, recorded = np.zeros(steps), np.zeros(steps)
    sent, checked, check_due = list[float](), list[float](), 0.0
    engine.snapshot()
    for step in range(steps):
        worked[step] = _cpu_s(work) + _cpu_s(engine.remember)
        recorded[step] = _cpu_s(engine.record)
        if step % STEPS_A_SNAPSHOT == 0:
            sent.append(_cpu_s(engine.snapshot))
            recorded[step] += sent[-1]
            if step * STEP_S >= check_due:  # as the worker does
                checked.append(_cpu_s(engine.cache.check))
                check_due = step * STEP_S + checked[-1] / CHECK_SHARE
                recorded[step] += checked[-1]
    parts = np.array_split(recorded, 20), np.array_split(worked, 20)
    share = bootstrap([100 * r.sum() / w.sum() for r, w in zip(*parts, strict=True)])
    where = f"{LAYERS} layers, {BATCH} sequences, {engine.pages:,} pages"
    yield Figure(
        f"recording in an engine's 10 ms step, {where}", share.value, "%", 1.0,
        "the same steps without", low=share.low, high=share.high,
    )  # fmt: skip
    yield _p99("added to a step's p99 by recording and its snapshots", worked, recorded)
    yield Figure(
        "added to a step's p99.9 by the same and by checks of its books",
        1e3 * float(np.quantile(worked + recorded, 0.999) - np.quantile(worked, 0.999)), "ms",
        None, f"{len(checked)} checks in {steps} steps; the most in one step:"
        f" {1e3 * recorded.max():.1f} ms",
    )  # fmt: skip
    yield Figure("a snapshot's stall of the engine, median", 1e3 * float(np.median(sent)), "ms",
                 None, f"and {1e3 * float(np.median(checked)):.1f} ms where its books are checked,"
                 " at most a thousandth of the time")  # fmt: skip


def _p99(bar: str, worked: Seconds, added: Seconds, target: float | None = 1.0) -> Figure:
    """Of the same steps, so that the machine's own slow ones fall on both sides."""
    without, with_ = (1e3 * np.quantile(of, 0.99) for of in (worked, worked + added))
    return Figure(bar, float(with_ - without), "ms", target, f"p99 without: {without:.2f} ms")


# ---------------------------------------------------------------- what the gateway's loop does
class Traced(Requests):
    """Every latency carries an exemplar."""

    def exemplar(self, stamp: Stamp) -> str | None:
        return "ab" * 16


class Gateway:
    """A book that has seen some thousand requests of two versions."""

    def __init__(self) -> None:
        self.now = 0.0  # of the steps, not of a machine that others use too
        self.book = Book(
            LINES,
            "bench",
            clock=lambda: self.now,
            requests=Traced(Tracing()),
        )
        rng = np.random.default_rng(2)
        for version in VERSIONS:
            self.book.open(version)
            for _ in range(2000):
                self.finish(version)
            for milestone in Milestone:
                for seconds in rng.lognormal(-1.6, 0.6, 1000):
                    self.book.reached(self._stamp(version), milestone, float(seconds))

    def finish(self, version: str) -> None:
        """A request ends, and with it the ring's interval changes."""
        ending = RequestFinished(outcome=Outcome.LOST, faulted=True)
        good = RequestFinished(outcome=Outcome.OK, faulted=False)
        lost = len(self.book.faults.rows()) == 0
        self.book.finished(self._stamp(version), ending if lost else good, ())

    def _stamp(self, version: str) -> Stamp:
        return Stamp("a", version, "s", "r", 1, 1, Level())

    def take(self, version: str, body: bytes) -> None:
        """As the listener does: what it does once a second for each resident."""
        event = event_decoder.decode(body).event
        assert isinstance(event, Snapshot)
        self.book.snapshot(version, event)

    def scrape(self) -> bytes:
        return self.book.exposition.render(OPENMETRICS)[0]


@dataclass(frozen=True, eq=False)
class Stalls:
    """Of one loop of steps: the work, and what came on top of it."""

    worked: Seconds
    taken: Seconds
    scraped: Seconds


def _loop(engine: Engine, gateway: Gateway, work: Work, steps: int, every: int) -> Stalls:
    """Steps of work in the gateway's thread; a scrape every so many, snapshots between."""
    stalls = Stalls(np.zeros(steps), np.zeros(steps), np.zeros(steps))
    residents = cycle(VERSIONS)
    for step in range(steps):
        stalls.worked[step] = _cpu_s(work)
        gateway.now += STEP_S
        if step % (STEPS_A_SNAPSHOT // len(VERSIONS)) == 1:
            for _ in range(5):
                engine.record()
            version, body = next(residents), engine.snapshot()
            stalls.taken[step] = _cpu_s(lambda v=version, b=body: gateway.take(v, b))
            gateway.finish(version)
        if step % every == 0:
            stalls.scraped[step] = _cpu_s(gateway.scrape)
    return stalls


def _gateway(engine: Engine, gateway: Gateway, work: Work, steps: int) -> Iterator[Figure]:
    body = gateway.scrape()
    slow, fast = (_loop(engine, gateway, work, steps, every) for every in (100, 10))
    body = gateway.scrape()
    series = body.count(b"\n") - body.count(b"# ")
    size = f"{series:,} series, {len(body) // 1000} KB"
    theirs = _client_library(gateway)
    scraped, taken = fast.scraped[fast.scraped > 0], fast.taken[fast.taken > 0]
    yield _p99(f"added to a step's p99 by a scrape a second, {size}", slow.worked, slow.scraped)
    yield _p99("added to a step's p99 by ten scrapes a second", fast.worked, fast.scraped)
    yield Figure("a scrape's stall of the gateway, median", 1e3 * float(np.median(scraped)), "ms",
                 1.0, f"the client library over the same families: {theirs:.1f} ms")  # fmt: skip
    yield Figure("a scrape's stall of the gateway, worst of 20",
                 1e3 * float(np.quantile(scraped, 0.95)), "ms", 2.0, "")  # fmt: skip
    yield Figure("a snapshot's stall of the gateway, median", 1e3 * float(np.median(taken)), "ms",
                 2.0, "its text of table 1 is written here, not in a scrape")  # fmt: skip
    asked = [_cpu_s(lambda: gateway.book.tables().to_json()) for _ in range(30)]
    yield Figure("GET /tables, stall of the gateway, median", 1e3 * float(np.median(asked)), "ms",
                 None, "asked by the control plane and by people")  # fmt: skip


def _client_library(gateway: Gateway) -> float:
    """Milliseconds that the Python client library takes to write what a scrape shows."""
    families = list(text_string_to_metric_families(gateway.scrape().decode()))

    class Registry:
        def collect(self) -> list[object]:
            return list(families)

    return 1e3 * min(_cpu_s(lambda: generate_latest(Registry())) for _ in range(10))


# ---------------------------------------------------------------- table 2 at its fullest
def _full_windows() -> Iterator[Figure]:
    """Of two versions, each with so many requests a second that have all milestones."""
    for rate in (333, 1000):
        table, now = _full_window(rate)
        rows = [_cpu_s(lambda t=table, at=now: t.rows(at)) for _ in range(20)]
        tended = [_cpu_s(lambda t=table, at=now: t.recent_p99("v1", at)) for _ in range(20)]
        yield Figure(f"table 2 at {rate} requests a second and version, median",
                     1e3 * float(np.median(rows)), "ms", None, "of GET /tables")  # fmt: skip
        yield Figure(f"a resident's p99 at {rate} requests a second, median",
                     1e3 * float(np.median(tended)), "ms", 1.0,
                     "four times a second, while it is degraded")  # fmt: skip


def _full_window(rate: int) -> tuple[LatencyTable, float]:
    """A table after a whole window, and the time it is then."""
    clock = iter(
        np.repeat(
            np.arange(rate * LINES.latency.window_s) / rate, len(VERSIONS) * len(Milestone)
        ).tolist()
    )
    table = LatencyTable(LINES, clock=lambda: next(clock))
    count = int(rate * LINES.latency.window_s)
    for seconds in np.random.default_rng(3).lognormal(-1.6, 0.6, count).tolist():
        for version in VERSIONS:
            for milestone in Milestone:
                table.observe(version, milestone, seconds)
    return table, LINES.latency.window_s


# ---------------------------------------------------------------- one write
def _writes() -> Iterator[Figure]:
    registry = CollectorRegistry()
    labels = ("version", "milestone")
    theirs = Histogram("h", "", labels, registry=registry, buckets=latency_bounds(LINES))
    counter = Counter("c", "", ("version",), registry=registry)
    book = Book(LINES, "bench")
    ours = book.exposition.histogram(catalog.FIRST_OUTPUT)
    steps = book.exposition.counter(catalog.STEPS)
    first = Milestone.FIRST_TOKEN
    exemplar = {"trace_id": "ab" * 16}
    for what, mine, others in (
        ("a counter's step", lambda: steps.inc("v1"), lambda: counter.labels("v1").inc()),
        (
            "a latency with its exemplar",
            lambda: ours.observe(0.3, "v1", first, trace_id="ab" * 16),
            lambda: theirs.labels("v1", first).observe(0.3, exemplar),
        ),
    ):
        taken = [min(_each_us(act) for _ in range(5)) for act in (mine, others)]
        yield Figure(f"recording {what}", taken[0], "us", None, f"client library: {taken[1]:.2f}")


def _each_us(act: Callable[[], object], times: int = 5000) -> float:
    return 1e6 * _cpu_s(lambda: [act() for _ in islice(cycle([None]), times)]) / times


def main() -> None:
    args = options(__doc__ or "")
    show(figures(quick=args.quick), as_json=args.json)


if __name__ == "__main__":
    main()
