"""A book with a known workload of two versions in it, for whoever compares what shows of it."""

import itertools
import random
from collections.abc import Sequence

from monitors.cache_table import CacheCell
from monitors.contract import FaultFound, KvRung, Level, RequestFinished
from monitors.detectors.finding import Finding
from monitors.fault_table import counts
from monitors.labels import Detector, Fault, Grade, Milestone, Modality, Origin, Outcome
from monitors.redlines import RedLines
from runtime.book import Book
from runtime.requests import Requests
from runtime.residents.port import Snapshot
from runtime.stamp import Stamp

LINES = RedLines()
VERSIONS = ("v1", "v2")
REUSE = {"v1": "on", "v2": "off: shadow check tripped"}
LAYERS = 3
TRACE = "ab" * 16


class Traced(Requests):
    """Every measurement has a trace that is kept."""

    def exemplar(self, stamp: Stamp) -> str | None:
        return TRACE


def drive(book: Book) -> None:
    """Some of everything, on both versions; the same each time."""
    draw = random.Random(7)
    for version in VERSIONS:
        stamp = Stamp("a", version, "s", "r", 3, 1, Level())
        for milestone in Milestone:
            for _ in range(draw.randrange(150, 250)):
                first_output(book, stamp, milestone, draw.lognormvariate(-1.6, 0.6))
            for seconds in (0.25, 0.4):  # on a line is not over it
                first_output(book, stamp, milestone, seconds)
            for _ in range(3):  # these hang
                book.crossed(stamp, milestone, LINES.latency.degrade_s)
        for _ in range(400):
            finish(book, stamp, draw)
        for ending in (Outcome.REFUSED, Outcome.CANCELLED, Outcome.CANCELLED, Outcome.FAILED):
            book.unserved(version, ending)  # says nothing about the version
        for _ in range(2):
            cells = [cell(draw, place) for place in itertools.product(range(LAYERS), Modality)]
            book.snapshot(version, snapshot(version, cells))
    stamp = Stamp("a", "v1", "s", "r", 3, 1, Level(), operator=True)
    first_output(book, stamp, Milestone.FIRST_TOKEN, 9.0)  # shows nowhere


def first_output(book: Book, stamp: Stamp, milestone: Milestone, seconds: float) -> None:
    for line_s in (LINES.latency.first_packet_s, LINES.latency.degrade_s):
        if seconds > line_s:
            book.crossed(stamp, milestone, line_s)
    book.reached(stamp, milestone, seconds)


def finish(book: Book, stamp: Stamp, draw: random.Random) -> None:
    found = [
        FaultFound(
            fault=fault,
            grade=draw.choice(list(Grade)),
            origin=draw.choice(list(Origin)),
            detector=Detector.SPEECH,
            rule="r",
            detail="",
        )
        for fault in Fault
        if draw.random() < 0.05
    ]
    book.judged(stamp, Finding(Detector.SPEECH, tuple(found), 0.0))
    ending = draw.choices([Outcome.OK, Outcome.LOST, Outcome.CANCELLED], [50, 1, 2])[0]
    faulted = ending is Outcome.LOST or any(map(counts, found))
    book.finished(stamp, RequestFinished(outcome=ending, faulted=faulted), found)


def cell(draw: random.Random, place: tuple[int, Modality]) -> CacheCell:
    layer, modality = place
    lookup = draw.uniform(50, 60) * (modality is not Modality.IMAGE)  # images were never used
    return CacheCell(
        layer=layer,
        modality=modality,
        entropy_th=0.35 if layer else None,
        hit_mass=lookup * draw.uniform(0.8, 0.9),
        lookup_mass=lookup,
        entropy_sum=lookup,
        entropy_count=int(lookup),
        token_entropy_sum=lookup,
        token_entropy_count=int(lookup),
        live_bytes=draw.randrange(10**9) * (modality is not Modality.IMAGE),
        evictable_bytes=7,
        host_bytes=8,
        alias_pages=9,
    )


def nothing_yet(book: Book) -> None:
    for version in VERSIONS:
        book.open(version)
        cells = [
            CacheCell(layer, modality, None, 0.0, 0.0, 0.0, 0, 0.0, 0, 0, 0, 0, 0)
            for layer, modality in itertools.product(range(LAYERS), Modality)
        ]
        book.snapshot(version, snapshot(version, cells))


def snapshot(version: str, cells: Sequence[CacheCell]) -> Snapshot:
    return Snapshot(
        pool_epoch=3, kv=KvRung.NATIVE, cells=tuple(cells), prefix_hit_tokens=1,
        prefix_lookup_tokens=2, prefix_evictions=0, encoder_hits=0, encoder_lookups=0,
        reserved_bytes=0, device_bytes=None, table_entries=0, block_fill=None, running=0,
        waiting=0, busy_s=0.0, steps=0, reuse=REUSE[version], live_sequences=0,
    )  # fmt: skip
