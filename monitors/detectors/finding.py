"""What a detector says of one item: its faults, or why it could not tell, and what it cost.

A detector never fails the request that it looks at. What it raises is logged as an error, counted
as a judgement of its own, and told by kind and place: its words may quote what it choked on.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TypeVar

from monitors.contract import FaultFound
from monitors.labels import Detector, Grade, Judgement

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Abstained:
    """The detector could not tell, and why. Never the same as having found nothing."""

    reason: str


@dataclass(frozen=True)
class Failed(Abstained):
    """It could not tell because it is broken: `reason` is the kind of error and its place."""


Verdict = tuple[FaultFound, ...] | Abstained


@dataclass(frozen=True)
class Finding:
    """One detector on one item. `cpu_s`: seconds of its thread's processor time."""

    detector: Detector
    verdict: Verdict
    cpu_s: float

    @property
    def faults(self) -> tuple[FaultFound, ...]:
        """What it found; nothing where it abstained."""
        return () if isinstance(self.verdict, Abstained) else self.verdict

    @property
    def judgement(self) -> Judgement:
        """The worst of what it found."""
        if isinstance(self.verdict, Failed):
            return Judgement.FAILED
        if isinstance(self.verdict, Abstained):
            return Judgement.ABSTAINED
        grades = {fault.grade for fault in self.verdict}
        if Grade.HARD in grades:
            return Judgement.HARD
        return Judgement.SOFT if grades else Judgement.CLEAN


def examine(detector: Detector, judge: Callable[[], Verdict], spent_s: float = 0.0) -> Finding:
    """Runs `judge` in this thread and times it; one that raises has failed. `spent_s`: what it
    took to gather the numbers."""
    start = time.thread_time()
    try:
        verdict = judge()
        _check_name(detector, verdict)
    except Exception as err:  # noqa: BLE001 - whatever it is, the request goes on
        verdict = _failed(detector, err)
    return Finding(detector, verdict, spent_s + time.thread_time() - start)


class Gathering:
    """Takes in what one detector needs, bit by bit, and times it.

    Where that raises, the detector has failed on this item and is fed no more.
    """

    def __init__(self, detector: Detector) -> None:
        self.failed: Failed | None = None
        self.spent_s = 0.0
        self._detector = detector

    def take(self, gather: Callable[[], T]) -> T | None:
        """What `gather` gives; None once it has failed."""
        if self.failed is not None:
            return None
        start = time.thread_time()
        try:
            return gather()
        except Exception as err:  # noqa: BLE001 - as in `examine`
            self.failed = _failed(self._detector, err)
            return None
        finally:
            self.spent_s += time.thread_time() - start

    def judging(self, judge: Callable[[], Verdict]) -> Callable[[], Verdict]:
        """`judge`, unless it would judge half of what it needs."""
        return lambda: judge() if self.failed is None else self.failed

    def examine(self, judge: Callable[[], Verdict]) -> Finding:
        """What the detector says of all that was gathered."""
        return examine(self._detector, self.judging(judge), self.spent_s)


def joined(*findings: Finding) -> tuple[Finding, ...]:
    """One finding of each detector, in order: of an item that it looked at in several ways.

    Faults go before a failure, and a failure before finding nothing.
    """
    together: dict[Detector, Finding] = {}
    for finding in findings:
        earlier = together.get(finding.detector)
        together[finding.detector] = finding if earlier is None else _both(earlier, finding)
    return tuple(together.values())


def _both(first: Finding, second: Finding) -> Finding:
    cost = first.cpu_s + second.cpu_s
    return replace(first, verdict=_verdict_of_both(first, second), cpu_s=cost)


def _verdict_of_both(first: Finding, second: Finding) -> Verdict:
    faults = (*first.faults, *second.faults)
    verdicts = first.verdict, second.verdict
    failed = next((one for one in verdicts if isinstance(one, Failed)), None)
    if faults or failed is None:
        told = not all(isinstance(one, Abstained) for one in verdicts)
        return faults if told else first.verdict
    return failed


def _check_name(detector: Detector, verdict: Verdict) -> None:
    if isinstance(verdict, Abstained):
        return
    if any(fault.detector is not detector for fault in verdict):
        raise ValueError(f"{detector} found faults that it says are another detector's")


def _failed(detector: Detector, err: Exception) -> Failed:
    trail = _places(err.__traceback__)
    kind = type(err).__name__
    log.error("the detector %s failed: %s at %s", detector, kind, " > ".join(trail))
    return Failed(f"it failed: {kind} at {trail[-1]}")


def _places(trace: TracebackType | None) -> list[str]:
    """From the outermost call to where it was raised."""
    places: list[str] = []
    while trace is not None:
        places.append(f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}")
        trace = trace.tb_next
    return places
