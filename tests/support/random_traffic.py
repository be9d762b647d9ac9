"""Versions with random traffic, a second at a time, in a real book: what a scrape and `/tables`
then show is of one and the same past."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hypothesis import strategies as st

from monitors.cache_table import CacheCell
from monitors.contract import KvRung, Level, RequestFinished
from monitors.labels import Milestone, Modality, Outcome
from monitors.redlines import RedLines
from monitors.tables import Tables
from runtime.book import Book
from runtime.residents.port import Snapshot
from runtime.stamp import Stamp

MOST_VERSIONS = 4  # that one data plane shows
# Of the first second of a data plane. Prometheus stretches no counter below zero, which for those
# that are still near it makes another ratio than the one in `/tables` (ADR 25).
_PAST_HITS, _PAST_LOOKUPS = 950.0, 1_000.0


class Happens(StrEnum):
    """At the start of a segment."""

    NOTHING = "nothing"
    ENGINE_LOST = "engine_lost"  # its cells are not shown for the segment
    ENGINE_AGAIN = "engine_again"  # a new one counts from 0
    RING_EMPTIED = "ring_emptied"  # after a flush


@dataclass(frozen=True)
class Segment:
    """So many seconds of the same traffic; counts are per second."""

    seconds: int
    fast: int  # first outputs within the first-packet line
    slow: int  # within the degrade line
    late: int  # past it, answered
    hung: int  # past it, not answered
    lookups: int  # in units of attention mass
    hits: int  # in eighths of the lookups
    live_gb: float
    finished: int
    faulted: int  # of those finished; these end as `failing` says
    happens: Happens = Happens.NOTHING
    failing: Outcome = Outcome.FAILED


def segments() -> st.SearchStrategy[Segment]:
    """Traffic about the lines of `lines_for_tests`: most of it near one, some far from any."""
    few = st.integers(0, 3)
    return st.builds(
        Segment,
        seconds=st.integers(1, 16),
        fast=st.sampled_from([0, 0, 1, 4, 9, 20]),
        slow=few,
        late=st.sampled_from([0, 0, 0, 1, 3]),
        hung=st.sampled_from([0, 0, 0, 1, 2]),
        lookups=st.sampled_from([0, 8, 16]),
        hits=st.integers(5, 8),
        live_gb=st.sampled_from([0.0, 24.0, 25.0, 26.0]),
        finished=st.sampled_from([0, 0, 2, 7]),
        faulted=st.sampled_from([0, 0, 0, 1, 7]),
        failing=st.sampled_from([Outcome.FAILED, Outcome.LOST]),
        happens=st.sampled_from([Happens.NOTHING] * 5 + [*Happens][1:]),
    )


class Traffic:
    """Up to four versions in one book. `now` is seconds since the start, and wall time too."""

    def __init__(self, lines: RedLines, versions: Sequence[str]) -> None:
        assert len(versions) <= MOST_VERSIONS
        self.now = 0.0
        self.versions = {version: _Version(version) for version in versions}
        self._lines = lines
        self._lives = 0
        self.start_again()

    def start_again(self) -> None:
        """A new data plane, which knows nothing of the one before; the engines live on."""
        self._lives += 1
        self.book = Book(
            self._lines, f"life-{self._lives}", clock=lambda: self.now, wall=lambda: self.now
        )
        for name, version in self.versions.items():
            self.book.open(name)
            version.has_past = False

    def step(self, each: dict[str, Segment | None], seconds: float = 1.0) -> None:
        """So much time goes by, with the traffic of one second of each segment. Requests end in
        the middle of it, engines tell at its end. None: the version is quiet."""
        began = self.now
        self.now = began + seconds / 2
        for name, segment in each.items():
            if segment is not None:
                self.versions[name].serve(self.book, segment, self._lines)
        self.now = began + seconds
        for name, segment in each.items():
            if segment is not None:
                self.versions[name].show(self.book, segment)

    def scrape(self) -> str:
        """The body of `/metrics`."""
        return self.book.exposition.render(None)[0].decode()

    def tables(self) -> Tables:
        return self.book.tables()


class _Version:
    def __init__(self, version: str) -> None:
        self.version = version
        self._stamp = Stamp("b", version, "s", "r", 1, 1, Level())
        self._draw = random.Random(version)
        self._hit = self._lookup = 0.0
        self._is_new = True
        self.has_past = False
        self._segment: Segment | None = None

    def serve(self, book: Book, segment: Segment, lines: RedLines) -> None:
        if segment is not self._segment:
            self._begin(book, segment)
        latency = lines.latency
        milestones = list(Milestone)
        for seconds, count in (
            (0.5 * latency.first_packet_s, segment.fast),
            (0.5 * (latency.first_packet_s + latency.degrade_s), segment.slow),
            (2.0 * latency.degrade_s, segment.late),
        ):
            for _ in range(count):
                milestone = self._draw.choice(milestones[:2])
                if seconds > latency.degrade_s:
                    book.crossed(self._stamp, milestone, latency.degrade_s)
                book.reached(self._stamp, milestone, seconds)
        for _ in range(segment.hung):
            book.crossed(self._stamp, self._draw.choice(milestones[:2]), latency.degrade_s)
        for place in range(segment.finished):
            ending = segment.failing if place < segment.faulted else Outcome.OK
            faulted = ending in (Outcome.FAILED, Outcome.LOST)
            book.finished(self._stamp, RequestFinished(outcome=ending, faulted=faulted), ())

    def show(self, book: Book, segment: Segment) -> None:
        if segment.happens is Happens.ENGINE_LOST:
            return
        if self._is_new:  # an engine tells its numbers as it starts, before any request
            self._is_new = False
        else:
            past_hits, past_lookups = (0, 0) if self.has_past else (_PAST_HITS, _PAST_LOOKUPS)
            self.has_past = True
            self._hit += past_hits + segment.lookups * segment.hits / 8
            self._lookup += past_lookups + segment.lookups
        cells = [self._cell(0, 1.0, segment.live_gb)]
        book.snapshot(self.version, _snapshot(cells))

    def _begin(self, book: Book, segment: Segment) -> None:
        self._segment = segment
        if segment.happens in (Happens.ENGINE_LOST, Happens.ENGINE_AGAIN):
            book.lost_sight(self.version)
            self._hit = self._lookup = 0.0
            self._is_new = True
        if segment.happens is Happens.RING_EMPTIED:
            book.flushed(self.version)

    def _cell(self, layer: int, share: float, live_gb: float) -> CacheCell:
        return CacheCell(
            layer=layer, modality=Modality.AUDIO, entropy_th=0.35, hit_mass=self._hit * share,
            lookup_mass=self._lookup * share, entropy_sum=0.0, entropy_count=0,
            token_entropy_sum=0.0, token_entropy_count=0, live_bytes=int(live_gb * 1e9),
            evictable_bytes=0, host_bytes=0, alias_pages=0,
        )  # fmt: skip


def _snapshot(cells: Sequence[CacheCell]) -> Snapshot:
    return Snapshot(
        pool_epoch=1, kv=KvRung.NATIVE, cells=tuple(cells), prefix_hit_tokens=0,
        prefix_lookup_tokens=0, prefix_evictions=0, encoder_hits=0, encoder_lookups=0,
        reserved_bytes=0, device_bytes=None, table_entries=0, block_fill=None, running=0,
        waiting=0, busy_s=0.0, steps=0, reuse="on", live_sequences=0,
    )  # fmt: skip
