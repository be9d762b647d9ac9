"""What an operator asks and commands, as text in a terminal."""

from datetime import datetime

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from alerts.firing import Firing
from alerts.promql import parse_duration as parse_duration
from monitors.contract import Observed
from redline.client import ask
from redline.control.api import (
    ControlStatus,
    StartAnswer,
    StartOrder,
    VerbOrder,
    level_words,
)
from redline.settings import Stack
from rollout.audience import ANYBODY, Audience
from rollout.detectable import Detectable
from rollout.sequential import Numbers
from rollout.status import RolloutStatus


def show_status(stack: Stack) -> None:
    """Who serves, at which level, what fires, where the rollout is."""
    status = _status(stack)
    console = Console()
    console.print(
        f"leader epoch {_known(status.leader_epoch)}, rules evaluated by {status.rule_source}, "
        f"ladder {_known(status.ladder_mode)}"
    )
    _print_residents(console, status.data_plane)
    for ladder in status.ladders:
        if ladder.override is not None:
            until = datetime.fromtimestamp(ladder.override.until).strftime("%H:%M:%S")
            console.print(f"  {ladder.resident} is held by hand until {until}: redline ladder")
    _print_alerts(console, status)
    if status.rollout is not None:
        _print_rollout(console, status.rollout)


def _print_alerts(console: Console, status: ControlStatus) -> None:
    """What fires, who says so and since when; then what may fire soon."""
    if status.firing is None or not status.watched:
        console.print("firing: unknown, nobody can tell at the moment")
    elif not status.firing:
        console.print("firing: nothing")
    for alert in status.firing or ():
        console.print(f"[red]firing[/] {escape(_alert(alert))}")
        if alert.runbook is not None:
            console.print(f"  {escape(alert.runbook)}")
    for alert in status.pending:
        console.print(f"pending {escape(_alert(alert))}")


def _alert(alert: Firing) -> str:
    since = datetime.fromtimestamp(alert.starts_at).astimezone().strftime("%H:%M:%S")
    who = f"{alert.alert} {alert.version or ''}".strip()
    return f"{who}: {alert.summary} (since {since}, says {alert.source})"


def _print_residents(console: Console, data_plane: Observed | None) -> None:
    if data_plane is None:
        console.print("[red]residents: unknown, the data plane does not answer[/]")
        return
    table = _table("name", "version", "state", "share", "level", "epoch", "in flight")
    for r in data_plane.residents:
        table.add_row(
            r.name,
            r.version,
            r.state,
            f"{r.weight} %",
            level_words(r),
            _known(r.pool_epoch),
            str(r.in_flight),
        )
    console.print(table)
    copies = data_plane.mirror
    if copies.started or copies.dropped:
        console.print(f"copies to A: {copies.started} started, {copies.dropped} given up")
    for r in data_plane.residents:
        if r.detail:
            console.print(f"  {r.name}: {escape(r.detail)}")


def _table(*heads: str) -> Table:
    """A table for a terminal of 80 columns: what is too long goes on below, nothing is cut."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def show_rollout(stack: Stack) -> None:
    """Phase and evidence of the rollout."""
    status = _status(stack).rollout
    if status is None:
        Console().print("this control plane stands by: ask the one that leads")
    else:
        _print_rollout(Console(), status)


def _print_rollout(console: Console, status: RolloutStatus) -> None:
    console.print(f"rollout: [bold]{status.phase}[/] for {status.phase_s:.0f} s")
    for reason in status.reasons:
        console.print(f"  {escape(reason)}")
    if status.plan is not None and status.plan.audience.words and status.weight:
        console.print(f"  A's audience: {status.plan.audience.words}")
    if status.canary:
        console.print(_evidence(status.canary))
    if status.quarantined:
        console.print(f"  under quarantine: {escape(', '.join(status.quarantined))}")
    if status.unjournalled:
        waiting = f"{status.unjournalled} entries wait for a journal that cannot be written"
        console.print(f"  [red]{waiting}[/]")
    _print_rollback(console, status)


def _evidence(numbers: tuple[Numbers, ...]) -> Table:
    table = _table("line on A", "verdict", "crossed", "limit", "E (breach at)")
    for n in numbers:
        table.add_row(
            n.line,
            n.verdict,
            f"{round(n.events, 1):g} of {n.n}",
            f"{n.limit:.2%}",
            f"{n.e:.2g} ({n.threshold:,.0f})",
        )
    return table


def _print_rollback(console: Console, status: RolloutStatus) -> None:
    last = status.rollback
    if last is None:
        return
    console.print(f"last rollback of {last.order.canary} ({last.order.cause}):")
    console.print(f"  proved: {', '.join(last.proved)}")
    if last.receipt is not None:
        receipt = last.receipt
        console.print(
            f"  flushed {receipt.pages} pages, {receipt.bytes / 1e6:.2f} MB, "
            f"epoch {receipt.old_epoch} -> {receipt.new_epoch}, "
            f"{'complete' if receipt.complete else '[red]incomplete[/]'}"
        )
    if last.probe is not None:
        console.print(f"  probe: {escape(last.probe.detail)}")
    if last.failure is not None:
        console.print(f"  [red]ROLLBACK_INCOMPLETE[/]: {escape(last.failure)}")


def start_rollout(
    stack: Stack,
    weight: int | None,
    bake_s: float | None,
    actor: str,
    audience: Audience = ANYBODY,
) -> None:
    """Begin, after showing what today's traffic can detect."""
    order = StartOrder(actor=actor, weight=weight, bake_s=bake_s, audience=audience)
    answer = ask(stack, "POST", f"{stack.control_url}/api/rollout/start", StartAnswer, order)
    plan = answer.plan
    console = Console()
    console.print(
        f"{plan.version} ({plan.canary}) gets {plan.weight} % of new sessions beside "
        f"{plan.stable} for {plan.bake_s:.0f} s"
    )
    if plan.audience.words:
        console.print(f"its audience: {plan.audience.words}")
    console.print(_smallest(answer.detectable))
    if plan.audience.clients.allow is not None:
        console.print("  of all that, only what the allowed clients ask")
    console.print("watch it: redline rollout status")


def _smallest(detectable: Detectable | None) -> str:
    if detectable is None:
        return "no traffic was seen yet: what a bake can detect is unknown"
    called = (
        "no fault rate would be called"
        if detectable.fault_rate is None
        else f"a fault rate of {detectable.fault_rate:.1%} or more would be called"
    )
    enough = "enough" if detectable.can_pass else "[red]not enough[/]"
    return (
        f"at today's traffic A gets about {detectable.canary_requests:.0f} requests in the bake: "
        f"{called}; {detectable.clean_requests_to_pass} clean ones are needed to promote: {enough}"
    )


def command(stack: Stack, verb: str, actor: str, argument: str) -> None:
    """One of the short commands; prints where the rollout is afterwards."""
    room = "" if verb in ("freeze", "unfreeze") else "rollout/"
    order = VerbOrder(actor=actor, argument=argument)
    url = f"{stack.control_url}/api/{room}{verb}"
    status = ask(stack, "POST", url, RolloutStatus, order, timeout_s=60.0)
    _print_rollout(Console(), status)


def _status(stack: Stack) -> ControlStatus:
    return ask(stack, "GET", f"{stack.control_url}/api/status", ControlStatus)


def _known(value: object) -> str:
    return "unknown" if value is None else str(value)
