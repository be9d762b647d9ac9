"""What a detector says of one item: its faults, or why it could not tell, and what it cost."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from monitors.contract import FaultFound
from monitors.labels import Detector, Grade, Judgement


@dataclass(frozen=True)
class Abstained:
    """The detector could not tell, and why. Never the same as having found nothing."""

    reason: str


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
        if isinstance(self.verdict, Abstained):
            return Judgement.ABSTAINED
        grades = {fault.grade for fault in self.verdict}
        if Grade.HARD in grades:
            return Judgement.HARD
        return Judgement.SOFT if grades else Judgement.CLEAN


def examine(detector: Detector, judge: Callable[[], Verdict], spent_s: float = 0.0) -> Finding:
    """Runs `judge` in this thread and times it. `spent_s`: what it took to gather the numbers.

    Raises what `judge` raises, and `ValueError` where it speaks in another detector's name.
    """
    start = time.thread_time()
    verdict = judge()
    finding = Finding(detector, verdict, spent_s + time.thread_time() - start)
    if any(fault.detector is not detector for fault in finding.faults):
        raise ValueError(f"{detector} found faults that it says are another detector's")
    return finding


def joined(*findings: Finding) -> tuple[Finding, ...]:
    """One finding of each detector, in order: of an item that it looked at in several ways."""
    together: dict[Detector, Finding] = {}
    for finding in findings:
        earlier = together.get(finding.detector)
        if earlier is None:
            together[finding.detector] = finding
            continue
        told = [one for one in (earlier, finding) if not isinstance(one.verdict, Abstained)]
        verdict = (*earlier.faults, *finding.faults) if told else earlier.verdict
        cost = earlier.cpu_s + finding.cpu_s
        together[finding.detector] = replace(earlier, verdict=verdict, cpu_s=cost)
    return tuple(together.values())
