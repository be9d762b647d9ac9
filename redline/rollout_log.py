"""`redline rollout log`: the journal as the story of its rollouts, with who, when and on what."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from rich.console import Console
from rich.markup import escape

from monitors.contract import Wire
from redline.client import ClientError, ask
from redline.control.api import JournalLine
from redline.control.beginnings import Place, begins, place_of
from redline.settings import Stack
from rollout.rollback import KIND, Record
from rollout.sequential import Numbers
from rollout.store import STATE_KIND, SavedState


class LogLine(Wire, frozen=True):
    """An entry for machines. `rollout`: the number of the one that it belongs to; None: to none.

    `took_s`: of a rollback's step, this attempt at it; of a rollout's state, the state before it.
    """

    id: int
    wall: float
    rollout: int | None
    actor: str
    kind: str
    story: str | None
    took_s: float | None
    leader_epoch: int
    body: object


class Chapter(msgspec.Struct, frozen=True):
    """What is between the beginning of one rollout and that of the next. `number`: the id of its
    first entry, and `first`: what that holds; None before the first rollout."""

    number: int | None
    first: SavedState | None
    lines: tuple[JournalLine, ...]


def show_log(stack: Stack, number: int | None, *, whole: bool, as_json: bool) -> None:
    """The last rollout; the one of this number; or all. Raises `ClientError` for another number."""
    url = f"{stack.control_url}/api/journal?told={str(not as_json).lower()}"
    found = list(chapters(ask(stack, "GET", url, list[JournalLine])))
    console = Console()
    chosen = found if whole else _chosen(found, number)
    for chapter in chosen:
        if as_json:
            for line in log_lines(chapter):
                console.out(msgspec.json.encode(line).decode(), highlight=False)
        else:
            _print(console, chapter)
    if not chosen and not as_json:
        console.print("no rollout is in the journal; --all shows what else is")


def _chosen(found: Sequence[Chapter], number: int | None) -> list[Chapter]:
    rollouts = [chapter for chapter in found if chapter.number is not None]
    if number is None:
        return rollouts[-1:]
    chosen = [chapter for chapter in rollouts if chapter.number == number]
    if not chosen:
        there = ", ".join(str(chapter.number) for chapter in rollouts) or "none"
        raise ClientError(f"no rollout {number} is in the journal; there are: {there}")
    return chosen


def chapters(lines: Sequence[JournalLine]) -> Iterator[Chapter]:
    """The journal, oldest entry first, cut where rollouts begin."""
    number, first, kept = None, None, list[JournalLine]()
    before = Place()
    for line in lines:
        saved = _state(line)
        if saved is not None:
            here = place_of(saved.state)
            if begins(before, here):
                if kept:
                    yield Chapter(number, first, tuple(kept))
                number, first, kept = line.id, saved, []
            before = here
        kept.append(line)
    if kept:
        yield Chapter(number, first, tuple(kept))


def _state(line: JournalLine) -> SavedState | None:
    """None for other entries, and for one that an earlier release wrote in another form."""
    if line.kind != STATE_KIND:
        return None
    try:
        return msgspec.convert(line.body, SavedState)
    except msgspec.ValidationError:
        return None


def log_lines(chapter: Chapter) -> Iterator[LogLine]:
    """For machines."""
    for line, took_s in _timed(chapter):
        yield LogLine(
            id=line.id,
            wall=line.wall,
            rollout=chapter.number,
            actor=line.actor,
            kind=line.kind,
            story=line.story,
            took_s=took_s,
            leader_epoch=line.leader_epoch,
            body=line.body,
        )


def _timed(chapter: Chapter) -> Iterator[tuple[JournalLine, float | None]]:
    since: float | None = None
    for line in chapter.lines:
        if line.kind == STATE_KIND:
            yield line, None if since is None else line.wall - since
            since = line.wall
        else:
            yield line, _took(line)


def _took(line: JournalLine) -> float | None:
    if line.kind != KIND:
        return None
    try:
        return msgspec.convert(line.body, Record).took_s
    except msgspec.ValidationError:
        return None


def _print(console: Console, chapter: Chapter) -> None:
    told: tuple[tuple[Numbers, ...], tuple[Numbers, ...]] | None = None
    console.print(_head(chapter), soft_wrap=True)
    for line, took_s in _timed(chapter):
        if line.story is None:
            continue
        when = datetime.fromtimestamp(line.wall).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        after = f"+{took_s:.1f} s" if took_s is not None and line.kind == STATE_KIND else ""
        console.print(
            f"  [dim]{when} {after:>9s}[/]  {escape(line.actor):10s} {escape(line.story)}",
            soft_wrap=True,
        )
        saved = _state(line)
        if saved is not None and (saved.canary, saved.stable) != told:
            told = (saved.canary, saved.stable)
            for words in seen(saved):
                console.print(f"      {escape(words)}", soft_wrap=True)


def _head(chapter: Chapter) -> str:
    """Which rollout, who began it, and what became of it."""
    plan = None if chapter.first is None else chapter.first.state.plan
    if plan is None:
        return "[bold]before the first rollout that is kept[/]"
    lines = [(line, saved) for line in chapter.lines if (saved := _state(line)) is not None]
    (begun, _), (ended, last) = lines[0], lines[-1]
    return "[bold]{}[/]".format(
        escape(
            f"rollout {chapter.number}: {plan.version} ({plan.canary}) beside {plan.stable}, "
            f"{plan.weight} % of new sessions for {plan.bake_s:.0f} s, begun by {begun.actor}; "
            f"{last.state.shown} after {ended.wall - begun.wall:.1f} s"
        )
    )


def seen(saved: SavedState) -> Iterator[str]:
    """What the evidence said when this was decided, a sentence for each line that had any."""
    stable = {numbers.line: numbers for numbers in saved.stable}
    for numbers in saved.canary:
        if numbers.n:
            yield f"{numbers.line}: {_figures(numbers, stable.get(numbers.line))}"


def _figures(canary: Numbers, stable: Numbers | None) -> str:
    beside = "" if stable is None else f", on B {stable.events:.4g} of {stable.n}"
    return (
        f"{canary.verdict}; on A {canary.events:.4g} of {canary.n}{beside}; the line is "
        f"{canary.limit:.2%}; E {canary.e:.2g}, breach at {canary.threshold:,.0f}, "
        f"pass {canary.pass_e:.2g} of {canary.pass_threshold:,.0f}"
    )
