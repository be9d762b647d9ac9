"""The lines that a rollout is judged by, each with its share of the false-alarm budget (S4.5)."""

from typing import Annotated

import msgspec

from monitors.contract import Wire
from monitors.labels import Milestone
from monitors.redlines import RedLines
from rollout.sequential import Line

FAULTS = "faults"
FIRST_PACKET = "first_packet"
DEGRADE = "degrade"  # and a milestone
RESIDENCY = "residency"
_LINES = 2 + 1 + len(Milestone)  # faults, residency, first packet, one degrade line a milestone

Seconds = Annotated[float, msgspec.Meta(gt=0.0)]


class LatencyLine(Wire, frozen=True):
    """A share of requests that may be without `milestone` after `seconds`."""

    line: Line
    milestone: Milestone
    seconds: Seconds


def faults_line(lines: RedLines) -> Line:
    """The share of requests with a hard fault."""
    return _line(lines, FAULTS, lines.faults.rate)


def residency_line(lines: RedLines) -> Line:
    """The share of attention that misses the device."""
    line = _line(lines, RESIDENCY, 1.0 - lines.cache.hit_rate_floor)
    return msgspec.structs.replace(line, by_turns=False)


def latency_lines(lines: RedLines) -> tuple[LatencyLine, ...]:
    """S4.5's first-packet line, and S4.2's degrade line for each milestone."""
    first_packet = LatencyLine(
        line=_line(lines, FIRST_PACKET, lines.latency.first_packet_exceedance),
        milestone=Milestone.FIRST_AUDIO_PACKET,
        seconds=lines.latency.first_packet_s,
    )
    degrade = (
        LatencyLine(
            line=_line(lines, f"{DEGRADE}_{milestone}", lines.latency.degrade_exceedance),
            milestone=milestone,
            seconds=lines.latency.degrade_s,
        )
        for milestone in Milestone
    )
    return (first_packet, *degrade)


def _line(lines: RedLines, name: str, limit: float) -> Line:
    """One line with its share of the false-alarm budget, which all lines split evenly."""
    return Line(
        name=name,
        limit=limit,
        alpha=lines.rollout.alpha / _LINES,
        pass_alpha=lines.rollout.pass_alpha,
        min_sessions=lines.rollout.min_sessions,
    )
