"""What a drill expects and what came, and the verdict on it. Pure: times come in as arguments."""

from collections.abc import Mapping
from dataclasses import dataclass, field

BEGIN = "inject"
BREACH = "breach"

CLOCKS_S = 1.0
"""Marks come from several processes, each as often as it looks: by so much an order may seem
reversed and is none."""


@dataclass(frozen=True)
class Step:
    """One thing that the runbook says will happen, at most `within_s` after the step `since`.

    None for `within_s`: what the drill itself did, which nobody is judged by.
    """

    key: str
    what: str
    within_s: float | None
    since: str = BEGIN


@dataclass(frozen=True)
class Mark:
    """Something that was seen. `at`: wall seconds, by the clock of `source`."""

    at: float
    seen: str
    source: str


@dataclass(frozen=True)
class Timeline:
    """Steps in the order in which they were looked for, and the marks of those that came.

    `broken`: what must not happen and did, in sentences.
    """

    began: Mark
    steps: tuple[Step, ...] = ()
    marks: Mapping[str, Mark] = field(default_factory=dict[str, Mark])
    broken: tuple[str, ...] = ()

    def at(self, key: str) -> float | None:
        """When a step was seen, wall seconds; None: it was not."""
        if key == BEGIN:
            return self.began.at
        mark = self.marks.get(key)
        return None if mark is None else mark.at

    def took(self, step: Step) -> float | None:
        """Seconds from `step.since` to the step; None where either was not seen."""
        since, at = self.at(step.since), self.at(step.key)
        return None if since is None or at is None else at - since

    def after_breach(self, at: float) -> float | None:
        """Seconds from the breach; None where there was none."""
        breach = self.at(BREACH)
        return None if breach is None else at - breach

    def overdue(self, step: Step, now: float) -> bool:
        """Whether a step has not come and need not be waited for any more."""
        since = self.at(step.since)
        if step.within_s is None or step.key in self.marks or since is None:
            return False
        return now - since > step.within_s


def wanting(timeline: Timeline) -> tuple[str, ...]:
    """What did not go as it should, in sentences; empty: the system answered.

    A step that counts from one that never came is passed over: the first that is missing says it.
    """
    told = (_complaint(timeline, step) for step in timeline.steps)
    return (*(sentence for sentence in told if sentence is not None), *timeline.broken)


def _complaint(timeline: Timeline, step: Step) -> str | None:
    if step.within_s is None or timeline.at(step.since) is None:
        return None
    limit, took = f"{step.within_s:.1f} s", timeline.took(step)
    after = "the injection" if step.since == BEGIN else step.since
    if took is None:
        return f"{step.key}: not seen within {limit} of {after}: {step.what}"
    if took > step.within_s:
        return f"{step.key}: {took:.1f} s after {after}, where {limit} are allowed: {step.what}"
    if took < -CLOCKS_S:
        return f"{step.key}: {-took:.1f} s before {after}: {step.what}"
    return None
