"""What all detectors found of one request, in few entries: each costs a place in the evidence."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from monitors.contract import FaultFound
from monitors.detectors.finding import Finding
from monitors.labels import Detector, Fault, Grade, Origin

MOST_RULES = 4  # that a detector has an entry each for, of one fault, grade and origin

_Kind = tuple[Detector, Fault, Grade, Origin]


def merged(findings: Iterable[Finding]) -> tuple[FaultFound, ...]:
    """The faults of a request's items, those of one rule, grade and origin as one: how many, where
    the first is on its item's axis, and the worst value. Rules beyond `MOST_RULES` are only named.
    """
    kinds: defaultdict[_Kind, defaultdict[str, list[FaultFound]]]
    kinds = defaultdict(lambda: defaultdict(list))
    for finding in findings:
        for fault in finding.faults:
            kinds[fault.detector, fault.fault, fault.grade, fault.origin][fault.rule].append(fault)
    return tuple(fault for rules in kinds.values() for fault in _few(rules))


def _few(rules: dict[str, list[FaultFound]]) -> Iterator[FaultFound]:
    each = [_one(faults) for faults in rules.values()]
    yield from each[: MOST_RULES - 1]
    last, more = each[MOST_RULES - 1 : MOST_RULES], list(rules)[MOST_RULES:]
    for fault in last:
        named = f"; and by {len(more)} more rules: {', '.join(more)}" if more else ""
        yield msgspec.structs.replace(fault, detail=fault.detail + named)


def _one(faults: Sequence[FaultFound]) -> FaultFound:
    first, worst = faults[0], max(faults, key=_beyond)
    if len(faults) == 1:
        return first
    detail = f"{len(faults)} times; first: {first.detail}"
    if worst is not first:
        detail += f"; worst: {worst.detail}"
    return msgspec.structs.replace(worst, at_ms=first.at_ms, detail=detail)


def _beyond(fault: FaultFound) -> float:
    """How far past its limit."""
    return -1.0 if fault.value is None else abs(fault.value - (fault.limit or 0.0))
