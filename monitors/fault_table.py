"""Table 3: lip desync, truncated speech, corrupted video per 10,000 finished requests (S4.3)."""

from collections import Counter, deque

from monitors.contract import Count, FaultFound, Wire
from monitors.labels import Fault, Grade, Origin, Outcome
from monitors.redlines import RedLines


class FaultRow(Wire, frozen=True):
    """One version and fault. `soft` and `input_only` count verdicts of all time: shown, never
    judged; the rest is of the ring."""

    version: str
    fault: Fault | None  # None: any fault, and requests that failed or were lost
    requests: Count
    faulted: Count
    rate: float | None  # None: no request has finished yet
    soft: Count
    input_only: Count


class FaultTable:
    """An exact ring of the last `faults.window_requests` finished requests of each version."""

    def __init__(self, lines: RedLines) -> None:
        self._window = lines.faults.window_requests
        self._versions: dict[str, _Version] = {}

    def finish(
        self, version: str, outcome: Outcome, faulted: bool, faults: frozenset[Fault] = frozenset()
    ) -> None:
        """One request ended. `faults`: its hard faults that did not come in with the input.

        Raises `ValueError` where `faulted` contradicts the rest, and for a refused request: it
        never reached a resident, so it is no evidence about a version.
        """
        if outcome is Outcome.REFUSED:
            raise ValueError("a refused request has no place in the fault table: do not finish it")
        if faulted != (bool(faults) or outcome in (Outcome.FAILED, Outcome.LOST)):
            raise ValueError(f"{outcome} with {sorted(faults)} cannot have faulted={faulted}")
        self._of(version).finish(faulted, faults)

    def fault(self, version: str, found: FaultFound) -> None:
        """Count a detector's verdict for show; judgement follows from `finish` alone."""
        counts = self._of(version)
        if found.origin is Origin.INPUT:
            counts.input_only[found.fault] += 1
        elif found.grade is Grade.SOFT:
            counts.soft[found.fault] += 1

    def rows(self) -> tuple[FaultRow, ...]:
        """The table: by version, one row of any fault, then one of each."""
        return tuple(
            self._versions[version].row(version, fault)
            for version in sorted(self._versions)
            for fault in (None, *Fault)
        )

    def forget(self, version: str) -> None:
        """Drop a version that is gone for good."""
        self._versions.pop(version, None)

    def _of(self, version: str) -> "_Version":
        if version not in self._versions:
            self._versions[version] = _Version(self._window)
        return self._versions[version]


class _Version:
    """Running counts beside the ring, so that neither a request nor a row scans it."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._ring: deque[tuple[bool, frozenset[Fault]]] = deque()
        self._faulted = 0
        self._by_fault: Counter[Fault] = Counter()
        self.soft: Counter[Fault] = Counter()
        self.input_only: Counter[Fault] = Counter()

    def finish(self, faulted: bool, faults: frozenset[Fault]) -> None:
        self._ring.append((faulted, faults))
        self._faulted += faulted
        self._by_fault.update(faults)
        if len(self._ring) > self._window:
            old_faulted, old_faults = self._ring.popleft()
            self._faulted -= old_faulted
            self._by_fault.subtract(old_faults)

    def row(self, version: str, fault: Fault | None) -> FaultRow:
        requests = len(self._ring)
        faulted = self._faulted if fault is None else self._by_fault[fault]
        return FaultRow(
            version=version,
            fault=fault,
            requests=requests,
            faulted=faulted,
            rate=faulted / requests if requests else None,
            soft=_count(self.soft, fault),
            input_only=_count(self.input_only, fault),
        )


def _count(counter: Counter[Fault], fault: Fault | None) -> int:
    return counter.total() if fault is None else counter[fault]
