"""A rollout as text in a terminal: where it is, why, and on which evidence."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from rollout.phases import in_words
from rollout.plan import ALL
from rollout.rollback import Progress
from rollout.sequential import Numbers, Verdict
from rollout.status import RolloutStatus


def rollout_shown(status: RolloutStatus) -> Group:
    """All there is to show of it."""
    return Group(*_parts(status))


def _parts(status: RolloutStatus) -> Iterator[RenderableType]:
    covers = "" if status.covered is None else f" ({status.covered})"
    yield f"rollout: [bold]{status.phase}[/]{covers} for {status.phase_s:.0f} s"
    if status.plan is not None:
        a, b = status.plan.canary, status.plan.stable
        yield f"  A is {escape(status.plan.version)} ({a}), B is {b}"
    if status.way_back is False:
        yield "  [red]there is no way back[/]: B is not ready"
    for reason in status.reasons:
        yield f"  {escape(reason)}"
    if status.plan is not None and status.share:
        yield f"  {_way(status)}"
        if status.plan.audience.words and not status.promoted:
            yield f"  A's audience: {status.plan.audience.words}"
        if status.capacity is not None:
            yield f"  {escape(status.capacity.words)}"
    if status.alarm is not None:
        yield f"  {escape(status.alarm.words)}"
    if status.canary:
        yield f"  verdict on A: [bold]{status.verdict}[/]"
        yield _evidence(status.canary)
    for past in (n for n in status.stable if n.verdict is Verdict.BREACH):
        yield f"  [red]B itself is past its line[/]: {escape(in_words(past))}"
    if status.quarantined:
        yield f"  under quarantine: {escape(', '.join(status.quarantined))}"
    if status.unjournalled:
        yield f"  [red]{status.unjournalled} entries wait for a journal that cannot be written[/]"
    if status.rollback is not None:
        yield from _rollback(status.rollback)


def _way(status: RolloutStatus) -> str:
    """The shares that A has, had and may get: `5 % -> [25 %] -> 50 % -> 100 %`."""
    if status.plan is None:
        return ""
    shares = (status.plan.weight, *(step.weight for step in status.plan.steps), ALL)
    shown = (f"[bold]{share} %[/]" if share == status.share else f"{share} %" for share in shares)
    return f"A's share: {' -> '.join(shown)}"


def _evidence(numbers: tuple[Numbers, ...]) -> Table:
    """For a terminal of 80 columns: what is too long goes on below, nothing is cut."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in ("line on A", "verdict", "crossed", "limit", "breach", "pass"):
        table.add_column(head, overflow="fold")
    for n in numbers:
        table.add_row(
            n.line,
            n.verdict,
            f"{round(n.events, 1):g} of {n.n}",
            f"{n.limit:.2%}",
            _way_gone(n.to_breach),
            _way_gone(n.to_pass),
        )
    return table


def _way_gone(share: float | None) -> str:
    """Rounded down: 100 % is there."""
    return "?" if share is None else f"{int(100 * share)} %"


def _rollback(last: Progress) -> Iterator[str]:
    yield f"last rollback of {last.order.canary} ({last.order.cause}):"
    yield f"  proved: {', '.join(last.proved)}"
    if last.receipt is not None:
        receipt = last.receipt
        yield (
            f"  flushed {receipt.pages} pages, {receipt.bytes / 1e6:.2f} MB, "
            f"epoch {receipt.old_epoch} -> {receipt.new_epoch}, "
            f"{'complete' if receipt.complete else '[red]incomplete[/]'}"
        )
    if last.probe is not None:
        yield f"  probe: {escape(last.probe.detail)}"
    if last.failure is not None:
        yield f"  [red]ROLLBACK_INCOMPLETE[/]: {escape(last.failure)}"
