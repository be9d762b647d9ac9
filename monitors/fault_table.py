"""Table 3: lip desync, truncated speech, corrupted video per 10,000 finished requests (S4.3)."""

from collections import Counter, deque
from collections.abc import Iterable
from functools import lru_cache

from monitors.contract import Count, FaultFound, Wire
from monitors.intervals import exact_interval
from monitors.labels import Fault, Grade, Mark, Origin, Outcome
from monitors.redlines import RedLines

Marks = dict[Fault, Mark]
Counted = tuple[tuple[Fault | None, Mark], ...]
_WORST = tuple(Mark)  # worst first
# A ring asks for the same few intervals at every scrape.
_interval = lru_cache(maxsize=256)(exact_interval)


class FaultRow(Wire, frozen=True):
    """One version and fault. All but `finished` and `answered` is of the ring, and each request of
    the ring is in at most one of `faulted` (hard), `soft` and `input_only`: by the worst that was
    found of it."""

    version: str
    fault: Fault | None  # None: any fault, and requests that failed or were lost
    finished: Count  # of all time: while it grows, what the ring holds is news
    answered: Count  # of those, the ones that were answered: neither failed, lost nor cancelled
    requests: Count
    faulted: Count
    rate: float | None  # None: no request has finished yet
    rate_low: float | None  # the exact 95 % interval of the rate, Clopper and Pearson's
    rate_high: float | None
    soft: Count
    input_only: Count


def counts(found: FaultFound) -> bool:
    """Whether a verdict counts against the red line: hard, and not of the input."""
    return _mark(found) is Mark.HARD


def marks_of(found: Iterable[FaultFound]) -> Marks:
    """The worst mark of each fault among the verdicts on one request."""
    marks: Marks = {}
    for each in found:
        mark = _mark(each)
        marks[each.fault] = min(mark, marks.get(each.fault, mark), key=_WORST.index)
    return marks


def _mark(found: FaultFound) -> Mark:
    if found.origin is Origin.INPUT:
        return Mark.INPUT_ONLY
    return Mark.HARD if found.grade is Grade.HARD else Mark.SOFT


class FaultTable:
    """An exact ring of the last `faults.window_requests` finished requests of each version."""

    def __init__(self, lines: RedLines) -> None:
        self._window = lines.faults.window_requests
        self._versions: dict[str, _Ring] = {}
        self._finished: Counter[str] = Counter()
        self._answered: Counter[str] = Counter()

    def finish(
        self, version: str, outcome: Outcome, faulted: bool, marks: Marks | None = None
    ) -> None:
        """One request ended. `marks`: what was found of it.

        Raises `ValueError` where `faulted` contradicts the rest, and for a refused request: it
        never reached a resident, so it is no evidence about a version.
        """
        marks = marks or {}
        if outcome is Outcome.REFUSED:
            raise ValueError("a refused request has no place in the fault table: do not finish it")
        if faulted != (Mark.HARD in marks.values() or outcome in (Outcome.FAILED, Outcome.LOST)):
            raise ValueError(f"{outcome} with {marks} cannot have faulted={faulted}")
        if version not in self._versions:
            self._versions[version] = _Ring(self._window)
        self._versions[version].add(_counted(faulted, marks))
        self._finished[version] += 1
        self._answered[version] += outcome is Outcome.OK

    def rows(self) -> tuple[FaultRow, ...]:
        """The table: by version, one row of any fault, then one of each."""
        return tuple(
            self._versions[version].row(
                version, fault, self._finished[version], self._answered[version]
            )
            for version in sorted(self._versions)
            for fault in (None, *Fault)
        )

    def forget(self, version: str) -> None:
        """Empty a version's ring. It has no rows until its next request ends."""
        self._versions.pop(version, None)


def _counted(faulted: bool, marks: Marks) -> Counted:
    """Where one request counts: once in the row of any fault, once in that of each it has."""
    if not faulted and not marks:
        return ()
    worst = Mark.HARD if faulted else min(marks.values(), key=_WORST.index)
    return ((None, worst), *marks.items())


class _Ring:
    """Running counts beside the ring, so that neither a request nor a row scans it."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._ring: deque[Counted] = deque()
        self._counts: Counter[tuple[Fault | None, Mark]] = Counter()

    def add(self, counted: Counted) -> None:
        self._ring.append(counted)
        self._counts.update(counted)
        if len(self._ring) > self._window:
            self._counts.subtract(self._ring.popleft())

    def row(self, version: str, fault: Fault | None, finished: int, answered: int) -> FaultRow:
        requests, faulted = len(self._ring), self._counts[fault, Mark.HARD]
        low, high = _interval(faulted, requests) if requests else (None, None)
        return FaultRow(
            version=version,
            fault=fault,
            finished=finished,
            answered=answered,
            requests=requests,
            faulted=faulted,
            rate=faulted / requests if requests else None,
            rate_low=low,
            rate_high=high,
            soft=self._counts[fault, Mark.SOFT],
            input_only=self._counts[fault, Mark.INPUT_ONLY],
        )
