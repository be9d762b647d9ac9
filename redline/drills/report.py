"""A drill's timeline and verdict, for people at 80 columns and as JSON for scripts."""

from datetime import datetime

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from redline.drills.names import DrillName
from redline.drills.timeline import BEGIN, Mark, Step, Timeline, wanting


class Told(msgspec.Struct, frozen=True):
    """One step. Seconds; None: it was not seen, or is nobody's to answer for.

    `wall`: calendar time by the clock of `source`; `took_s`: after the step `since`.
    """

    step: str
    expected: str
    since: str | None
    within_s: float | None
    wall: float | None
    after_breach_s: float | None
    took_s: float | None
    seen: str | None
    source: str | None


class Report(msgspec.Struct, frozen=True):
    """A drill as it went. `wanting`: what the runbook says and was not so; `instead`: how things
    stood then. Both in sentences."""

    drill: DrillName
    runbook: str
    answered: bool
    wanting: tuple[str, ...]
    instead: tuple[str, ...]
    requests_answered: int
    requests_failed: int
    steps: tuple[Told, ...]


def report(
    drill: DrillName, timeline: Timeline, instead: tuple[str, ...], answered: int, failed: int
) -> Report:
    """What came, step by step, and whether it is as the runbook says. The counts: own requests."""
    missing = wanting(timeline)
    return Report(
        drill=drill,
        runbook=drill.runbook,
        answered=not missing,
        wanting=missing,
        instead=instead,
        requests_answered=answered,
        requests_failed=failed,
        steps=(
            _told(timeline, _BEGUN, timeline.began),
            *(_told(timeline, step, timeline.marks.get(step.key)) for step in timeline.steps),
        ),
    )


_BEGUN = Step(BEGIN, "the drill breaks something", within_s=None)


def _told(timeline: Timeline, step: Step, mark: Mark | None) -> Told:
    own = step.within_s is None
    return Told(
        step=step.key,
        expected=step.what,
        since=None if own else step.since,
        within_s=step.within_s,
        wall=None if mark is None else mark.at,
        after_breach_s=None if mark is None else timeline.after_breach(mark.at),
        took_s=None if own else timeline.took(step),
        seen=None if mark is None else mark.seen,
        source=None if mark is None else mark.source,
    )


def draw(report: Report) -> RenderableType:
    """The timeline as a table, then the verdict."""
    table = Table(title=f"drill {report.drill}", title_justify="left", box=SIMPLE_HEAD, padding=0)
    table.add_column("step", no_wrap=True)
    for head in ("at", "breach", "took", "of"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("seen", overflow="fold")
    for one in report.steps:
        table.add_row(*_cells(one))
    table.caption_justify = "left"
    table.caption = (
        "at: local time. breach, took, of: seconds after the breach, after the step\n"
        f"it follows from, and at most. Own requests: {report.requests_answered} answered, "
        f"{report.requests_failed} failed."
    )
    return Group(table, *_verdict(report))


def _cells(one: Told) -> tuple[str, ...]:
    seen = "[red]not seen[/]" if one.seen is None else f"{escape(one.seen)} [dim]({one.source})[/]"
    return (
        one.step,
        "" if one.wall is None else datetime.fromtimestamp(one.wall).strftime("%H:%M:%S"),
        _seconds(one.after_breach_s, "+.2f"),
        _seconds(one.took_s, ".2f"),
        _seconds(one.within_s, ".0f"),
        seen,
    )


def _seconds(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _verdict(report: Report) -> list[str]:
    if report.answered:
        return [f"[green]The system answered as {report.runbook} says.[/]"]
    return [
        f"[red]The system did not answer as {report.runbook} says:[/]",
        *(f"  {escape(sentence)}" for sentence in report.wanting),
        *(["Seen instead:"] if report.instead else []),
        *(f"  {escape(sentence)}" for sentence in report.instead),
    ]
